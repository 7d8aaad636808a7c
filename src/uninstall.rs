//! `staffetta uninstall`: takes the controller's finalizers off its objects, and lists what stays in external systems.
//!
//! Without a controller, an object with a finalizer of ours is never deleted. Pods keep their network: nothing is released outside. The
//! controller must have stopped, because it would add the finalizers again; its Lease says so.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service};
use kube::api::{DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams};
use kube::core::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use staffetta_handler::{DryRunPlan, HANDLER_LABEL, Registry, causes};
use staffetta_network::{lb, namespace, vif};
use staffetta_virtual_node::app_hosting::{self, CiscoDevice};
use staffetta_virtual_node::vnode;
use tokio::time::{Instant, sleep, timeout};
use tracing::info;

use crate::cleanup::{CleanupError, Leftover, clean_handler, drain_pool};
use crate::cluster::ClusterInfo;
use crate::config::Configuration;
use crate::controller::create_handlers;

/// The interval at which the Lease is read while the controller stops.
const POLL: Duration = Duration::from_secs(1);
/// The time limit of the lists of external systems.
const LIST_TIMEOUT: Duration = Duration::from_secs(120);
/// The number of objects in one response of a list.
const PAGE: u32 = 500;
/// The number of passes over the objects of a kind. A further one is needed when somebody else changed an object meanwhile.
const PASSES: usize = 5;

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
#[derive(Debug, Default)]
pub struct Uninstalled {
    /// The objects with a finalizer of ours, and the virtual nodes.
    pub objects: Vec<UninstalledObject>,
    /// The owners of resources that stay in external systems.
    pub outside: Vec<Leftover>,
    /// The number of VIFs that the pool keeps ready, which stay too.
    pub pooled: usize,
    /// The handlers whose external resources could not be listed, with the reason.
    pub unknown: Vec<String>,
}

/// An object in the result of `staffetta uninstall`.
#[derive(Debug)]
pub struct UninstalledObject {
    /// The kind of the object.
    pub kind: String,
    /// The namespace of the object; empty without one.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The change that was made or would be made, or the error, in words.
    pub result: String,
    /// `false` if it could not be done.
    pub is_ok: bool,
}

/// The reason why nothing was uninstalled.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// A controller holds the Lease.
    #[error(
        "a controller runs ({0}), and would add the finalizers again: scale its Deployment to 0 first, or pass --stop DEPLOYMENT"
    )]
    Running(String),
    /// The Deployment cannot be scaled.
    #[error("the Deployment `{name}` cannot be scaled to 0")]
    Stop {
        /// The name of the Deployment.
        name: String,
        /// The error of the API server.
        source: Box<kube::Error>,
    },
    /// Objects cannot be read.
    #[error("cannot read {what}")]
    Read {
        /// The kind of the objects.
        what: String,
        /// The error of the API server.
        source: Box<kube::Error>,
    },
}

/// Removes the finalizers of the enabled handlers and their virtual nodes if `options.apply` is set, otherwise lists them. Either way, it
/// lists the owners of what stays in external systems.
///
/// # Errors
///
/// The controller runs, or objects cannot be read. A finalizer that cannot be removed is in the result.
pub async fn uninstall(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    options: &UninstallOptions,
) -> Result<Uninstalled, UninstallError> {
    if options.apply {
        stop(configuration, &client, options).await?;
    }
    let mut result = Uninstalled::default();
    for handler in &configuration.kubernetes.enabled_handlers {
        let guarded = match handler.as_str() {
            "vif" => Some((ApiResource::erase::<Pod>(&()), vif::FINALIZER)),
            "lb" => Some((ApiResource::erase::<Service>(&()), lb::FINALIZER)),
            "namespace" => Some((ApiResource::erase::<Namespace>(&()), namespace::FINALIZER)),
            app_hosting::HANDLER => Some((ApiResource::erase::<CiscoDevice>(&()), app_hosting::FINALIZER)),
            _ => None,
        };
        if let Some((resource, finalizer)) = guarded {
            result.objects.extend(remove_finalizers(&client, &resource, finalizer, options.apply).await?);
        }
        if [app_hosting::HANDLER, vnode::HANDLER].contains(&handler.as_str()) {
            result.objects.extend(delete_nodes(&client, handler, options.apply).await?);
        }
    }
    // Last, because external systems may be slow or gone.
    let listed = list_outside(registry, configuration, client, &mut result);
    match timeout(LIST_TIMEOUT, listed).await {
        Ok(listed) => listed?,
        Err(_) => result.unknown.push(format!("no answer within {} s", LIST_TIMEOUT.as_secs())),
    }
    Ok(result)
}

/// Scales the Deployment of the options to zero, and waits until no controller holds the Lease.
async fn stop(
    configuration: &Configuration,
    client: &Client,
    options: &UninstallOptions,
) -> Result<(), UninstallError> {
    let election = &configuration.leader_election;
    let namespace = election.namespace.as_deref().unwrap_or_else(|| client.default_namespace());
    if let Some(name) = &options.stop {
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        match deployments.patch_scale(name, &PatchParams::default(), &none).await {
            Ok(_) => info!(deployment = %name, "scaled to 0; waiting until no replica leads"),
            Err(error) if is_missing(&error) => {}
            Err(source) => return Err(UninstallError::Stop { name: name.clone(), source: source.into() }),
        }
    }
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let read = async || {
        let lease = leases.get_opt(&election.lease_name).await;
        lease.map(|lease| lease.and_then(|lease| lease.spec)).map_err(|error| read_error("the Lease", error))
    };
    let began = Instant::now();
    let (mut seen, mut since, mut renewals) = (None, began, 0);
    while let Some(lease) = read().await? {
        let Some(holder) = lease.holder_identity.filter(|holder| !holder.is_empty()) else { break };
        // Its time is that of another clock. A Lease that is not renewed for its duration has no holder.
        if seen != lease.renew_time {
            (seen, since, renewals) = (lease.renew_time, Instant::now(), renewals + 1);
        }
        let seconds = lease.lease_duration_seconds.unwrap_or_default();
        let duration = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
        if since.elapsed() > duration {
            break;
        }
        let is_over = began.elapsed() > options.timeout;
        // The first one is the observation of an earlier renewal.
        if options.stop.is_none() && renewals > 1 || is_over {
            return Err(UninstallError::Running(holder));
        }
        sleep(POLL).await;
    }
    Ok(())
}

/// Lists the owners of external resources of this cluster, by their marks. A handler that cannot is no reason to keep its finalizers.
async fn list_outside(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    result: &mut Uninstalled,
) -> Result<(), UninstallError> {
    let cluster = ClusterInfo::read(configuration, &client).await;
    let cluster = cluster.map_err(|error| read_error("the API server", error))?;
    let registry = Arc::new(registry);
    let setup = cluster.setup(&registry, configuration, client).dry_run(DryRunPlan::default());
    let handlers = match create_handlers(&registry, &configuration.kubernetes.enabled_handlers, &setup) {
        Ok(handlers) => handlers,
        Err(error) => {
            result.unknown.push(causes(&error));
            return Ok(());
        }
    };
    let mut has_pods = false;
    for (handler, registration) in handlers {
        has_pods |= handler == "vif";
        match clean_handler(&handler, registration, configuration, false).await {
            Ok(listed) => result.outside.extend(listed),
            Err(error) => result.unknown.push(causes(&CleanupError::List { handler, error })),
        }
    }
    if has_pods {
        match drain_pool(&setup, false).await {
            Ok(pooled) => result.pooled = pooled,
            Err(error) => result.unknown.push(causes(&error)),
        }
    }
    Ok(())
}

/// Removes a finalizer from all objects of a kind.
async fn remove_finalizers(
    client: &Client,
    resource: &ApiResource,
    finalizer: &str,
    apply: bool,
) -> Result<Vec<UninstalledObject>, UninstallError> {
    let mut done = Vec::new();
    for pass in 1..=PASSES {
        let guarded = list(client, resource, &ListParams::default().limit(PAGE)).await?;
        let guarded =
            guarded.into_iter().filter(|object| object.finalizers().iter().any(|one| one == finalizer));
        let mut again = false;
        for object in guarded {
            let kept: Vec<_> = object.finalizers().iter().filter(|one| *one != finalizer).collect();
            let metadata = json!({ "uid": object.uid(), "resourceVersion": object.resource_version(), "finalizers": kept });
            let patch = Patch::Merge(json!({ "metadata": metadata }));
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, resource),
                None => Api::all_with(client.clone(), resource),
            };
            let written = if apply {
                let written = api.patch_metadata(&object.name_any(), &PatchParams::default(), &patch).await;
                written.map(drop)
            } else {
                Ok(())
            };
            match written {
                Err(kube::Error::Api(status)) if status.code == 409 && pass < PASSES => again = true,
                Err(error) if is_missing(&error) => {}
                written => done.push(outcome(&resource.kind, &object, written, finalizer, apply)),
            }
        }
        if !again {
            break;
        }
    }
    Ok(done)
}

/// Deletes the virtual nodes of a handler.
async fn delete_nodes(
    client: &Client,
    handler: &str,
    apply: bool,
) -> Result<Vec<UninstalledObject>, UninstallError> {
    let resource = ApiResource::erase::<Node>(&());
    let ours = ListParams::default().labels(&format!("{HANDLER_LABEL}={handler}")).limit(PAGE);
    let nodes = Api::<Node>::all(client.clone());
    let mut done = Vec::new();
    for node in list(client, &resource, &ours).await? {
        let deleted = if apply {
            let exactly = DeleteParams::default()
                .preconditions(kube::api::Preconditions { uid: node.uid(), resource_version: None });
            nodes.delete(&node.name_any(), &exactly).await.map(drop)
        } else {
            Ok(())
        };
        match deleted {
            Err(error) if is_missing(&error) => {}
            deleted => done.push(outcome("Node", &node, deleted, "its node", apply)),
        }
    }
    Ok(done)
}

/// Lists the metadata of all objects of a kind; none if the kind is not served.
async fn list(
    client: &Client,
    resource: &ApiResource,
    parameters: &ListParams,
) -> Result<Vec<PartialObjectMeta<DynamicObject>>, UninstallError> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let (mut objects, mut parameters) = (Vec::new(), parameters.clone());
    loop {
        let page = match api.list_metadata(&parameters).await {
            Ok(page) => page,
            Err(error) if is_missing(&error) => return Ok(objects),
            Err(error) => return Err(read_error(&resource.plural, error)),
        };
        objects.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

fn outcome(
    kind: &str,
    object: &PartialObjectMeta<DynamicObject>,
    result: Result<(), kube::Error>,
    what: &str,
    apply: bool,
) -> UninstalledObject {
    let (is_ok, result) = match result {
        Ok(()) if apply => (true, format!("{what} is removed")),
        Ok(()) => (true, format!("{what} would be removed")),
        Err(error) => (false, causes(&error)),
    };
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    UninstalledObject { kind: kind.to_owned(), namespace, name, result, is_ok }
}

fn is_missing(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn read_error(what: &str, error: kube::Error) -> UninstallError {
    UninstallError::Read { what: what.to_owned(), source: error.into() }
}
