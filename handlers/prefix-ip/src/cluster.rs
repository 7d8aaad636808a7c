//! The nodes, pods and options of the cluster, as their watches show them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use staffetta_driver::{InstanceId, PodLifecycle, Uid};
use staffetta_handler::{Event, Index, ObjectRef};
use tokio::sync::Notify;

use crate::address::{PRIVATE_IPV4_ADDRESS, parse};
use crate::admission::PodAdmission;
use crate::nodes::{KnownPod, NodeTable};
use crate::settings::Settings;
use crate::waiting::WaitingPods;

/// The namespace and name of the `ConfigMap` with the options of this handler.
pub const CONFIG_MAP: (&str, &str) = ("kube-system", "amazon-vpc-cni");

/// The label, as key and value, of nodes of EKS Auto Mode, which assigns addresses itself.
const AUTO_MODE_LABEL: (&str, &str) = ("eks.amazonaws.com/compute-type", "auto");

/// The nodes, pods and options of the cluster, from their watches.
pub struct WatchedCluster {
    /// The rules that decide which pods need an address. They contain the label of the nodes whose pods get addresses.
    pub admission: PodAdmission,
    table: Arc<NodeTable>,
    /// The pods that wait for an address of their node.
    pub waiting: WaitingPods,
    /// Notified when the `ConfigMap` with the options was added, changed or deleted.
    changed: Notify,
    state: Mutex<WatchedState>,
}

/// The content of the indexes of nodes, pods and the `ConfigMap` with the options.
#[derive(Default)]
struct WatchedState {
    /// The nodes with the configured label and a machine, by name, except for those of EKS Auto Mode.
    nodes: BTreeMap<String, Arc<Node>>,
    /// The pods that need an address and have one in their status or their annotation, by the name of their node and by UID.
    pods: HashMap<String, HashMap<String, KnownPod>>,
    /// The options; `None` until the first event of the `ConfigMap` with them.
    settings: Option<Settings>,
}

impl WatchedCluster {
    /// Creates the view of a cluster, empty until the first events. Pods get addresses on nodes with `label`, a key and a value. Changed
    /// options are passed on to `table`.
    pub fn new(label: (String, String), table: Arc<NodeTable>) -> Self {
        let (waiting, admission) = (WaitingPods::default(), PodAdmission::new(label));
        Self { admission, table, waiting, changed: Notify::new(), state: Mutex::default() }
    }

    /// Returns the options of the handler; the defaults without a `ConfigMap`.
    pub fn settings(&self) -> Settings {
        self.state().settings.unwrap_or_else(|| Settings::read(&BTreeMap::new()).0)
    }

    /// Returns the nodes that have the configured label and a machine, except for those of EKS Auto Mode.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.state().nodes.values().cloned().collect()
    }

    /// Returns the node with this name; `None` unless [`nodes`](Self::nodes) contains it.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.state().nodes.get(name).cloned()
    }

    /// Waits until the `ConfigMap` with the options has had an event since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the pods of a node that need an address and have one in their status or their annotation.
    pub fn pods(&self, node: &str) -> Vec<KnownPod> {
        self.state().pods.get(node).into_iter().flat_map(|pods| pods.values().cloned()).collect()
    }

    fn state(&self) -> MutexGuard<'_, WatchedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchedState {
    /// Removes the pod with this UID from the pods of `node`.
    fn forget(&mut self, node: &str, uid: &str) {
        let Some(pods) = self.pods.get_mut(node) else { return };
        pods.remove(uid);
        if pods.is_empty() {
            self.pods.remove(node);
        }
    }
}

impl Index<Node> for WatchedCluster {
    fn apply(&self, event: &Event<Node>) {
        let mut state = self.state();
        let present = match event {
            Event::Added(node) | Event::Modified(node) => Some(node),
            Event::Deleted(_) => None,
        };
        let PodAdmission { key, value } = &self.admission;
        let labelled = present.filter(|node| node.labels().get(key) == Some(value));
        let labelled = labelled.filter(|node| {
            node.labels().get(AUTO_MODE_LABEL.0).map(String::as_str) != Some(AUTO_MODE_LABEL.1)
        });
        let name = event.object_ref().name.to_owned();
        match labelled.filter(|node| instance(node).is_some()) {
            Some(node) => drop(state.nodes.insert(name, Arc::clone(node))),
            None => drop(state.nodes.remove(&name)),
        }
    }
}

impl Index<Pod> for WatchedCluster {
    fn apply(&self, event: &Event<Pod>) {
        let mut state = self.state();
        let uid = event.uid();
        let (Event::Added(pod) | Event::Modified(pod)) = event else {
            self.waiting.remove(&uid.into());
            match event.object().and_then(|pod| node_of(pod)) {
                Some(node) => state.forget(node, uid),
                None => state.pods.retain(|_, pods| {
                    pods.remove(uid);
                    !pods.is_empty()
                }),
            }
            return;
        };
        self.waiting.update(uid, pod);
        let Some(node) = node_of(pod) else { return };
        match known(&self.admission, pod) {
            Some(known) => drop(state.pods.entry(node.to_owned()).or_default().insert(uid.to_owned(), known)),
            None => state.forget(node, uid),
        }
    }
}

impl Index<ConfigMap> for WatchedCluster {
    fn apply(&self, event: &Event<ConfigMap>) {
        if !is_options_map(&event.object_ref()) {
            return;
        }
        let data = match event {
            Event::Added(map) | Event::Modified(map) => map.data.clone().unwrap_or_default(),
            Event::Deleted(_) => BTreeMap::new(),
        };
        let settings = Settings::read(&data).0;
        self.state().settings = Some(settings);
        self.table.configure(settings);
        self.changed.notify_one();
    }
}

/// Returns `true` if `object` is the `ConfigMap` with the options of this handler.
pub(crate) fn is_options_map(object: &ObjectRef<'_>) -> bool {
    (object.namespace, object.name) == (Some(CONFIG_MAP.0), CONFIG_MAP.1)
}

/// Returns the name of the node of a pod; `None` if the pod is not scheduled yet.
pub(crate) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the pod with its address; `None` if it needs no address of its node, has finished, or has no address. The address that the
/// kubelet reports takes precedence over that in the annotation, which other users can write.
fn known(admission: &PodAdmission, pod: &Pod) -> Option<KnownPod> {
    if !PodLifecycle::of(pod).has_network() || !admission.needs_address(pod) {
        return None;
    }
    let reported = pod.status.as_ref().and_then(|status| status.pod_ip.as_ref()?.parse().ok());
    let claimed = || parse(pod.annotations().get(PRIVATE_IPV4_ADDRESS)?);
    Some(KnownPod {
        uid: Uid::from(pod.metadata.uid.as_deref()?),
        address: reported.or_else(claimed)?,
        uses_it: reported.is_some(),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
    })
}

/// Returns the id of the node's machine: the part of `spec.providerID` after the last slash, such as `i-0abc` in `aws:///zone/i-0abc`.
pub(crate) fn instance(node: &Node) -> Option<InstanceId> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?.rsplit('/').next()?;
    (!id.is_empty()).then(|| InstanceId::from(id))
}
