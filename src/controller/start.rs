//! Creates the enabled handlers that run in the same replicas (of one [`HandlerScope`]), and starts them.

use std::sync::Arc;

use kube::Client;
use staffetta_handler::{Recorder, Setup, SetupError};
use tracing::{info, warn};

use super::running::HandlerTasks;
use super::{ControllerContext, ControllerError, ObjectSelection, check_handlers, create_handlers};
use crate::check::{Diagnostics, rights_of};
use crate::cluster::ClusterInfo;
use crate::events::{self, Publisher, PublisherTask};
use crate::identity::ReplicaIdentity;
use crate::pipeline::report::Reports;
use crate::pipeline::{self, HandlerScope, Pipeline};
use crate::term::Term;

impl ControllerContext {
    /// Creates the enabled handlers of `scope` and starts all that belongs to them. They act only during `term`, with `client`.
    pub(super) fn start(
        &self,
        scope: HandlerScope,
        cluster: &ClusterInfo,
        client: &Client,
        term: &Term,
    ) -> Result<HandlerTasks<'_>, ControllerError> {
        let (recorder, recording) = self.record_events(cluster, client).unzip();
        let setup = cluster.clone().setup(&self.registry, &self.configuration, client.clone());
        let setup = match &recorder {
            Some(recorder) => setup.with_recorder(Recorder::new(recorder.clone())),
            None => setup,
        };
        let selection = Arc::new(ObjectSelection::new(&self.configuration.kubernetes));
        setup.share(Arc::clone(&selection));
        // Drivers with tasks of their own check the term and count.
        let metrics = &self.state.metrics;
        setup.share(Arc::new(term.clone()));
        setup.share(Arc::new(ReplicaIdentity(self.identity.clone())));
        setup.share(Arc::clone(&metrics.cloud_requests));
        setup.share(Arc::clone(&metrics.ec2_requests));
        setup.share(Arc::clone(&metrics.cni_requests));
        setup.share(Arc::new(metrics.virtual_nodes.clone()));
        setup.share(Arc::new(metrics.module_operations.clone()));
        setup.share(Arc::new(metrics.pools.clone()));
        setup.share(Arc::new(metrics.prefixes.clone()));
        setup.share(Arc::new(self.state.background.clone()));
        let reports = Reports::new(recorder, self.configuration.events.success, metrics);
        let pipeline = self.pipeline(scope, &setup, &reports, term);
        let pipeline = pipeline.map_err(|error| self.with_all_missing_options(error, cluster))?;
        self.add_rights(scope, &setup);
        let diagnostics = Diagnostics::new(setup.into_checks());
        let running =
            HandlerTasks::new(self, scope, client.clone(), Arc::new(pipeline), diagnostics, recording);
        Ok(running.prepare().watch(selection))
    }

    /// Adds a check of the rights (RBAC) that the handlers of `scope` need. In the leader, it includes those of the leader election, the
    /// drivers and the webhook.
    fn add_rights(&self, scope: HandlerScope, setup: &Setup) {
        let handlers = scope.handlers(&self.registry, &self.configuration.kubernetes.enabled_handlers);
        let (client, election) = (self.client.clone(), &self.configuration.leader_election);
        let namespace = election.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
        let leads = scope == HandlerScope::Leader;
        let lease = (election.enabled && leads).then(|| election.lease_name.clone());
        let options = leads.then(|| Arc::new(self.configuration.value.clone()));
        setup.diagnosis("rights", move || {
            let (client, handlers, namespace) = (client.clone(), handlers.clone(), namespace.clone());
            let (lease, options) = (lease.clone(), options.clone());
            async move { rights_of(&client, &handlers, &namespace, lease.as_deref(), options.as_deref()).await }
        });
    }

    /// If `error` names the first option that a handler lacks, returns an error that names all of them; otherwise `error`.
    fn with_all_missing_options(&self, error: ControllerError, cluster: &ClusterInfo) -> ControllerError {
        match error {
            ControllerError::Handler { source: SetupError::Missing { .. }, .. } => {
                check_handlers(&self.registry, &self.configuration, cluster).err().unwrap_or(error)
            }
            error => error,
        }
    }

    /// Starts to write Kubernetes Events, if they are enabled and the server supports them.
    fn record_events(&self, cluster: &ClusterInfo, client: &Client) -> Option<(Publisher, PublisherTask)> {
        if !self.configuration.events.enabled {
            return None;
        }
        if !cluster.serves(events::API_VERSION) {
            warn!(
                api_version = events::API_VERSION,
                "the API server does not serve Kubernetes Events; failures are only logged"
            );
            return None;
        }
        let metrics = self.state.metrics.kubernetes_events();
        Some(events::start(client.clone(), self.identity.clone(), metrics))
    }

    /// Creates the enabled handlers of `scope` with their drivers, in the order of the configuration, and builds their chains.
    fn pipeline(
        &self,
        scope: HandlerScope,
        setup: &Setup,
        reports: &Reports,
        term: &Term,
    ) -> Result<Pipeline, ControllerError> {
        let handlers = scope.handlers(&self.registry, &self.configuration.kubernetes.enabled_handlers);
        let created = create_handlers(&self.registry, &handlers, setup)?;
        info!(handlers = handlers.join(","), "the handlers are created");
        Ok(pipeline::build(created, &self.configuration.relay, term, reports))
    }
}
