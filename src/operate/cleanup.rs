//! `staffetta cleanup`: lists, and releases, the external resources that carry the mark of another cluster.
//!
//! The resources of a cluster that no longer exists stay in the external systems, because no controller with its cluster id collects
//! garbage. Each handler lists the Kubernetes objects that own resources with that id, and releases these resources as it does for a
//! deleted object.

use std::collections::HashSet;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde::Serialize;
use staffetta_driver::VifPoolDriver;
use staffetta_handler::{
    AnyEvent, BackoffPolicy, DryRunPlan, EventHandler, HandlerError, Identity, Registration, Registry, Setup,
    causes,
};

use crate::base::config::Configuration;
use crate::base::connect::answer;
#[cfg(feature = "network")]
use crate::control::assembly;
use crate::control::controller::{ControllerError, create_handlers};
use crate::engine::cluster::ClusterInfo;

/// The back-off between attempts to release the resources of an object. Transient failures are retried for a minute: the user waits.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_millis(500),
    max: Duration::from_secs(5),
    limit: Some(Duration::from_secs(60)),
};

/// The result of `staffetta cleanup`, `uninstall` or `migrate` for one object.
#[derive(Debug, Serialize)]
pub struct ObjectResult {
    /// The kind of the object, or `Port` for a port that no object uses.
    pub kind: String,
    /// The namespace of the object; empty without one.
    pub namespace: String,
    /// The name of the object, or the id of the port.
    pub name: String,
    /// The change that was made or would be made, the reason of a refusal, or the error, as text.
    pub result: String,
    /// `false` if the command refuses to change the object, or the change failed; `true` also for a change that was only planned.
    #[serde(rename = "ok")]
    pub is_ok: bool,
}

/// A Kubernetes object that owns external resources, as the ownership marks of these resources name it.
#[derive(Debug, Serialize)]
pub struct Leftover {
    /// The name of the handler that created the resources.
    pub handler: String,
    /// The UID of the object.
    pub uid: String,
    /// The object, with the result of the release of its resources: `found` if they were only listed, `released`, or the error.
    #[serde(flatten)]
    pub owner: ObjectResult,
}

/// The result of `staffetta cleanup`: what another cluster left in external systems.
#[derive(Debug, Default, Serialize)]
pub struct CleanedUp {
    /// The Kubernetes objects that own external resources, each with the result of the release.
    pub owners: Vec<Leftover>,
    /// The number of VIFs that the VIF pool of that other cluster kept ready for new pods.
    pub pooled: usize,
    /// The reasons why the resources of a handler could not be listed, or why the VIFs of the VIF pool could not be listed or deleted.
    pub unknown: Vec<String>,
}

/// The reason why the external resources of another cluster cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// The cluster id is that of the cluster to which the kubeconfig belongs.
    #[error("`{0}` is the id of this cluster, whose resources are in use")]
    OwnCluster(String),
    /// The API server does not answer, or rejects the requests.
    #[error("the API server cannot be read")]
    Api(#[source] Box<kube::Error>),
    /// A handler cannot be created.
    #[error(transparent)]
    Handler(#[from] ControllerError),
}

/// Lists the Kubernetes objects that own external resources of the cluster `cluster_id`, and releases these resources if `apply` is set.
///
/// # Errors
///
/// `cluster_id` is that of the cluster of `client`, the API server does not answer, or a handler cannot be created. The error of a release
/// is in the [`Leftover`] of the object, and the reason why a handler cannot list resources is in [`CleanedUp::unknown`].
pub async fn cleanup(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    cluster_id: &str,
    apply: bool,
) -> Result<CleanedUp, CleanupError> {
    let cluster = answer(ClusterInfo::read(configuration, &client)).await;
    let cluster = cluster.map_err(|error| CleanupError::Api(Box::new(error)))?;
    let cluster =
        cluster.of_other(cluster_id).ok_or_else(|| CleanupError::OwnCluster(cluster_id.to_owned()))?;
    let registry = Arc::new(registry);
    #[cfg(feature = "network")]
    let configuration = &assembly::with_pools(configuration);
    let setup = cluster.setup(&registry, configuration, client);
    let setup = if apply { setup } else { setup.dry_run(DryRunPlan::default()) };
    let handlers = create_handlers(&registry, &configuration.kubernetes.enabled_handlers, &setup)?;
    let mut result = CleanedUp::default();
    clean_handlers(handlers, configuration, &setup, apply, &mut result).await;
    Ok(result)
}

/// Adds the objects that own external resources of `handlers`, and the number of VIFs that the pool keeps ready, to `result`. Releases the
/// resources and VIFs if `apply` is set. If a handler or the pool fails, the reason is added to `result` instead.
pub(crate) async fn clean_handlers(
    mut handlers: Vec<(String, Registration)>,
    configuration: &Configuration,
    setup: &Setup,
    apply: bool,
    result: &mut CleanedUp,
) {
    // The networks of namespaces can be deleted when the pool has no VIFs in them.
    handlers.sort_by_key(|(handler, _)| handler != "vif");
    for (handler, registration) in handlers {
        match clean_handler(&handler, registration, configuration, apply).await {
            Ok(listed) => result.owners.extend(listed),
            Err(error) => result.unknown.push(format!(
                "the resources of the handler `{handler}` cannot be listed: {}",
                causes(&*error)
            )),
        }
        if handler == "vif"
            && let Err(error) = drain_pool(setup, apply, &mut result.pooled).await
        {
            result.unknown.push(format!("the VIFs of the pool cannot be deleted: {}", causes(&*error)));
        }
    }
}

/// Lists the objects that own external resources of the handler `name`, and releases these resources if `apply` is set. Fails if they
/// cannot be listed; the error of a release is in the [`Leftover`] of the object.
async fn clean_handler(
    name: &str,
    registration: Registration,
    configuration: &Configuration,
    apply: bool,
) -> Result<Vec<Leftover>, HandlerError> {
    let Some(collector) = registration.collector.clone() else { return Ok(Vec::new()) };
    let registration = Arc::new(registration);
    let chain = Arc::clone(&registration).timeout(configuration.relay.handler_timeout.into()).retry(BACKOFF);
    collector.recover().await?;
    let mut leftovers = Vec::new();
    for owner in collector.owners().await? {
        let (is_ok, result) = if apply {
            let deleted = AnyEvent::Missed(Arc::new(owner.clone()));
            match chain.complete(&registration.resolve(&deleted)).await {
                Ok(()) => (true, "released".to_owned()),
                Err(error) => (false, causes(&*error)),
            }
        } else {
            (true, "found".to_owned())
        };
        let Identity { kind, namespace, name: object, uid, .. } = owner;
        let namespace = namespace.unwrap_or_default();
        let owner = ObjectResult { kind: kind.into_owned(), namespace, name: object, result, is_ok };
        leftovers.push(Leftover { handler: name.to_owned(), uid, owner });
    }
    Ok(leftovers)
}

/// Sets `count` to the number of VIFs that the VIF pool of the cluster of `setup` keeps ready, and deletes them if `apply` is set. If they
/// cannot be listed, `count` stays. Does nothing without a pool that keeps VIFs ready. Call it when the handler `vif` has started the pool.
async fn drain_pool(
    setup: &Setup,
    apply: bool,
    count: &mut usize,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let pool = setup.driver::<dyn VifPoolDriver>()?;
    if pool.observer().is_none() {
        return Ok(());
    }
    let vifs = pool.vifs(None).await?;
    let pooled: Vec<_> = vifs.into_iter().filter(|marked| marked.owner.is_none()).collect();
    *count = pooled.len();
    let networks: HashSet<_> = pooled.into_iter().map(|marked| marked.resource.network.id).collect();
    for network in networks.into_iter().filter(|_| apply) {
        pool.drain_network(&network).await?;
    }
    Ok(())
}
