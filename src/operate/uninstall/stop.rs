//! Ensures that the controller has stopped: scales its Deployment to 0 with `--stop`, and checks the Leases or pods of its replicas.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::ScaleStatus;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use staffetta_handler::{CLUSTER_LABEL, HANDLER_LABEL};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{UninstallError, UninstallOptions, api_error};
use crate::base::config::Configuration;
use crate::base::connect::{answer, is_missing};

/// The interval at which the Leases, or the pods of the Deployment, are read while the controller stops.
const POLL: Duration = Duration::from_secs(1);
/// The namespace of the Leases of nodes.
const NODE_LEASES: &str = "kube-node-lease";

/// Scales the Deployment `options.stop`, if it is given, to zero, and waits until no replica holds the Lease of the leader or of a virtual
/// node of the installation `cluster_id`. Without a leader election, the Deployment must be given, and its pods must have ended, too. Fails
/// after `options.timeout` or, if no Deployment is given, as soon as a Lease is seen to be renewed.
pub(super) async fn stop(
    configuration: &Configuration,
    client: &Client,
    cluster_id: &str,
    options: &UninstallOptions,
) -> Result<(), UninstallError> {
    let (election, began) = (&configuration.leader_election, Instant::now());
    let namespace = election.namespace.as_deref().unwrap_or_else(|| client.default_namespace());
    match &options.stop {
        Some(name) => match scale_down(client, namespace, name).await {
            Ok(_) => info!(deployment = %name, "scaled to 0; waiting until it has stopped"),
            Err(UninstallError::Api { source, .. }) if election.enabled && is_missing(&source) => {}
            Err(error) => return Err(error),
        },
        None if election.enabled => {}
        None => return Err(UninstallError::Unelected),
    }
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let of_nodes = Api::<Lease>::namespaced(client.clone(), NODE_LEASES);
    let marked = ListParams::default().labels(&format!("{HANDLER_LABEL},{CLUSTER_LABEL}={cluster_id}"));
    let (mut seen, mut was_free) = (SeenLeases::default(), false);
    let limit = options.timeout;
    loop {
        let late = began.elapsed() > Duration::from(limit);
        // Without an election, no Lease shows if a replica still runs.
        let deployment = options.stop.as_ref().filter(|_| !election.enabled);
        if let Some(name) = deployment
            && has_pods_after_scale_down(client, namespace, name).await?
        {
            if late {
                let text = format!(
                    "the Deployment `{name}` still has pods after {limit}; delete those on lost nodes with --force"
                );
                return Err(UninstallError::StillRunning(text));
            }
            sleep(POLL).await;
            continue;
        }
        let leader = answer(leases.get_opt(&election.lease_name)).await;
        let leader = leader.map_err(|error| api_error("read the Lease", error))?;
        let nodes = answer(of_nodes.list(&marked)).await;
        let nodes = nodes.map_err(|error| api_error("read the Leases of virtual nodes", error))?.items;
        let has_nodes = !nodes.is_empty();
        let held = leader.into_iter().chain(nodes).filter_map(|lease| seen.holder(lease));
        // All of them are read, because each one's renewals count from when it was seen first.
        match (held.max_by_key(|(_, renewals)| *renewals), &options.stop) {
            (None, _) if was_free || !has_nodes => return Ok(()),
            // The Lease of a node that one replica gave up may be taken by another one, which has yet to stop.
            (None, _) => was_free = true,
            // The first one is the observation of an earlier renewal.
            (Some((holder, renewals)), None) if late || renewals > 1 => {
                return Err(UninstallError::Running(holder));
            }
            (Some((holder, _)), Some(name)) if late => {
                let text = format!(
                    "a controller still runs ({holder}) after {limit}: check that it belongs to the Deployment `{name}`, or raise --timeout"
                );
                return Err(UninstallError::StillRunning(text));
            }
            (Some(_), _) => was_free = false,
        }
        sleep(POLL).await;
    }
}

/// Scales a Deployment to zero, and returns the status of its scale: the number of its replicas, and the label selector of its pods. Fails
/// if the Deployment does not exist or cannot be scaled.
async fn scale_down(client: &Client, namespace: &str, name: &str) -> Result<ScaleStatus, UninstallError> {
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    let scale = answer(deployments.patch_scale(name, &PatchParams::default(), &none)).await;
    let scale = scale.map_err(|error| api_error(format!("scale the Deployment `{name}` to 0"), error))?;
    Ok(scale.status.unwrap_or_default())
}

/// Scales a Deployment to zero, and returns `true` if it still has a replica, or a pod that has not ended: a pod that is being deleted is
/// no replica any more, but may still run. Fails if the Deployment cannot be scaled, or its pods cannot be listed.
async fn has_pods_after_scale_down(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<bool, UninstallError> {
    let ScaleStatus { replicas, selector } = scale_down(client, namespace, name).await?;
    let alive = "status.phase!=Succeeded,status.phase!=Failed";
    let alive = ListParams::default().labels(&selector.unwrap_or_default()).fields(alive).limit(1);
    let pods = answer(Api::<Pod>::namespaced(client.clone(), namespace).list_metadata(&alive)).await;
    let pods = pods.map_err(|error| api_error("read the pods of the Deployment", error))?;
    Ok(replicas > 0 || !pods.items.is_empty())
}

/// The observed Leases, by UID. Their timestamps come from other clocks and are only compared for equality: a holder is alive as long as it
/// renews its Lease.
#[derive(Default)]
struct SeenLeases(HashMap<Option<String>, SeenLease>);

/// The last observed renewal of a Lease: its timestamp, the time at which this process first observed it, and the number of renewals
/// observed so far.
struct SeenLease {
    renewed: Option<MicroTime>,
    since: Instant,
    renewals: usize,
}

impl SeenLeases {
    /// Returns the holder of a Lease and the number of renewals observed so far; `None` if the Lease has no holder, or was not renewed for
    /// its duration.
    fn holder(&mut self, lease: Lease) -> Option<(String, usize)> {
        let uid = lease.uid();
        let LeaseSpec { holder_identity, renew_time, lease_duration_seconds, .. } = lease.spec?;
        let holder = holder_identity.filter(|holder| !holder.is_empty())?;
        let now = Instant::now();
        let seen = self.0.entry(uid).or_insert(SeenLease { renewed: None, since: now, renewals: 0 });
        if seen.renewals == 0 || seen.renewed != renew_time {
            *seen = SeenLease { renewed: renew_time, since: now, renewals: seen.renewals + 1 };
        }
        let duration = u64::try_from(lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
        (seen.since.elapsed() <= Duration::from_secs(duration)).then_some((holder, seen.renewals))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;
    use staffetta_handler::Registry;
    use tower::service_fn;

    use super::*;
    use crate::base::config::{self, FileSchema, TimeSpan};

    fn lease(holder: &str, renewed: &str) -> Lease {
        let spec = json!({ "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 40 });
        serde_json::from_value(json!({ "metadata": { "uid": "u1" }, "spec": spec })).unwrap()
    }

    /// The options for an installation with or without a leader election, and a client of an API server whose Lease has the holder
    /// `replica-2`, and whose Deployment `web` loses its last pod at `gone`.
    fn installation(election: bool, gone: Instant) -> (Configuration, Client) {
        let mut registry = Registry::default();
        config::register(&mut registry);
        let schema = FileSchema::assemble(&registry).unwrap();
        let variable = ("STAFFETTA_LEADER_ELECTION__ENABLED".into(), election.to_string().into());
        let answer = move |request: Request<Body>| async move {
            let path = request.uri().path();
            let document = if path.ends_with("/web/scale") {
                json!({ "metadata": {}, "status": { "replicas": 0, "selector": "app=web" } })
            } else if path.ends_with("/scale") {
                json!({ "metadata": {}, "status": "Failure", "reason": "NotFound", "code": 404 })
            } else if path.ends_with("/pods") {
                let pods = if Instant::now() < gone { json!([{ "metadata": {} }]) } else { json!([]) };
                json!({ "metadata": {}, "items": pods })
            } else if election && !path.ends_with("/leases") {
                json!(lease("replica-2", "2026-01-01T00:00:00.000000Z"))
            } else {
                json!({ "metadata": {}, "items": [] })
            };
            let status = if document["code"].is_null() { 200 } else { 404 };
            let response = Response::builder().status(status);
            Ok::<_, Infallible>(response.body(Body::from(document.to_string().into_bytes())).unwrap())
        };
        let client = Client::new(service_fn(move |request| Box::pin(answer(request))), "default");
        (Configuration::load(&schema, None, [variable]).unwrap(), client)
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_does_not_stop_is_named_with_the_deployment_that_was_scaled() {
        let (configuration, client) = installation(true, Instant::now());
        for name in ["web", "wbe"] {
            let timeout = TimeSpan::from_secs(5);
            let options = UninstallOptions { apply: true, stop: Some(name.to_owned()), timeout };
            let error = stop(&configuration, &client, "c", &options).await.unwrap_err().to_string();
            let expected = format!(
                "a controller still runs (replica-2) after 5s: check that it belongs to the Deployment `{name}`"
            );
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_election_the_deployment_is_required_and_its_pods_are_waited_for() {
        let began = Instant::now();
        let (configuration, client) = installation(false, began + Duration::from_secs(30));
        let stopped = async |deployment: Option<&str>, timeout| {
            let options = UninstallOptions {
                apply: true,
                stop: deployment.map(str::to_owned),
                timeout: TimeSpan::from_secs(timeout),
            };
            stop(&configuration, &client, "c", &options).await
        };
        assert!(matches!(stopped(None, 60).await, Err(UninstallError::Unelected)));
        let error = stopped(Some("web"), 5).await.unwrap_err().to_string();
        assert_eq!(
            error,
            "the Deployment `web` still has pods after 5s; delete those on lost nodes with --force"
        );
        stopped(Some("web"), 60).await.unwrap();
        assert_eq!(began.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_has_a_holder_until_it_is_given_up_or_not_renewed_for_its_duration() {
        let (mut seen, [first, second]) =
            (SeenLeases::default(), ["2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:10.000000Z"]);
        let held = |renewals| Some(("replica-2".to_owned(), renewals));
        assert_eq!(seen.holder(lease("replica-2", first)), held(1));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(seen.holder(lease("replica-2", first)), held(1));
        assert_eq!(seen.holder(lease("replica-2", second)), held(2));
        assert_eq!(seen.holder(lease("", second)), None);
        tokio::time::advance(Duration::from_secs(41)).await;
        assert_eq!(seen.holder(lease("replica-2", second)), None);
    }
}
