//! `staffetta uninstall`: takes the controller's finalizers off its objects, and lists what stays in external systems.
//!
//! Without a controller, an object with a finalizer of ours is never deleted. Pods keep their network: nothing is released outside. The
//! controller must have stopped, because it would add the finalizers and the virtual nodes again. Its Leases show whether it runs or,
//! without a leader election, the pods of its Deployment do.

mod objects;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::Client;
use kube::core::ApiResource;
use serde::Serialize;
use staffetta_handler::{DryRunPlan, Registry, causes};
#[cfg(feature = "app-hosting")]
use staffetta_virtual_node::app_hosting::{self, CiscoDevice};
use tokio::time::timeout;

use crate::base::config::{Configuration, TimeSpan};
use crate::base::connect::answer;
use crate::control::controller::{FINALIZER_PREFIX, create_handlers};
use crate::engine::cluster::ClusterInfo;
use crate::operate::cleanup::{CleanedUp, Leftover, ObjectResult, clean_handlers};
use objects::{delete_nodes, remove_finalizers};
use stop::stop;

/// The time limit for listing the resources that stay in external systems.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);

/// The options of `staffetta uninstall`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct UninstallOptions {
    /// Remove the finalizers of the controller, and its virtual nodes. Without it, they are only listed.
    #[arg(long)]
    pub apply: bool,
    /// The Deployment of the controller, which is scaled to 0 first. It is in the namespace of the Lease.
    #[arg(long, value_name = "DEPLOYMENT", requires = "apply")]
    pub stop: Option<String>,
    /// The time limit for the controller to stop.
    #[arg(long, value_name = "TIME", default_value = "2m", requires = "apply")]
    pub timeout: TimeSpan,
}

/// The result of `staffetta uninstall`.
#[derive(Debug, Serialize)]
pub struct Uninstalled {
    /// The objects with a finalizer of ours, and the virtual nodes, each with what was or would be removed.
    pub objects: Vec<ObjectResult>,
    /// The Kubernetes objects whose external resources remain.
    pub outside: Vec<Leftover>,
    /// The number of VIFs that the VIF pool keeps ready for new pods. They stay in the external system, too.
    pub pooled: usize,
    /// The reasons why external resources could not be listed.
    pub unknown: Vec<String>,
}

/// The reason why `staffetta uninstall` failed. A finalizer that cannot be removed is no such failure, but an entry of the result.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// A replica of the controller holds a Lease. The text is its identity, the `holderIdentity` of the Lease.
    #[error(
        "a controller runs ({0}), and would add the finalizers again: scale its Deployment to 0 first, or pass --stop DEPLOYMENT"
    )]
    Running(String),
    /// The Deployment was scaled to zero, but the controller does not stop in time. The text names what shows that it runs, and the remedy.
    #[error("{0}")]
    StillRunning(String),
    /// The leader election is disabled, and no Deployment is given.
    #[error(
        "without a leader election (`leader_election.enabled`), no Lease shows if a controller runs: pass --stop DEPLOYMENT"
    )]
    Unelected,
    /// The Deployment cannot be scaled, or objects cannot be read.
    #[error("cannot {action}")]
    Api {
        /// The failed request: the action and its object, such as `read the Lease`.
        action: String,
        /// The error of the API server.
        source: Box<kube::Error>,
    },
}

/// Removes our finalizers and the virtual nodes of this installation if `options.apply` is set, otherwise lists them. Those of handlers
/// that are not enabled are included, because these handlers may have been enabled before. In both cases, lists the objects whose external
/// resources remain.
///
/// # Errors
///
/// Fails if objects cannot be read. With `options.apply`, fails also if a controller holds a Lease, if its Deployment cannot be scaled or
/// keeps its pods, or if the leader election is disabled and no Deployment is given. A finalizer that cannot be removed is in the result.
pub async fn uninstall(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    options: &UninstallOptions,
) -> Result<Uninstalled, UninstallError> {
    let cluster = answer(ClusterInfo::read(configuration, &client)).await;
    let cluster = cluster.map_err(|error| api_error("read the API server", error))?;
    if options.apply {
        stop(configuration, &client, cluster.id(), options).await?;
    }
    let mut objects = Vec::new();
    for resource in [
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<Service>(&()),
        ApiResource::erase::<Namespace>(&()),
        #[cfg(feature = "app-hosting")]
        ApiResource::erase::<CiscoDevice>(&()),
    ] {
        objects.extend(remove_finalizers(&client, &resource, cluster.id(), options.apply).await?);
    }
    let providers: Vec<_> =
        registry.handlers().filter(|(_, entry)| entry.has_virtual_nodes).map(|(name, _)| name).collect();
    objects.extend(delete_nodes(&client, cluster.id(), &providers, options.apply).await?);
    // Last, because external systems may be slow or gone.
    let mut outside = CleanedUp::default();
    let listed = list_outside(registry, configuration, client, cluster, &mut outside);
    if timeout(LIST_TIMEOUT, listed).await.is_err() {
        outside.unknown.push(format!("no answer within {} s", LIST_TIMEOUT.as_secs()));
    }
    let CleanedUp { owners, pooled, unknown } = outside;
    Ok(Uninstalled { objects, outside: owners, pooled, unknown })
}

/// Returns `true` if `finalizer` is one that a handler of this program adds to objects.
fn is_ours(finalizer: &str) -> bool {
    #[cfg(feature = "app-hosting")]
    if finalizer == app_hosting::FINALIZER {
        return true;
    }
    finalizer.starts_with(FINALIZER_PREFIX)
}

/// Adds the objects that own external resources of this cluster, as the ownership marks name them, to `result`. If a handler cannot list
/// them, the reason is added to `result` instead, and `uninstall` does not fail.
async fn list_outside(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    cluster: ClusterInfo,
    result: &mut CleanedUp,
) {
    let registry = Arc::new(registry);
    let setup = cluster.setup(&registry, configuration, client).dry_run(DryRunPlan::default());
    match create_handlers(&registry, &configuration.kubernetes.enabled_handlers, &setup) {
        Ok(handlers) => clean_handlers(handlers, configuration, &setup, false, result).await,
        Err(error) => result.unknown.push(causes(&error)),
    }
}

/// Returns the error of a request to the API server. `action` is an action and its object, such as `read the Lease`.
fn api_error(action: impl Into<String>, error: kube::Error) -> UninstallError {
    UninstallError::Api { action: action.into(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::base::config::{self, FileSchema};

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_does_not_answer_ends_the_command() {
        let silent =
            service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, Infallible>>());
        let mut registry = Registry::default();
        config::register(&mut registry);
        let schema = FileSchema::assemble(&registry).unwrap();
        let configuration = Configuration::load(&schema, None, []).unwrap();
        let (client, options) = (Client::new(silent, "default"), UninstallOptions::default());
        let listed = uninstall(registry, &configuration, client, &options).await;
        assert!(causes(&listed.unwrap_err()).starts_with("cannot read the API server: "));
    }
}
