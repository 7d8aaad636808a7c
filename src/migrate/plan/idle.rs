//! The plan for the ports that Kuryr's pools kept ready for new pods. No pod uses them, so that they can be
//! deleted.

use std::collections::BTreeSet;

use kube::ResourceExt;
use serde_json::Value;
use staffetta_driver::{ExistingAttachment, ExistingMark, ExistingPort, UnusedResource, VifId};
use staffetta_network::os_vif::{KURYR_VIF, PodState};

use super::super::read::ClusterState;
use super::{MigrationStep, Obstacle, PlannedTakeover};

/// Plans the deletion of the idle ports if `delete` is set, and lists them otherwise.
pub(super) fn plan(state: &ClusterState, delete: bool) -> Vec<PlannedTakeover> {
    let named = named(state);
    let idle = state.ports.iter().filter(|port| is_idle(state, port) && !named.contains(&port.id));
    let planned = idle.map(|port| PlannedTakeover {
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

/// Returns the ids of all ports that a pod or a `KuryrPort` names. A port that is named by mistake is included, so it is not deleted.
fn named(state: &ClusterState) -> BTreeSet<VifId> {
    let annotations = state.pods.iter().filter_map(|pod| pod.annotations().get(KURYR_VIF));
    let states = annotations.filter_map(|text| PodState::read(text).ok());
    let annotated = states.flat_map(|state| state.vifs().map(|vif| vif.id.clone()).collect::<Vec<_>>());
    let ports = state.kuryr.ports.values().filter_map(|port| port.data.pointer("/status/vifs")?.as_object());
    let vifs = ports.flat_map(|vifs| vifs.values());
    let id = |vif: &Value| vif.pointer("/vif/versioned_object.data/id")?.as_str().map(VifId::from);
    annotated.chain(vifs.filter_map(id)).collect()
}

/// Returns `true` for a port on a node of this cluster that has neither an ownership mark nor a pod. Ports on other nodes may belong to
/// another cluster in the same project. An active port is in use, except for a subport of a trunk, which is active without a pod, too.
fn is_idle(state: &ClusterState, port: &ExistingPort) -> bool {
    let is_on_node = match &port.attachment {
        ExistingAttachment::Host(host) => !port.active && state.nodes.contains(host),
        ExistingAttachment::Trunk { node_ips, .. } => node_ips.iter().any(|ip| state.node_ips.contains(ip)),
        ExistingAttachment::AllowedPair { .. } | ExistingAttachment::Nothing => false,
    };
    port.mark == ExistingMark::Unmarked && port.pod.is_none() && is_on_node
}
