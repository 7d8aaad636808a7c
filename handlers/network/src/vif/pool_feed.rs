//! Indexes that report the published VIFs of pods, and the nodes, to the VIF pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use staffetta_driver::{NodeInfo, PodLifecycle, Vif, VifPoolDriver};
use staffetta_handler::{Event, Index};

use super::decide::{annotation, has_finalizer};
use crate::os_vif::PodState;

/// The label of a node that names the VIF driver of its pods, as in Kuryr.
const POD_VIF: &str = "pod_vif";

/// An index that reports the VIFs of pods, and the nodes, to the observer of the VIF pool, and starts the
/// pool when it knows all of them.
#[derive(Clone)]
pub(super) struct PoolFeed {
    /// The VIF pool. Nothing is reported if it has no observer.
    pub(super) pool: Arc<dyn VifPoolDriver>,
    /// `true` once all pods and nodes have been reported and the pool is started.
    pub(super) complete: Arc<AtomicBool>,
}

impl PoolFeed {
    /// Starts the VIF pool, which then knows all pods and nodes. Called with each event of the
    /// handler; the indexes are complete before the first event. Further calls do nothing.
    pub(super) fn finish(&self) {
        if !self.complete.swap(true, Ordering::AcqRel)
            && let Some(observer) = self.pool.observer()
        {
            observer.start();
        }
    }

    /// Returns `true` until [`finish`](Self::finish) is called. The events of pods are queued until
    /// then. Returns `false` if the pool has no observer.
    pub(super) fn is_loading(&self) -> bool {
        self.pool.observer().is_some() && !self.complete.load(Ordering::Acquire)
    }
}

impl Index<Pod> for PoolFeed {
    fn apply(&self, event: &Event<Pod>) {
        let Some(observer) = self.pool.observer() else { return };
        let (Event::Added(pod) | Event::Modified(pod)) = event else {
            return observer.pod_ended(&event.uid().into());
        };
        let is_living = PodLifecycle::of(pod).has_network();
        if !is_living {
            observer.pod_ended(&event.uid().into());
        }
        // The VIFs of a pod that is over are released even if a late event still shows them. Only
        // those that a previous process left unreleased are reported; there is our finalizer then.
        if !(is_living || self.is_loading() && has_finalizer(pod)) {
            return;
        }
        let vifs: Option<Vec<Vif>> = match annotation(pod).map(PodState::read) {
            Some(Ok(state)) => Some(state.vifs().cloned().collect()),
            None if !has_finalizer(pod) => Some(Vec::new()),
            // The handler reports that, and writes the annotation again.
            None | Some(Err(_)) => None,
        };
        observer.pod_vifs(pod, vifs.as_deref());
    }
}

impl Index<Node> for PoolFeed {
    fn apply(&self, event: &Event<Node>) {
        let Some(observer) = self.pool.observer() else { return };
        match event {
            Event::Added(node) | Event::Modified(node) => {
                observer.node_changed(&node.name_any(), Some(&facts(node)));
            }
            Event::Deleted(tombstone) => observer.node_changed(tombstone.object_ref().name, None),
        }
    }
}

/// Returns the fields of a node that a VIF pool needs: its addresses, and the name of the VIF driver of its
/// pods.
fn facts(node: &Node) -> NodeInfo {
    let addresses = node.status.as_ref().and_then(|status| status.addresses.as_ref());
    NodeInfo {
        addresses: addresses.into_iter().flatten().map(|address| address.address.clone()).collect(),
        pod_vif: node.labels().get(POD_VIF).cloned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn node_facts_are_the_addresses_and_the_driver_label() {
        let node = json!({ "metadata": { "name": "n1", "labels": { "pod_vif": "nested-vlan", "a": "b" } },
            "status": { "addresses": [{ "type": "InternalIP", "address": "192.0.2.1" }, { "type": "Hostname", "address": "n1" }] } });
        let expected = NodeInfo {
            addresses: vec!["192.0.2.1".into(), "n1".into()],
            pod_vif: Some("nested-vlan".into()),
        };
        assert_eq!(facts(&serde_json::from_value(node).unwrap()), expected);
        assert_eq!(facts(&Node::default()), NodeInfo::default());
    }
}
