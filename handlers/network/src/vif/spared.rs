//! Nodes whose pods get no VIF here: another handler keeps them, and the machines behind them have networks of their own.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use staffetta_handler::{Event, HANDLER_LABEL, Index};

/// The names of the nodes that another handler keeps.
///
/// A name is kept when its node goes: the pods of such a node outlive it a while, and are not a real node's all at once.
#[derive(Default)]
pub(super) struct SparedNodes(Mutex<HashSet<String>>);

impl SparedNodes {
    /// Whether the pod has a node that another handler keeps.
    pub(super) fn have(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| self.names().contains(node))
    }

    fn names(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index<Node> for SparedNodes {
    fn apply(&self, event: &Event<Node>) {
        let (Event::Added(node) | Event::Modified(node)) = event else { return };
        let name = node.name_any();
        if node.labels().contains_key(HANDLER_LABEL) {
            self.names().insert(name);
        } else {
            self.names().remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use staffetta_handler::Tombstone;

    use super::*;

    #[test]
    fn a_node_is_spared_by_its_label_until_another_one_has_its_name() {
        let spared = SparedNodes::default();
        let node = |labels: &serde_json::Value| -> Arc<Node> {
            let node = json!({ "metadata": { "name": "edge-1", "uid": "u", "labels": labels } });
            Arc::new(serde_json::from_value(node).unwrap())
        };
        let pod =
            json!({ "metadata": { "name": "web" }, "spec": { "nodeName": "edge-1", "containers": [] } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert!(!spared.have(&pod) && !spared.have(&Pod::default()));
        let virtual_node = node(&json!({ HANDLER_LABEL: "app_hosting" }));
        spared.apply(&Event::Added(Arc::clone(&virtual_node)));
        assert!(spared.have(&pod));
        spared.apply(&Event::Deleted(Tombstone::Last(virtual_node)));
        assert!(spared.have(&pod), "its pods outlive it");
        spared.apply(&Event::Added(node(&json!({}))));
        assert!(!spared.have(&pod));
    }
}
