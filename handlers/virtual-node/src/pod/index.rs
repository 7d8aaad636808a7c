//! The pods and nodes of the cluster, as far as virtual nodes are concerned.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{Node, Pod};
use staffetta_driver::{Owner, Uid};
use staffetta_handler::{Event, Index, Message};

use crate::node::{Keeper, Label, has_keeper, is_real};

/// The newest state of each pod that is on a virtual node, or on a node that is not known yet, and of each virtual node.
///
/// Pods on nodes that have a kubelet are not kept, however many there are.
#[derive(Default)]
pub(crate) struct ClusterIndex(Mutex<Cluster>);

#[derive(Default)]
struct Cluster {
    pods: HashMap<String, Arc<Pod>>,
    on_node: HashMap<String, HashSet<String>>,
    virtual_nodes: HashMap<String, Arc<Node>>,
    real_nodes: HashSet<String>,
    /// What the nodes have of an agent that kept such machines before.
    predecessor: Option<Label>,
}

impl ClusterIndex {
    /// One that knows the nodes of this agent for virtual ones too.
    pub(crate) fn after(predecessor: Option<Label>) -> Self {
        Self(Mutex::new(Cluster { predecessor, ..Cluster::default() }))
    }

    /// The pod of that UID.
    pub(crate) fn pod(&self, uid: &Uid) -> Option<Arc<Pod>> {
        self.cluster().pods.get(uid.as_str()).map(Arc::clone)
    }

    /// Whether there is a pod of that UID.
    pub(crate) fn knows(&self, uid: &str) -> bool {
        self.cluster().pods.contains_key(uid)
    }

    /// The pods on a node.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        let cluster = self.cluster();
        let uids = cluster.on_node.get(node).into_iter().flatten();
        uids.filter_map(|uid| cluster.pods.get(uid).map(Arc::clone)).collect()
    }

    /// Whose the pods on a node are.
    pub(crate) fn owners_on(&self, node: &str) -> Vec<Owner> {
        self.pods_on(node).iter().map(|pod| Owner::of(&pod.metadata)).collect()
    }

    /// The object of a virtual node.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.cluster().virtual_nodes.get(name).map(Arc::clone)
    }

    /// Whether a node has a kubelet.
    pub(crate) fn is_real(&self, name: &str) -> bool {
        self.cluster().real_nodes.contains(name)
    }

    /// The names of the nodes that are kept by `keeper`.
    pub(crate) fn nodes_of(&self, keeper: Keeper<'_>) -> Vec<String> {
        let cluster = self.cluster();
        let ours = |node: &Arc<Node>| has_keeper(node, keeper);
        let nodes = cluster.virtual_nodes.iter().filter(|(_, node)| ours(node));
        nodes.map(|(name, _)| name.clone()).collect()
    }

    fn cluster(&self) -> MutexGuard<'_, Cluster> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cluster {
    fn keep(&mut self, pod: &Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        if node.is_empty() || self.real_nodes.contains(&node) {
            return;
        }
        self.on_node.entry(node).or_default().insert(uid.clone());
        self.pods.insert(uid, Arc::clone(pod));
    }

    fn drop_pod(&mut self, uid: &str) {
        let Some(pod) = self.pods.remove(uid) else { return };
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        if let Some(uids) = self.on_node.get_mut(node) {
            uids.remove(uid);
            if uids.is_empty() {
                self.on_node.remove(node);
            }
        }
    }

    fn keep_node(&mut self, node: &Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        if is_real(node, self.predecessor) {
            for uid in self.on_node.remove(&name).into_iter().flatten() {
                self.pods.remove(&uid);
            }
            self.virtual_nodes.remove(&name);
            self.real_nodes.insert(name);
        } else {
            self.real_nodes.remove(&name);
            self.virtual_nodes.insert(name, Arc::clone(node));
        }
    }
}

impl Index<Pod> for ClusterIndex {
    fn apply(&self, event: &Event<Pod>) {
        match event {
            Event::Added(pod) | Event::Modified(pod) => self.cluster().keep(pod),
            Event::Deleted(_) => self.cluster().drop_pod(event.uid()),
        }
    }
}

impl Index<Node> for ClusterIndex {
    fn apply(&self, event: &Event<Node>) {
        match event {
            Event::Added(node) | Event::Modified(node) => self.cluster().keep_node(node),
            Event::Deleted(tombstone) => {
                let name = tombstone.subject().name.to_owned();
                let mut cluster = self.cluster();
                cluster.virtual_nodes.remove(&name);
                cluster.real_nodes.remove(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use staffetta_handler::Tombstone;

    use super::*;

    fn node(name: &str, labels: &serde_json::Value) -> Event<Node> {
        let node = json!({ "metadata": { "name": name, "uid": name, "labels": labels } });
        Event::Added(Arc::new(serde_json::from_value(node).unwrap()))
    }

    fn pod(uid: &str, node: &str) -> Event<Pod> {
        let pod = json!({ "metadata": { "name": uid, "namespace": "default", "uid": uid },
            "spec": { "nodeName": node, "containers": [] } });
        Event::Added(Arc::new(serde_json::from_value(pod).unwrap()))
    }

    #[test]
    fn pods_are_kept_but_for_those_of_nodes_that_have_a_kubelet_in_whatever_order_they_come() {
        let index = ClusterIndex::default();
        Index::<Pod>::apply(&index, &pod("early", "real"));
        Index::<Pod>::apply(&index, &pod("waits", "coming"));
        Index::<Node>::apply(&index, &node("real", &json!({})));
        Index::<Node>::apply(&index, &node("router", &json!({ "type": "virtual-kubelet" })));
        Index::<Pod>::apply(&index, &pod("late", "real"));
        Index::<Pod>::apply(&index, &pod("app", "router"));
        let kept = ["early", "waits", "late", "app"].map(|uid| index.knows(uid));
        assert_eq!(kept, [false, true, false, true]);
        assert!(index.is_real("real") && !index.is_real("router"));
    }

    #[test]
    fn a_pod_that_is_gone_is_forgotten_and_one_of_its_name_is_another() {
        let index = ClusterIndex::default();
        let (old, new) = (pod("u1", "router"), pod("u2", "router"));
        Index::<Pod>::apply(&index, &old);
        Index::<Pod>::apply(&index, &new);
        let Event::Added(object) = old else { unreachable!("it was added") };
        Index::<Pod>::apply(&index, &Event::Deleted(Tombstone::Last(object)));
        assert_eq!((index.knows("u1"), index.pods_on("router").len()), (false, 1));
    }
}
