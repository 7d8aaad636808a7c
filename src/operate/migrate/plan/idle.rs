//! The plan for the ports that Kuryr's pools kept ready for new pods. No pod uses them, so that they can be
//! deleted.

use std::collections::{BTreeSet, HashSet};

use kube::ResourceExt;
use staffetta_driver::{ExistingAttachment, ExistingMark, ExistingPort, SubnetId, UnusedResource};
use staffetta_network::os_vif::KURYR_VIF;

use super::super::read::ClusterState;
use super::{MigrationStep, Obstacle, PlannedTakeover, namespaces};

/// Plans the deletion of the ports that Kuryr's pools kept ready if `delete` is `true`; otherwise lists them with an [`Obstacle::Later`].
pub(super) fn plan(state: &ClusterState, delete: bool) -> Vec<PlannedTakeover> {
    let recorded: Vec<_> =
        state.kuryr.ports.values().map(|port| port.data["status"]["vifs"].to_string()).collect();
    let annotations = state.pods.iter().filter_map(|pod| pod.annotations().get(KURYR_VIF));
    let named: HashSet<&str> = annotations.chain(&recorded).flat_map(|text| ids(text)).collect();
    let subnets = pod_subnets(state);
    let is_idle = |port: &&ExistingPort| is_idle(state, port, &subnets) && !named.contains(port.id.as_str());
    let planned = state.ports.iter().filter(is_idle).map(|port| PlannedTakeover {
        kind: "Port",
        key: (String::new(), port.id.to_string()),
        steps: if delete {
            Ok(vec![MigrationStep::Delete(UnusedResource::Port(port.id.clone()))])
        } else {
            let text = "no pod uses this port of Kuryr's pools; --delete-idle-ports deletes it";
            Err(Obstacle::Later(text.to_owned()))
        },
    });
    planned.collect()
}

/// Returns all words of `text` that may be the ids of ports. A port that is named by mistake or in a malformed text is included, so it
/// is not deleted.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '-')
}

/// Returns the subnets in which Kuryr creates the ports of pods: that of the configuration, and those of the networks of namespaces.
fn pod_subnets(state: &ClusterState) -> BTreeSet<&SubnetId> {
    let names: BTreeSet<_> = state.namespaces.iter().flat_map(namespaces::names).collect();
    let networks = state.networks.iter().filter(|network| names.contains(&network.name));
    networks.flat_map(|network| &network.subnets).chain(&state.pod_subnet).collect()
}

/// Returns `true` for a port on a node of this cluster that has neither an ownership mark nor a pod. Ports on other nodes may belong to
/// another cluster in the same project. An active port is in use, except for a subport of a trunk, which is active without a pod, too.
/// Administrators may create other subports, in subnets without pods.
fn is_idle(state: &ClusterState, port: &ExistingPort, pod_subnets: &BTreeSet<&SubnetId>) -> bool {
    let is_on_node = match &port.attachment {
        ExistingAttachment::Host(host) => !port.active && state.nodes.contains(host),
        ExistingAttachment::Trunk { node_ips, .. } => {
            node_ips.iter().any(|ip| state.node_ips.contains(ip))
                && port.subnets.iter().any(|subnet| pod_subnets.contains(subnet))
        }
        ExistingAttachment::AllowedPair { .. } | ExistingAttachment::Nothing => false,
    };
    port.mark == ExistingMark::Unmarked && port.pod.is_none() && is_on_node
}
