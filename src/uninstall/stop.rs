//! Stops the controller.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use staffetta_handler::HANDLER_LABEL;
use staffetta_virtual_node::CLUSTER_LABEL;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::{UninstallError, UninstallOptions, answer, is_missing, read_error};
use crate::config::Configuration;

/// The interval at which the Leases are read while the controller stops.
const POLL: Duration = Duration::from_secs(1);
/// The namespace of the Leases of nodes.
const NODE_LEASES: &str = "kube-node-lease";

/// Scales the Deployment of the options to zero, and waits until no replica holds the Lease of the leader or of a virtual node of the
/// installation `cluster_id`.
pub(super) async fn stop(
    configuration: &Configuration,
    client: &Client,
    cluster_id: &str,
    options: &UninstallOptions,
) -> Result<(), UninstallError> {
    let election = &configuration.leader_election;
    let namespace = election.namespace.as_deref().unwrap_or_else(|| client.default_namespace());
    if let Some(name) = &options.stop {
        let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
        let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
        match answer(deployments.patch_scale(name, &PatchParams::default(), &none)).await {
            Ok(_) => info!(deployment = %name, "scaled to 0; waiting until no replica holds a Lease"),
            Err(error) if is_missing(&error) => {}
            Err(source) => return Err(UninstallError::Stop { name: name.clone(), source: source.into() }),
        }
    }
    let leases = Api::<Lease>::namespaced(client.clone(), namespace);
    let of_nodes = Api::<Lease>::namespaced(client.clone(), NODE_LEASES);
    let marked = ListParams::default().labels(&format!("{HANDLER_LABEL},{CLUSTER_LABEL}={cluster_id}"));
    let (began, mut seen, mut was_free) = (Instant::now(), SeenLeases::default(), false);
    loop {
        let leader = answer(leases.get_opt(&election.lease_name)).await;
        let leader = leader.map_err(|error| read_error("the Lease", error))?;
        let nodes = answer(of_nodes.list(&marked)).await;
        let nodes = nodes.map_err(|error| read_error("the Leases of virtual nodes", error))?.items;
        let has_nodes = !nodes.is_empty();
        let held = leader.into_iter().chain(nodes).filter_map(|lease| seen.holder(lease));
        // All of them are read, because each one's renewals count from when it was seen first.
        let held = held.max_by_key(|(_, renewals)| *renewals);
        let Some((holder, renewals)) = held else {
            // The Lease of a node that one replica gave up may be taken by another one, which has yet to stop.
            if was_free || !has_nodes {
                return Ok(());
            }
            was_free = true;
            sleep(POLL).await;
            continue;
        };
        was_free = false;
        // The first one is the observation of an earlier renewal.
        if options.stop.is_none() && renewals > 1 || began.elapsed() > options.timeout {
            return Err(UninstallError::Running(holder));
        }
        sleep(POLL).await;
    }
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
    use super::*;

    fn lease(holder: &str, renewed: &str) -> Lease {
        let spec = json!({ "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 40 });
        serde_json::from_value(json!({ "metadata": { "uid": "u1" }, "spec": spec })).unwrap()
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
