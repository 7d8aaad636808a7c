//! The nodes, pods and options of the cluster, as their watches show them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::ResourceExt;
use parking_lot::Mutex;
use staffetta_driver::{InstanceId, PodLifecycle, Uid};
use staffetta_handler::{Event, Index, ObjectRef};
use tokio::sync::Notify;

use crate::address::{PRIVATE_IPV4_ADDRESS, parse};
use crate::admission::PodAdmission;
use crate::nodes::{KnownPod, NodeTable};
use crate::settings::{Settings, switch};
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
    /// The options; `None` until the first event of the `ConfigMap` with them. They stay in force when it is deleted.
    settings: Option<Settings>,
    /// `true` if the `ConfigMap` has switched addresses off by the word `false`, and not on again.
    is_off: bool,
}

impl WatchedCluster {
    /// Creates the view of a cluster, empty until the first events. Pods get addresses on nodes with `label`, a key and a value. Changed
    /// options are passed on to `table`.
    pub fn new(label: (String, String), table: Arc<NodeTable>) -> Self {
        let (waiting, admission) = (WaitingPods::default(), PodAdmission::new(label));
        Self { admission, table, waiting, changed: Notify::new(), state: Mutex::default() }
    }

    /// Returns the options of the handler; the defaults if there was no `ConfigMap` yet.
    pub fn settings(&self) -> Settings {
        self.state.lock().settings.unwrap_or_else(|| Settings::read(&BTreeMap::new(), None).0)
    }

    /// Returns `true` if the `ConfigMap` says that addresses are off, and does not merely lack the switch.
    pub fn is_switched_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Returns the nodes that have the configured label and a machine, except for those of EKS Auto Mode.
    pub fn nodes(&self) -> Vec<Arc<Node>> {
        self.state.lock().nodes.values().cloned().collect()
    }

    /// Returns the node with this name; `None` unless [`nodes`](Self::nodes) contains it.
    pub fn node(&self, name: &str) -> Option<Arc<Node>> {
        self.state.lock().nodes.get(name).cloned()
    }

    /// Waits until the `ConfigMap` with the options has had an event since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the pods that need an address and have one of the machine `instance`: the pods of its nodes, and those of unknown nodes that
    /// use an address of its `blocks`.
    pub fn pods(&self, machine: &InstanceId, blocks: &BTreeSet<Ipv4Net>) -> Vec<KnownPod> {
        let state = self.state.lock();
        let mut found = Vec::new();
        for (node, pods) in &state.pods {
            let owner = state.nodes.get(node).and_then(|node| instance(node));
            let is_of = |pod: &&KnownPod| match &owner {
                Some(owner) => owner == machine,
                None => pod.uses_it && blocks.iter().any(|block| block.contains(&pod.address)),
            };
            found.extend(pods.values().filter(is_of).cloned());
        }
        found
    }

    /// Returns a pod of a node that needs an address and has, or had, one in its status or its annotation; `None` if it never had one.
    pub(crate) fn pod(&self, node: &str, uid: &str) -> Option<KnownPod> {
        self.state.lock().pods.get(node)?.get(uid).cloned()
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
        let mut state = self.state.lock();
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
        let mut state = self.state.lock();
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
        let last = state.pods.get(node).and_then(|pods| pods.get(uid));
        match known(&self.admission, pod, last) {
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
        let (Event::Added(map) | Event::Modified(map)) = event else { return };
        let none = BTreeMap::new();
        let data = map.data.as_ref().unwrap_or(&none);
        let mut state = self.state.lock();
        let settings = Settings::read(data, state.settings.as_ref()).0;
        state.settings = Some(settings);
        if let Some(on) = switch(data) {
            state.is_off = !on;
        }
        drop(state);
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

/// Returns the pod with its address; `None` if it needs no address of its node, has finished, or never had an address. The address that the
/// kubelet reports takes precedence over that in the annotation, which other users can write. If neither can be read any more, the pod
/// keeps that of `last`, its state before.
fn known(admission: &PodAdmission, pod: &Pod, last: Option<&KnownPod>) -> Option<KnownPod> {
    if !PodLifecycle::of(pod).has_network() || !admission.needs_address(pod) {
        return None;
    }
    let status = pod.status.as_ref();
    let addresses = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten().map(|ip| &ip.ip);
    let mut addresses = addresses.chain(status.and_then(|status| status.pod_ip.as_ref()));
    let reported = addresses.find_map(|ip| ip.parse().ok());
    let reported = reported.or(last.filter(|last| last.uses_it).map(|last| last.address));
    let claimed = || parse(pod.annotations().get(PRIVATE_IPV4_ADDRESS)?);
    Some(KnownPod {
        uid: Uid::from(pod.metadata.uid.as_deref()?),
        address: reported.or_else(claimed).or(last.map(|last| last.address))?,
        uses_it: reported.is_some(),
        created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default(),
    })
}

/// Returns the id of the node's machine: the part of `spec.providerID` after the last slash, such as `i-0abc` in `aws:///zone/i-0abc`.
pub(crate) fn instance(node: &Node) -> Option<InstanceId> {
    let id = node.spec.as_ref()?.provider_id.as_deref()?.rsplit('/').next()?;
    (!id.is_empty()).then(|| InstanceId::from(id))
}
