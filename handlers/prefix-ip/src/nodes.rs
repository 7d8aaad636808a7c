//! The states of all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::Ipv4Net;
use staffetta_driver::pool::{Adopted, Fault, Grown, Wait};
use staffetta_driver::prefix::PrimaryInterface;
use staffetta_driver::{InstanceId, InterfaceId, SubnetId, Uid};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::node_pool::{InterfaceDrift, NodeAction, NodeEpoch, NodePool, PodAddress};
use crate::settings::Settings;

/// The delay before blocks are requested in a subnet again that had none.
const EXHAUSTED: Duration = Duration::from_secs(30);

/// A pod of a node that uses an address, or claims one in its annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    /// The UID.
    pub uid: Uid,
    /// The address in `status.podIP`, or else in the annotation.
    pub address: Ipv4Addr,
    /// `true` if the address is that in `status.podIP`.
    pub uses_it: bool,
    /// The creation time, in a form that sorts by time.
    pub created: String,
}

/// The result of [`NodeTable::add`]: pods whose annotations do not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Pods whose address belongs to another pod, with that pod.
    pub shared: Vec<(KnownPod, Uid)>,
    /// Pods whose address is not in a block of the node.
    pub foreign: Vec<KnownPod>,
}

/// A node whose interface is to be read, and the state of its pools before.
#[derive(Clone, Debug)]
pub struct DueRead {
    /// The name of the node.
    pub node: String,
    /// The machine.
    pub instance: InstanceId,
    /// The state before the read.
    pub since: NodeEpoch,
}

/// The states of all nodes by name. All methods return at once.
pub struct NodeTable {
    nodes: Mutex<BTreeMap<String, KnownNode>>,
    cool_down: Duration,
    start: Instant,
    changed: Notify,
}

struct KnownNode {
    instance: InstanceId,
    subnet: SubnetId,
    pool: NodePool,
}

impl NodeTable {
    /// Creates an empty table. A returned address is handed out again after `cool_down`.
    pub fn new(cool_down: Duration) -> Self {
        Self { nodes: Mutex::default(), cool_down, start: Instant::now(), changed: Notify::new() }
    }

    /// Returns `true` if the table has the node with this machine.
    pub fn contains(&self, node: &str, instance: &InstanceId) -> bool {
        self.nodes().get(node).is_some_and(|node| node.instance == *instance)
    }

    /// Adds a node, and recovers the addresses of its pods from their annotations. Of two pods with one address, the one that uses it
    /// keeps it, otherwise the older one.
    ///
    /// `pods` is called under the lock of the table: a pod whose end is noticed meanwhile is either missing in its result, or returns its
    /// address afterwards.
    pub fn add(
        &self,
        node: &str,
        instance: &InstanceId,
        interface: &PrimaryInterface,
        settings: Settings,
        pods: impl FnOnce() -> Vec<KnownPod>,
    ) -> Recovery {
        let mut nodes = self.nodes();
        let mut pods = pods();
        let mut pool = NodePool::new(interface, settings, self.cool_down, self.now());
        pods.sort_by(|a, b| (!a.uses_it, &a.created, &a.uid).cmp(&(!b.uses_it, &b.created, &b.uid)));
        let (mut recovery, mut owners) = (Recovery::default(), BTreeMap::<Ipv4Addr, Uid>::new());
        for pod in pods {
            if let Some(owner) = owners.get(&pod.address) {
                recovery.shared.push((pod, owner.clone()));
            } else if pool.adopt(&pod.uid, pod.address) == Adopted::Unknown {
                recovery.foreign.push(pod);
            } else {
                owners.insert(pod.address, pod.uid);
            }
        }
        let (instance, subnet) = (instance.clone(), interface.subnet.clone());
        nodes.insert(node.to_owned(), KnownNode { instance, subnet, pool });
        self.changed.notify_one();
        recovery
    }

    /// Forgets a node that was deleted. Its blocks end with its machine.
    pub fn remove(&self, node: &str) {
        self.nodes().remove(node);
    }

    /// Uses other options for all nodes.
    pub fn configure(&self, settings: Settings) {
        let now = self.now();
        self.nodes().values_mut().for_each(|node| node.pool.configure(settings, now));
        self.changed.notify_one();
    }

    /// Returns the number of pods of the node that can have an address; `None` if the node is unknown.
    pub fn capacity(&self, node: &str) -> Option<usize> {
        let now = self.now();
        self.nodes().get(node).map(|node| node.pool.capacity(now))
    }

    /// Takes an address for a pod of the node; `None` if the node is unknown.
    pub fn take(&self, node: &str, pod: &Uid) -> Option<Result<PodAddress, Wait>> {
        let now = self.now();
        let taken = self.nodes().get_mut(node).map(|node| node.pool.take(pod, now));
        self.changed.notify_one();
        taken
    }

    /// Returns the address of a pod that is finished or deleted.
    pub fn give_back(&self, node: &str, pod: &Uid) {
        let now = self.now();
        if let Some(node) = self.nodes().get_mut(node) {
            node.pool.give_back(pod, now);
        }
        self.changed.notify_one();
    }

    /// Returns the address of a deleted pod whose node is not known any more.
    pub fn give_back_anywhere(&self, pod: &Uid) {
        let now = self.now();
        self.nodes().values_mut().for_each(|node| node.pool.give_back(pod, now));
        self.changed.notify_one();
    }

    /// Returns the address that a pod of the node has.
    pub fn address_of(&self, node: &str, pod: &Uid) -> Option<PodAddress> {
        self.nodes().get(node)?.pool.address_of(pod)
    }

    /// Undoes [`take`](Self::take) for a pod that was never told its address.
    pub fn put_back(&self, node: &str, pod: &Uid) {
        let now = self.now();
        if let Some(node) = self.nodes().get_mut(node) {
            node.pool.put_back(pod, now);
        }
    }

    /// Waits until the table has changed since the last call.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the changes of interfaces to begin now, and the time until the next call.
    pub(crate) fn plan(&self) -> (Vec<(String, InterfaceId, NodeAction)>, Option<Duration>) {
        let (now, mut nodes) = (self.now(), self.nodes());
        let mut actions = Vec::new();
        for (name, node) in nodes.iter_mut() {
            let interface = node.pool.interface().clone();
            let planned = node.pool.plan(now).into_iter();
            actions.extend(planned.map(|action| (name.clone(), interface.clone(), action)));
        }
        let next = nodes.values().filter_map(|node| node.pool.next(now)).min();
        (actions, next.map(|next| next.saturating_sub(now)))
    }

    /// Records the result of an assignment. If the subnet is exhausted, no node of it requests blocks for 30 s.
    pub(crate) fn assigned(&self, name: &str, action: &NodeAction, result: Grown<Ipv4Net>) {
        let NodeAction::Assign { op, kind, .. } = action else { return };
        let (now, mut nodes) = (self.now(), self.nodes());
        let exhausted = result.fault == Some(Fault::Exhausted);
        let Some(node) = nodes.get_mut(name) else { return };
        node.pool.assigned(*op, *kind, result, now);
        let subnet = node.subnet.clone();
        for node in nodes.values_mut().filter(|node| exhausted && node.subnet == subnet) {
            node.pool.block(now + EXHAUSTED);
        }
    }

    /// Records the result of a removal: all blocks are gone, or may still exist.
    pub(crate) fn unassigned(&self, name: &str, action: &NodeAction, succeeded: bool) {
        let NodeAction::Unassign { op, kind, blocks } = action else { return };
        let (now, left) = (self.now(), if succeeded { &[] } else { blocks.as_slice() });
        let mut nodes = self.nodes();
        if let Some(node) = nodes.get_mut(name) {
            node.pool.unassigned(*op, *kind, left, now);
        }
    }

    /// Returns all nodes, for a read of their interfaces that begins now.
    pub(crate) fn due_reads(&self) -> Vec<DueRead> {
        let nodes = self.nodes();
        let due = nodes.iter().map(|(name, node)| DueRead {
            node: name.clone(),
            instance: node.instance.clone(),
            since: node.pool.epoch(),
        });
        due.collect()
    }

    /// Compares a node with the blocks of its interface.
    pub(crate) fn resync(&self, read: &DueRead, blocks: &BTreeSet<Ipv4Net>) -> InterfaceDrift {
        let (now, mut nodes) = (self.now(), self.nodes());
        let node = nodes.get_mut(&read.node).filter(|node| node.instance == read.instance);
        node.map_or_else(InterfaceDrift::default, |node| node.pool.resync(read.since, blocks, now))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn nodes(&self) -> MutexGuard<'_, BTreeMap<String, KnownNode>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
