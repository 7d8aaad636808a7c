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
    /// The names of nodes that had a kubelet and have none any more: their pods were not kept.
    overlooked: HashSet<String>,
    /// Of those whose pods are being read: the UIDs of pods that went meanwhile.
    gone: HashMap<String, HashSet<String>>,
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

    /// Begins to read the pods of a node that had a kubelet before. Answers whether that has to be done.
    pub(crate) fn begins_to_read(&self, node: &str) -> bool {
        let mut cluster = self.cluster();
        let overlooked = cluster.overlooked.contains(node);
        if overlooked {
            cluster.gone.insert(node.to_owned(), HashSet::new());
        }
        overlooked
    }

    /// Takes in the pods of that node, as they were read. What events told meanwhile is newer.
    pub(crate) fn has_read(&self, node: &str, pods: Vec<Pod>) {
        let mut cluster = self.cluster();
        let gone = cluster.gone.remove(node).unwrap_or_default();
        cluster.overlooked.remove(node);
        for pod in pods {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            if !gone.contains(uid) && !cluster.pods.contains_key(uid) {
                cluster.keep(&Arc::new(pod));
            }
        }
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
        for gone in self.gone.values_mut() {
            gone.insert(uid.to_owned());
        }
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
            self.overlooked.remove(&name);
            self.real_nodes.insert(name);
        } else {
            self.is_real_no_more(&name);
            self.virtual_nodes.insert(name, Arc::clone(node));
        }
    }

    fn is_real_no_more(&mut self, name: &str) {
        self.overlooked.extend(self.real_nodes.take(name));
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
                cluster.is_real_no_more(&name);
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
    fn the_pods_of_a_node_that_has_no_kubelet_any_more_are_read_and_events_are_newer() {
        let index = ClusterIndex::default();
        let object = |uid: &str| {
            let Event::Added(pod) = pod(uid, "r1") else { unreachable!("it was added") };
            pod
        };
        Index::<Node>::apply(&index, &node("r1", &json!({})));
        for uid in ["stays", "changes", "goes"] {
            Index::<Pod>::apply(&index, &pod(uid, "r1"));
        }
        assert!(!index.begins_to_read("r1"));
        Index::<Node>::apply(&index, &node("r1", &json!({ "type": "virtual-kubelet" })));
        assert!(index.begins_to_read("r1"));
        let read = ["stays", "changes", "goes"].map(|uid| Pod::clone(&object(uid)));
        let changed = object("changes");
        Index::<Pod>::apply(&index, &Event::Modified(Arc::clone(&changed)));
        Index::<Pod>::apply(&index, &Event::Deleted(Tombstone::Last(object("goes"))));
        index.has_read("r1", read.into());
        let kept = ["stays", "changes", "goes"].map(|uid| index.knows(uid));
        assert_eq!((kept, index.begins_to_read("r1")), ([true, true, false], false));
        assert!(Arc::ptr_eq(&index.pod(&"changes".into()).unwrap(), &changed));
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
