//! Runs the handlers of one [`HandlerScope`] (the leader only, or every replica): their chains, watches and background tasks.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_driver::Fence;
use staffetta_handler::{Recorder, Setup, SetupError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{ControllerContext, ControllerError, ObjectSelection, check_handlers, create_handlers};
use crate::base::config::KubernetesOptions;
use crate::base::retry::until_success;
use crate::engine::cluster::ClusterInfo;
use crate::engine::events::{self, Publisher, PublisherTask};
use crate::engine::identity::ReplicaIdentity;
use crate::engine::pipeline::{
    self, HandlerReports, HandlerScope, MARKS_UNREAD, garbage_collection, sources,
};
use crate::engine::term::Term;
use crate::engine::watcher::Watcher;
use crate::observe::check::{Diagnostics, rights_of};
use crate::observe::state::RunningHandlers;

/// The time limit for writing the last Kubernetes Events when the handlers stop.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit for the sources of the handlers (tasks that send triggers) to give up their Leases and the like when the handlers stop.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The watches, chains and background tasks of the handlers of one scope: those of the leader, in one term, or those of every replica.
/// Dropping the value stops all of them.
pub(super) struct HandlerTasks<'r> {
    context: &'r ControllerContext,
    handlers: Arc<RunningHandlers>,
    /// The names of the conditions of `/readyz` that these tasks added.
    conditions: Vec<String>,
    tasks: JoinSet<()>,
    /// The fence of the requests to external systems, whatever sends them.
    fence: Fence,
    /// The task that writes Kubernetes Events; `None` if they are not written.
    recording: Option<PublisherTask>,
}

impl<'r> HandlerTasks<'r> {
    /// Creates the enabled handlers of `scope` with their drivers, in the order of the configuration, and starts their chains, watches and
    /// background tasks. They act only during `term`, with `client`. Fails if a handler or one of its drivers cannot be built.
    pub(super) fn start(
        context: &'r ControllerContext,
        scope: HandlerScope,
        cluster: &ClusterInfo,
        client: &Client,
        term: &Term,
    ) -> Result<Self, ControllerError> {
        let ControllerContext { registry, configuration, state, .. } = context;
        let (publisher, recording) = record_events(context, cluster, client).unzip();
        let publisher = publisher.unwrap_or_default();
        let mut setup = cluster.clone().setup(registry, configuration, client.clone());
        let notes = publisher.clone();
        setup.recorder = Recorder::new(move |note| notes.record(note));
        let cluster_id = Some(cluster.id().to_owned());
        let options = KubernetesOptions { cluster_id, ..configuration.kubernetes.clone() };
        let selection = Arc::new(ObjectSelection::new(&options));
        setup.share(Arc::clone(&selection));
        // Drivers with tasks of their own check the term and count.
        setup.share(Arc::new(term.clone()));
        let active = term.clone();
        let fence = Fence::new(move || active.is_active());
        setup.share(Arc::new(fence.clone()));
        setup.share(Arc::new(ReplicaIdentity(context.state.identity.clone())));
        setup.share(Arc::clone(&state.metrics));
        setup.share(Arc::new(state.background.clone()));
        let names = scope.handlers(registry, &configuration.kubernetes.enabled_handlers);
        let handlers = create_handlers(registry, &names, &setup).map_err(|error| match error {
            // The check names all missing options, and not only the first one.
            ControllerError::Handler { source: SetupError::Missing { .. }, .. } => {
                check_handlers(registry, configuration, cluster).err().unwrap_or(error)
            }
            error => error,
        })?;
        info!(handlers = names.join(","), "the handlers are created");
        let reports = HandlerReports::new(publisher, configuration.events.success, &state.metrics);
        let pipeline = Arc::new(pipeline::build(handlers, &configuration.relay, term, &reports));
        add_rights_diagnosis(context, scope, names, &setup);
        let diagnostics = Arc::new(Diagnostics::new(setup.into_checks()));
        let watcher = Watcher::new(client.clone(), Arc::clone(&pipeline));
        let watcher = Arc::new(watcher.watch_timeout(configuration.kubernetes.watch_timeout.into()));
        let handlers = Arc::new(RunningHandlers { scope, pipeline, watcher, diagnostics });
        state.set_running(&handlers);
        let (conditions, tasks) = (Vec::new(), JoinSet::new());
        let mut running = Self { context, handlers, conditions, tasks, fence, recording };
        running.prepare();
        running.watch(selection);
        // The leader renews the certificate of the webhook, unless it is read from files.
        let webhook = context.webhook.as_ref().filter(|_| scope == HandlerScope::Leader);
        if let Some(renewal) = webhook.and_then(|webhook| webhook.maintain_certificate(client)) {
            running.tasks.spawn(renewal);
        }
        Ok(running)
    }

    /// Starts background tasks that check the drivers and read the ownership marks (owners in the tags of external resources). Each is
    /// repeated until it succeeds, and this process is not ready before.
    fn prepare(&mut self) {
        let limit = self.context.configuration.relay.handler_timeout.into();
        for check in self.handlers.diagnostics.readiness.clone() {
            let name = self.add_condition(format!("driver {}", check.name), "not checked yet");
            let health = Arc::clone(&self.context.state.health);
            self.tasks.spawn(async move {
                let failed = |attempt: u32, wait_ms: u128, error: String| {
                    warn!(driver = check.name, attempt, wait_ms, error, "the driver's check failed");
                    health.set_unmet(&name, error);
                };
                until_success(limit, || (check.run)(), failed).await;
                health.set_met(&name);
            });
        }
        for handler in Arc::clone(&self.handlers.pipeline).handlers() {
            let name = self.add_condition(format!("handler {}", handler.name), MARKS_UNREAD);
            let (handler, health) = (Arc::clone(handler), Arc::clone(&self.context.state.health));
            self.tasks.spawn(async move {
                garbage_collection::recover(&handler, |progress| health.set_unmet(&name, progress)).await;
                health.set_met(&name);
            });
        }
    }

    /// Watches the kinds that the handlers need, in the order that `selection` requires, and runs the sources of the handlers. Starts
    /// garbage collection (of external resources whose Kubernetes object is gone) once all kinds are listed.
    fn watch(&mut self, selection: Arc<ObjectSelection>) {
        selection.watch(self.handlers.pipeline.kinds(), &self.handlers.watcher);
        let watcher = Arc::clone(&self.handlers.watcher);
        self.tasks.spawn(async move { selection.follow_namespaces(&watcher).await });
        let name = match self.handlers.scope {
            HandlerScope::Leader => "watches",
            HandlerScope::EveryReplica => "watches in every replica",
        };
        let name = self.add_condition(name.to_owned(), "not all objects are listed yet");
        let (handlers, state) = (Arc::clone(&self.handlers), Arc::clone(&self.context.state));
        let relay = self.context.configuration.relay.clone();
        self.tasks.spawn(async move {
            handlers.watcher.until_listed().await;
            info!("all objects are listed");
            state.health.set_met(&name);
            let collections = handlers.pipeline.handlers().iter().map(|handler| {
                garbage_collection::collect_periodically(handler, &handlers.watcher, &relay, &state.metrics)
            });
            futures_util::future::join_all(collections).await;
        });
        sources::start(&mut self.tasks, &self.handlers.pipeline);
    }

    /// Adds the readiness condition `name`, which is not met yet; `reason` says why. Returns the name.
    fn add_condition(&mut self, name: String, reason: &str) -> String {
        self.conditions.push(name.clone());
        self.context.state.health.set_unmet(&name, reason);
        name
    }

    /// Waits for the operations that the sources have begun in external systems (at most half of `grace`), ends the watches, handles the
    /// queued events and waits for all requests to external systems in the rest of `grace`, and then gives up what the sources hold in
    /// Kubernetes, such as Leases. Returns `true` if all events and requests ended within `grace`, with or without success.
    pub(super) async fn stop(mut self, grace: Duration) -> bool {
        let until = Instant::now() + grace;
        if tokio::time::timeout(grace / 2, sources::drain(&self.handlers.pipeline)).await.is_err() {
            info!(
                "something that was begun outside has not ended in time; whoever takes over looks at it again"
            );
        }
        self.close().await;
        info!("all watches are stopped");
        let mut drained = self.handlers.pipeline.drain(until.saturating_duration_since(Instant::now())).await;
        // What was begun outside of the queues, such as the deletion of ports that a pool has too many of.
        let left = until.saturating_duration_since(Instant::now());
        if tokio::time::timeout(left, self.fence.close()).await.is_err() {
            warn!("requests to external systems are still in flight; the lease is left to expire");
            drained = false;
        }
        // What runs on may still change something in their name.
        let release = tokio::time::timeout(RELEASE_TIMEOUT, sources::release(&self.handlers.pipeline));
        if drained && release.await.is_err() {
            warn!("the sources did not give up what they hold in time; other replicas wait until it expires");
        }
        if let Some(recording) = self.recording {
            recording.drain(LAST_EVENTS_TIMEOUT).await;
        }
        if drained {
            info!("all queues are drained");
        }
        drained
    }

    /// Stops these tasks at once and discards the queued events, because the term has ended, and removes the readiness conditions of these
    /// tasks. Waits up to `grace` for running handlers.
    pub(super) async fn abandon(mut self, grace: Duration) {
        self.close().await;
        if !self.handlers.pipeline.halt(grace).await {
            warn!("a handler did not stop when leadership ended; its writes and driver calls are refused");
        }
        self.context.state.health.remove(&self.conditions);
    }

    /// Ends the watches and the background tasks.
    async fn close(&mut self) {
        self.handlers.watcher.stop();
        self.tasks.shutdown().await;
    }
}

/// Starts the task that writes Kubernetes Events, and returns it with their sender; `None` if Events are disabled or not served.
fn record_events(
    context: &ControllerContext,
    cluster: &ClusterInfo,
    client: &Client,
) -> Option<(Publisher, PublisherTask)> {
    if !context.configuration.events.enabled {
        return None;
    }
    if !cluster.serves(events::API_VERSION) {
        warn!(
            api_version = events::API_VERSION,
            "the API server does not serve Kubernetes Events; failures are only logged"
        );
        return None;
    }
    let outcomes = context.state.metrics.kubernetes_events.clone();
    Some(events::start(client.clone(), context.state.identity.clone(), outcomes))
}

/// Adds the check, for `kubectl staffetta check`, that this process has the rights (RBAC) for Kubernetes Events and for `handlers`. In the
/// leader, it includes those for the leader election, the cluster id, the drivers and the webhook.
fn add_rights_diagnosis(
    context: &ControllerContext,
    scope: HandlerScope,
    handlers: Vec<String>,
    setup: &Setup,
) {
    let (client, election) = (context.client.clone(), &context.configuration.leader_election);
    let namespace = election.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
    let leads = scope == HandlerScope::Leader;
    let lease = (election.enabled && leads).then(|| election.lease_name.clone());
    let options = leads.then(|| Arc::new(context.configuration.value.clone()));
    setup.diagnosis("rights", move || {
        let (client, handlers, namespace) = (client.clone(), handlers.clone(), namespace.clone());
        let (lease, options) = (lease.clone(), options.clone());
        async move { rights_of(&client, &handlers, &namespace, lease.as_deref(), options.as_deref()).await }
    });
}
