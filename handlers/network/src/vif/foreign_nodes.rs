//! Virtual nodes. Their pods get no VIF, because the devices behind virtual nodes have networks of
//! their own.

use std::time::Duration;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use staffetta_handler::{Event, HANDLER_LABEL, Index};
use tokio::time::Instant;

/// The label that nodes of virtual kubelets have, as key and value.
const VIRTUAL_KUBELET: (&str, &str) = ("type", "virtual-kubelet");

/// The minimum time for which the name of a deleted virtual node is kept.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// The names of the virtual nodes: nodes with the label [`HANDLER_LABEL`], which another handler
/// manages, and nodes of virtual kubelets.
///
/// A name stays for at least a day after its node is deleted, because pods outlive their node for a while, unless an ordinary node
/// takes the name. The value is the time of the deletion; `None` if the node exists.
#[derive(Default)]
pub(super) struct ForeignNodes(DashMap<String, Option<Instant>>);

impl ForeignNodes {
    /// Returns `true` if the pod runs on a virtual node.
    pub(super) fn contain_node_of(&self, pod: &Pod) -> bool {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        node.is_some_and(|node| self.0.contains_key(node))
    }
}

impl Index<Node> for ForeignNodes {
    fn apply(&self, event: &Event<Node>) {
        let (Event::Added(node) | Event::Modified(node)) = event else {
            self.0.retain(|_, deleted| deleted.is_none_or(|at| at.elapsed() < KEPT));
            if let Some(mut deleted) = self.0.get_mut(event.object_ref().name) {
                *deleted = Some(Instant::now());
            }
            return;
        };
        let name = node.name_any();
        let (key, value) = VIRTUAL_KUBELET;
        let of_virtual_kubelet = node.labels().get(key).is_some_and(|found| found == value);
        if of_virtual_kubelet || node.labels().contains_key(HANDLER_LABEL) {
            self.0.insert(name, None);
        } else {
            self.0.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use staffetta_handler::Tombstone;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_node_is_foreign_by_its_label_until_another_node_takes_its_name_or_it_is_gone_for_a_day() {
        let nodes = ForeignNodes::default();
        let node = |labels: &serde_json::Value| -> Arc<Node> {
            let node = json!({ "metadata": { "name": "edge-1", "uid": "u", "labels": labels } });
            Arc::new(serde_json::from_value(node).unwrap())
        };
        let pod =
            json!({ "metadata": { "name": "web" }, "spec": { "nodeName": "edge-1", "containers": [] } });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        assert!(!nodes.contain_node_of(&pod) && !nodes.contain_node_of(&Pod::default()));
        let virtual_node = node(&json!({ HANDLER_LABEL: "app_hosting" }));
        nodes.apply(&Event::Added(Arc::clone(&virtual_node)));
        assert!(nodes.contain_node_of(&pod));
        nodes.apply(&Event::Deleted(Tombstone::Last(virtual_node)));
        assert!(nodes.contain_node_of(&pod), "its pods outlive it");
        nodes.apply(&Event::Added(node(&json!({ "type": "edge" }))));
        assert!(!nodes.contain_node_of(&pod));
        nodes.apply(&Event::Added(node(&json!({ "type": "virtual-kubelet" }))));
        assert!(nodes.contain_node_of(&pod), "it belongs to a handler of somebody else");
        nodes.apply(&Event::Deleted(Tombstone::Last(node(&json!({})))));
        tokio::time::advance(KEPT).await;
        nodes.apply(&Event::Deleted(Tombstone::Last(Arc::default())));
        assert!(nodes.0.is_empty());
    }
}
