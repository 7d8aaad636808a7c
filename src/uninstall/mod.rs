//! `staffetta uninstall`: takes the controller's finalizers off its objects, and lists what stays in external systems.
//!
//! Without a controller, an object with a finalizer of ours is never deleted. Pods keep their network: nothing is released outside. The
//! controller must have stopped, because it would add the finalizers and the virtual nodes again; its Leases say so or, without a leader
//! election, the pods of its Deployment.

mod objects;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::Client;
use kube::core::ApiResource;
use serde::Serialize;
use staffetta_handler::{DryRunPlan, Registry, causes};
use staffetta_virtual_node::app_hosting::{self, CiscoDevice};
use tokio::time::timeout;

use crate::cleanup::{CleanedUp, Leftover, clean_handlers};
use crate::cluster::ClusterInfo;
use crate::config::Configuration;
use crate::connect::answer;
use crate::controller::{FINALIZER_PREFIX, create_handlers};
use objects::{delete_nodes, remove_finalizers};
use stop::stop;

/// The time limit of the lists of external systems.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);

/// The options of `staffetta uninstall`.
#[derive(Clone, Debug, Default)]
pub struct UninstallOptions {
    /// Remove the finalizers and the virtual nodes. Otherwise they are only listed.
    pub apply: bool,
    /// The Deployment to scale to zero first, in the namespace of the Lease.
    pub stop: Option<String>,
    /// The time limit for the controller to stop.
    pub timeout: Duration,
}

/// The result of `staffetta uninstall`.
#[derive(Debug, Serialize)]
pub struct Uninstalled {
    /// The objects with a finalizer of ours, and the virtual nodes.
    pub objects: Vec<UninstalledObject>,
    /// The owners of resources that stay in external systems.
    pub outside: Vec<Leftover>,
    /// The number of VIFs that the pool keeps ready. They stay in the external system, too.
    pub pooled: usize,
    /// The handlers whose external resources could not be listed, with the reason.
    pub unknown: Vec<String>,
}

/// An object in the result of `staffetta uninstall`.
#[derive(Debug, Serialize)]
pub struct UninstalledObject {
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object; empty without one.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The change that was made or would be made, or the error, as text.
    pub result: String,
    /// `false` if the change failed.
    #[serde(rename = "ok")]
    pub is_ok: bool,
}

/// The reason why `staffetta uninstall` failed. A finalizer that cannot be removed is no such failure, but an entry of the result.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// A replica of the controller holds a Lease.
    #[error(
        "a controller runs ({0}), and would add the finalizers again: scale its Deployment to 0 first, or pass --stop DEPLOYMENT"
    )]
    Running(String),
    /// A replica still holds a Lease, although the Deployment was scaled to zero or does not exist.
    #[error(
        "a controller still runs ({holder}) after {} s: check that it belongs to the Deployment `{name}`, or raise --timeout",
        timeout.as_secs()
    )]
    StillRunning {
        /// The holder of the Lease.
        holder: String,
        /// The name of the Deployment.
        name: String,
        /// The time limit.
        timeout: Duration,
    },
    /// The leader election is disabled, and no Deployment is given.
    #[error(
        "without a leader election (`leader_election.enabled`), no Lease shows if a controller runs: pass --stop DEPLOYMENT"
    )]
    Unelected,
    /// The Deployment was scaled to zero, but its pods do not end.
    #[error(
        "the Deployment `{name}` still has pods after {} s; delete those on lost nodes with --force",
        timeout.as_secs()
    )]
    Pods {
        /// The name of the Deployment.
        name: String,
        /// The time limit.
        timeout: Duration,
    },
    /// The Deployment cannot be scaled, or objects cannot be read.
    #[error("cannot {action}")]
    Api {
        /// The failed request: the action and the object.
        action: String,
        /// The error of the API server.
        source: Box<kube::Error>,
    },
}

/// Removes our finalizers and the virtual nodes of this installation if `options.apply` is set, otherwise lists them. Those of handlers
/// that are not enabled are included, because these handlers may have been enabled before. In both cases, lists the owners of the resources
/// that stay in external systems.
///
/// # Errors
///
/// A controller holds a Lease, its Deployment cannot be scaled or keeps its pods, or objects cannot be read. A finalizer that cannot be
/// removed is in the result.
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
        ApiResource::erase::<CiscoDevice>(&()),
    ] {
        objects.extend(remove_finalizers(&client, &resource, options.apply).await?);
    }
    objects.extend(delete_nodes(&client, cluster.id(), options.apply).await?);
    // Last, because external systems may be slow or gone.
    let mut outside = CleanedUp::default();
    let listed = list_outside(registry, configuration, client, cluster, &mut outside);
    if timeout(LIST_TIMEOUT, listed).await.is_err() {
        outside.unknown.push(format!("no answer within {} s", LIST_TIMEOUT.as_secs()));
    }
    let CleanedUp { owners, pooled, unknown } = outside;
    Ok(Uninstalled { objects, outside: owners, pooled, unknown })
}

/// Returns `true` if a finalizer is one of this program.
fn is_ours(finalizer: &str) -> bool {
    finalizer.starts_with(FINALIZER_PREFIX) || finalizer == app_hosting::FINALIZER
}

/// Adds the owners of external resources of this cluster to `result`, as the ownership marks name them. If a handler cannot list them,
/// the reason is added to `result` instead, and `uninstall` does not fail.
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

/// Returns `true` if the API server responded that the object or the kind does not exist (404).
fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
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
    use crate::config::{self, FileSchema};

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
