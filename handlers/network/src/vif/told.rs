//! What a pool of VIFs is told of the cluster: which pods show which VIFs, which nodes there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use staffetta_driver::{Life, NodeFacts, Owner, PoolLedger, Vif, VifPoolDriver};
use staffetta_handler::{Event, Index};

use super::FINALIZER;
use super::decide::annotation;
use crate::os_vif::PodState;

/// The label of a node that names the VIF driver of its pods.
const POD_VIF: &str = "pod_vif";

/// Tells the pool which pods show which VIFs. It keeps nothing itself.
pub(super) struct ShownVifs {
    pub(super) pool: Arc<dyn VifPoolDriver>,
    /// Whether the pool knows what all pods show.
    pub(super) begun: Arc<AtomicBool>,
}

impl Index<Pod> for ShownVifs {
    fn apply(&self, event: &Event<Pod>) {
        let (Event::Added(pod) | Event::Modified(pod), Some(ledger)) = (event, self.pool.ledger()) else {
            return;
        };
        // Of a pod that is over, the VIFs are given back or will be, and an event may show them after that. What a predecessor
        // had still to give back is told before the pool begins: there is our finalizer then.
        if Life::of(pod).has_network() || !self.begun.load(Ordering::Acquire) && is_ours(pod) {
            tell(ledger, pod);
        }
    }
}

fn is_ours(pod: &Pod) -> bool {
    pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

fn tell(ledger: &dyn PoolLedger, pod: &Pod) {
    let Some(text) = annotation(pod) else { return };
    // What cannot be read is told by the handler, at the pod.
    if let Ok(state) = PodState::read(text) {
        let vifs: Vec<Vif> = state.vifs().cloned().collect();
        ledger.shows(&Owner::of(&pod.metadata), &vifs);
    }
}

/// Tells the pool which nodes there are.
pub(super) struct ToldNodes(pub(super) Arc<dyn VifPoolDriver>);

impl Index<Node> for ToldNodes {
    fn apply(&self, event: &Event<Node>) {
        let Some(ledger) = self.0.ledger() else { return };
        match event {
            Event::Added(node) | Event::Modified(node) => ledger.node(&node.name_any(), Some(&facts(node))),
            Event::Deleted(tombstone) => ledger.node(tombstone.subject().name, None),
        }
    }
}

fn facts(node: &Node) -> NodeFacts {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    NodeFacts {
        addresses: addresses.into_iter().flatten().map(|address| address.address.clone()).collect(),
        pod_vif: node.labels().get(POD_VIF).cloned(),
    }
}

/// Whether the pod shows only active VIFs, so that nothing is to be done for it as long as it lives.
pub(super) fn is_settled(pod: &Pod) -> bool {
    let lives = matches!(Life::of(pod), Life::Starting | Life::Started);
    let state = annotation(pod).filter(|_| lives).map(PodState::read);
    state.is_some_and(|state| state.is_ok_and(|state| state.vifs().all(|vif| vif.active)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn of_a_node_its_addresses_and_its_label_are_kept() {
        let node = json!({ "metadata": { "name": "n1", "labels": { "pod_vif": "nested-vlan", "a": "b" } },
            "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }, { "type": "Hostname", "address": "n1" }] } });
        let expected = NodeFacts {
            addresses: vec!["192.0.2.1".into(), "n1".into()],
            pod_vif: Some("nested-vlan".into()),
        };
        assert_eq!(facts(&serde_json::from_value(node).unwrap()), expected);
        assert_eq!(facts(&Node::default()), NodeFacts::default());
    }
}
