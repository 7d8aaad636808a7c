//! An index of the pods and nodes of the cluster that are relevant to virtual nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use parking_lot::Mutex;
use staffetta_driver::{Owner, Uid};
use staffetta_handler::{Event, Index, Tombstone};
use tokio::time::Instant;

use crate::node::{Label, NodeOwner, is_real, names_owner};

/// The time for which the index remembers that a node of some name had a kubelet, if no virtual node has that name now. The
/// cluster deletes the pods of a removed node long before that.
const FORMER_KUBELET_RETENTION: Duration = Duration::from_secs(3600);

/// An index of the virtual nodes, and of the pods on nodes that are virtual or not known yet.
///
/// Pods on nodes with a kubelet are not stored, to save memory.
#[derive(Default)]
pub(crate) struct ClusterIndex(Mutex<Cluster>);

/// The content of a [`ClusterIndex`].
#[derive(Default)]
struct Cluster {
    /// The pods on nodes that are virtual or not known yet, by UID.
    pods: HashMap<String, Arc<Pod>>,
    /// The pods on each node, by the name of the node and the UID of the pod.
    on_node: HashMap<String, HashMap<String, Arc<Pod>>>,
    /// The Node objects of the virtual nodes, by name.
    virtual_nodes: HashMap<String, Arc<Node>>,
    /// The names of the nodes that have a kubelet.
    real_nodes: HashSet<String>,
    /// The names of nodes that had a kubelet before, with the time at which they lost it. Their pods are not in the
    /// index.
    overlooked: HashMap<String, Instant>,
    /// The UIDs of pods that were deleted during a read of the pods of a node, by the name of that node.
    gone: HashMap<String, HashSet<String>>,
    /// The UIDs of pods that the API server does not have any more, although no event has shown that yet.
    absent: HashSet<String>,
    /// The last states of pods whose deletion no watch reported, until the handler takes them.
    missed: HashMap<String, Arc<Pod>>,
    /// A label of the nodes of a previous controller: the handler takes over the nodes that have it. `None` if there is no such controller.
    predecessor: Option<Label>,
}

impl ClusterIndex {
    /// Creates an index that treats nodes with the label `predecessor` as virtual nodes.
    pub(crate) fn after(predecessor: Option<Label>) -> Self {
        Self(Mutex::new(Cluster { predecessor, ..Cluster::default() }))
    }

    /// Returns the pod with this UID; `None` if it is not in the index.
    pub(crate) fn pod(&self, uid: &Uid) -> Option<Arc<Pod>> {
        self.0.lock().pods.get(uid.as_str()).map(Arc::clone)
    }

    /// Returns `true` if the index contains a pod with this UID.
    pub(crate) fn knows(&self, uid: &str) -> bool {
        self.0.lock().pods.contains_key(uid)
    }

    /// Takes the last state of a pod whose deletion no watch reported; `None` if it was not in the index.
    pub(crate) fn take_missed(&self, uid: &str) -> Option<Arc<Pod>> {
        self.0.lock().missed.remove(uid)
    }

    /// Removes a pod from the index that the API server does not have any more. Events from before its deletion do not add it again.
    pub(crate) fn remove_absent(&self, uid: &Uid) {
        let mut cluster = self.0.lock();
        if cluster.drop_pod(uid.as_str()).is_some() {
            cluster.absent.insert(uid.as_str().to_owned());
        }
    }

    /// Returns the pods on a node; none if the node has a kubelet.
    pub(crate) fn pods_on(&self, node: &str) -> Vec<Arc<Pod>> {
        self.0.lock().on_node.get(node).into_iter().flat_map(HashMap::values).map(Arc::clone).collect()
    }

    /// Returns the namespace, name and UID of each pod on a node.
    pub(crate) fn owners_on(&self, node: &str) -> Vec<Owner> {
        self.pods_on(node).iter().map(|pod| Owner::of(&pod.metadata)).collect()
    }

    /// Returns the Node object of a virtual node; `None` if it does not exist, or the node has a kubelet.
    pub(crate) fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.0.lock().virtual_nodes.get(name).map(Arc::clone)
    }

    /// Returns `true` if the node has a kubelet.
    pub(crate) fn is_real(&self, name: &str) -> bool {
        self.0.lock().real_nodes.contains(name)
    }

    /// Prepares the index for a list of the pods of a node that had a kubelet before, which the caller reads from the API server: records
    /// deletions from now on. Returns `None` if the pods are in the index already.
    pub(crate) fn begins_to_read<'a>(&'a self, node: &'a str) -> Option<PodListing<'a>> {
        let mut cluster = self.0.lock();
        cluster.overlooked.contains_key(node).then(|| {
            cluster.gone.insert(node.to_owned(), HashSet::new());
            PodListing { index: self, node }
        })
    }

    /// Forgets nodes that lost their kubelet more than an hour ago, except virtual nodes and nodes for which `expected`
    /// returns `true`.
    pub(crate) fn expire(&self, expected: impl Fn(&str) -> bool) {
        let mut cluster = self.0.lock();
        let Cluster { overlooked, virtual_nodes, .. } = &mut *cluster;
        overlooked.retain(|name, since| {
            since.elapsed() < FORMER_KUBELET_RETENTION || virtual_nodes.contains_key(name) || expected(name)
        });
    }

    /// Returns the names of the virtual nodes that `node_owner` owns, without those for which `known` returns `true`.
    pub(crate) fn nodes_of(&self, node_owner: NodeOwner<'_>, known: impl Fn(&str) -> bool) -> Vec<String> {
        let cluster = self.0.lock();
        let nodes = cluster.virtual_nodes.iter().filter(|(name, _)| !known(name));
        nodes.filter(|(_, node)| names_owner(node, node_owner)).map(|(name, _)| name.clone()).collect()
    }
}

/// A read of the pods of a node that had a kubelet before. If it is dropped before [`ends`](Self::ends), the pods must
/// be read again.
pub(crate) struct PodListing<'a> {
    index: &'a ClusterIndex,
    node: &'a str,
}

impl PodListing<'_> {
    /// Adds `pods`, the result of the read, to the index. A pod with a watch event since the start of the read keeps the newer
    /// state of that event. Does nothing if the node has got a kubelet again meanwhile.
    pub(crate) fn ends(self, pods: Vec<Pod>) {
        let mut cluster = self.index.0.lock();
        // A node that has had a kubelet meanwhile has other pods.
        let Some(gone) = cluster.gone.remove(self.node) else { return };
        cluster.overlooked.remove(self.node);
        for pod in pods {
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            if !gone.contains(uid) && !cluster.pods.contains_key(uid) {
                cluster.keep(&pod);
            }
        }
    }
}

impl Drop for PodListing<'_> {
    fn drop(&mut self) {
        self.index.0.lock().gone.remove(self.node);
    }
}

impl Cluster {
    /// Keeps a copy of the pod, if its node is or may become virtual. A copy has no spare capacity, unlike a decoded object: it takes
    /// two thirds of the memory.
    fn keep(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        if node.is_empty() || self.real_nodes.contains(&node) || self.absent.contains(&uid) {
            return;
        }
        let pod = Arc::new(pod.clone());
        self.on_node.entry(node).or_default().insert(uid.clone(), Arc::clone(&pod));
        self.pods.insert(uid, pod);
    }

    /// Removes a deleted pod, and records its UID for each node whose pods are being listed, so that an older list does not add the pod
    /// again. Returns its last state; `None` if it was not in the index.
    fn drop_pod(&mut self, uid: &str) -> Option<Arc<Pod>> {
        for gone in self.gone.values_mut() {
            gone.insert(uid.to_owned());
        }
        let pod = self.pods.remove(uid)?;
        if let Some(pods) = self.on_node.get_mut(node_of(&pod)) {
            pods.remove(uid);
            if pods.is_empty() {
                self.on_node.remove(node_of(&pod));
            }
        }
        Some(pod)
    }

    /// Records a node as virtual or real. The pods of a real node are forgotten: they belong to its kubelet.
    fn keep_node(&mut self, node: &Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        if is_real(node, self.predecessor) {
            for uid in self.on_node.remove(&name).into_iter().flat_map(HashMap::into_keys) {
                self.pods.remove(&uid);
            }
            self.virtual_nodes.remove(&name);
            self.overlooked.remove(&name);
            self.gone.remove(&name);
            self.real_nodes.insert(name);
        } else {
            self.forget_kubelet(&name);
            self.virtual_nodes.insert(name, Arc::clone(node));
        }
    }

    /// Records that a node was deleted or became virtual. If it had a kubelet, the index does not contain its pods, which must be read.
    fn forget_kubelet(&mut self, name: &str) {
        self.overlooked.extend(self.real_nodes.take(name).map(|name| (name, Instant::now())));
    }
}

/// Returns the name of the node of a pod; empty if it has none yet.
pub(crate) fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

impl Index<Pod> for ClusterIndex {
    fn apply(&self, event: &Event<Pod>) {
        match event {
            Event::Added(pod) | Event::Modified(pod) => self.0.lock().keep(pod),
            Event::Deleted(tombstone) => {
                let mut cluster = self.0.lock();
                cluster.absent.remove(event.uid());
                let pod = cluster.drop_pod(event.uid());
                if let (Tombstone::Missed(_), Some(pod)) = (tombstone, pod) {
                    cluster.missed.insert(event.uid().to_owned(), pod);
                }
            }
        }
    }
}

impl Index<Node> for ClusterIndex {
    fn apply(&self, event: &Event<Node>) {
        match event {
            Event::Added(node) | Event::Modified(node) => self.0.lock().keep_node(node),
            Event::Deleted(tombstone) => {
                let name = tombstone.object_ref().name.to_owned();
                let mut cluster = self.0.lock();
                cluster.virtual_nodes.remove(&name);
                cluster.forget_kubelet(&name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
        assert!(index.begins_to_read("r1").is_none());
        Index::<Node>::apply(&index, &node("r1", &json!({ "type": "virtual-kubelet" })));
        let reading = index.begins_to_read("r1").unwrap();
        let read = ["stays", "changes", "goes"].map(|uid| Pod::clone(&object(uid)));
        let changed = object("changes");
        Index::<Pod>::apply(&index, &Event::Modified(Arc::clone(&changed)));
        Index::<Pod>::apply(&index, &Event::Deleted(Tombstone::Last(object("goes"))));
        reading.ends(read.into());
        let kept = ["stays", "changes", "goes"].map(|uid| index.knows(uid));
        assert_eq!((kept, index.begins_to_read("r1").is_none()), ([true, true, false], true));
        assert_eq!(index.pod(&"changes".into()).unwrap(), changed);
    }

    #[test]
    fn pods_that_could_not_be_read_are_read_again_and_nothing_is_noted_for_them_meanwhile() {
        let index = ClusterIndex::default();
        let (real, ours) = (node("r1", &json!({})), node("r1", &json!({ "type": "virtual-kubelet" })));
        Index::<Node>::apply(&index, &real);
        Index::<Node>::apply(&index, &ours);
        let noted = || index.0.lock().gone.len();
        drop(index.begins_to_read("r1"));
        assert_eq!(noted(), 0);
        let reading = index.begins_to_read("r1").unwrap();
        assert_eq!(noted(), 1);
        Index::<Node>::apply(&index, &real);
        assert_eq!(noted(), 0, "it has a kubelet");
        Index::<Node>::apply(&index, &ours);
        reading.ends(Vec::new());
        assert!(index.begins_to_read("r1").is_some(), "what was read is what was there before");
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_had_a_kubelet_are_forgotten_unless_one_of_their_name_is_to_come() {
        let index = ClusterIndex::default();
        for name in ["went", "expected", "ours"] {
            Index::<Node>::apply(&index, &node(name, &json!({})));
            let Event::Added(last) = node(name, &json!({})) else { unreachable!("it was added") };
            Index::<Node>::apply(&index, &Event::Deleted(Tombstone::Last(last)));
        }
        Index::<Node>::apply(&index, &node("ours", &json!({ "type": "virtual-kubelet" })));
        let known = || {
            index.expire(|name| name == "expected");
            ["went", "expected", "ours"].map(|name| index.begins_to_read(name).is_some())
        };
        tokio::time::advance(FORMER_KUBELET_RETENTION / 2).await;
        assert_eq!(known(), [true; 3]);
        tokio::time::advance(FORMER_KUBELET_RETENTION / 2).await;
        assert_eq!(known(), [false, true, true]);
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
