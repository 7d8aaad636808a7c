//! The virtual nodes that exist, and the data that their machines publish.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use staffetta_driver::app_hosting::HostedPods;
use tokio::sync::Notify;

use crate::machine::Machine;
use crate::node::{NodeHealth, NodeSpec};
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::triggers::Notifier;

/// The virtual nodes for which this process acts, each with its machine, and the names of removed nodes and of those
/// whose specification cannot be read. The [`NodeSource`](crate::NodeSource) adds and removes nodes; the handler reads
/// them, and forgets removed ones. No method does I/O.
pub struct NodeStore {
    nodes: Mutex<Nodes>,
    /// Notified when a node is added, removed or released, when the node source has added all nodes that exist at the start, or
    /// when the set of nodes without a readable specification changes.
    pub(crate) turnover: Notify,
    /// Triggers reconciliations of nodes and pods.
    pub(crate) notifier: Arc<Notifier>,
    /// The index of the virtual nodes and their pods in Kubernetes.
    pub(crate) pods: Arc<ClusterIndex>,
    policy: Policy,
}

/// The content of a [`NodeStore`].
#[derive(Default)]
struct Nodes {
    /// The nodes with their machines, by node name.
    machines: HashMap<String, Arc<Machine>>,
    /// `true` once all nodes that existed at the start were added.
    complete: bool,
    /// The names of nodes that were removed while this process ran, until their Node objects are deleted.
    departed: HashSet<String>,
    /// The names of nodes that exist but have no readable specification.
    unreadable: HashSet<String>,
}

impl NodeStore {
    /// Creates an empty store: the node source has not added the nodes that exist at the start yet.
    pub(crate) fn new(pods: Arc<ClusterIndex>, policy: Policy) -> Self {
        let (notifier, turnover) = (Arc::default(), Notify::new());
        Self { nodes: Mutex::default(), turnover, notifier, pods, policy }
    }

    /// Adds a node, or replaces its specification. With another [`NodeSpec::address`] than before, the node has another
    /// machine: the connection and the data of the former machine are dropped.
    pub fn add_or_update(&self, spec: NodeSpec) {
        let name = spec.name.clone();
        let mut nodes = self.nodes.lock();
        nodes.departed.remove(&name);
        let known = nodes.machines.get(&name).filter(|machine| machine.view().spec.address == spec.address);
        if let Some(machine) = known.cloned() {
            drop(nodes);
            machine.update_spec(spec);
            self.notifier.node_due(&name);
        } else {
            let (notifier, pods) = (Arc::clone(&self.notifier), Arc::clone(&self.pods));
            let machine = Machine::new(spec, notifier, pods, self.policy.clone());
            nodes.machines.insert(name, Arc::new(machine));
            drop(nodes);
            // Its task triggers the first reconciliation, once the port of the kubelet API is known.
            self.turnover.notify_one();
        }
    }

    /// Removes a node. The handler deletes its Node object, whereupon the cluster deletes its pods.
    pub fn remove(&self, name: &str) {
        let mut nodes = self.nodes.lock();
        if nodes.machines.remove(name).is_some() {
            nodes.departed.insert(name.to_owned());
            drop(nodes);
            self.turnover.notify_one();
            self.notifier.node_due(name);
        }
    }

    /// Records that a node without a machine, whose specification this process could never read, was removed. Its Node object is deleted.
    pub(crate) fn depart(&self, name: &str) {
        let mut nodes = self.nodes.lock();
        if !nodes.machines.contains_key(name) {
            nodes.departed.insert(name.to_owned());
            drop(nodes);
            self.notifier.node_due(name);
        }
    }

    /// Ends all work of this process for a node, because another process acts for that node now. The Node object stays.
    pub fn release(&self, name: &str) {
        let mut nodes = self.nodes.lock();
        if nodes.machines.remove(name).is_some() {
            drop(nodes);
            self.turnover.notify_one();
        }
    }

    /// Returns `true` if the node was added, and neither removed nor released since.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.nodes.lock().machines.contains_key(name)
    }

    /// Replaces the set of nodes that exist but have no readable specification. The Node objects and pods of these
    /// nodes stay as they are. A node that is not in `names` any more is treated as usual again.
    pub fn set_unreadable(&self, names: Vec<String>) {
        let names = names.into_iter().collect();
        let before = std::mem::replace(&mut self.nodes.lock().unreadable, names);
        if before != self.nodes.lock().unreadable {
            self.turnover.notify_one();
        }
    }

    /// Declares that all nodes that exist at the start were added. Before this call, the Node object of a node that was not added is
    /// deleted only if the node was removed.
    pub fn complete(&self) {
        self.nodes.lock().complete = true;
        self.turnover.notify_one();
    }

    /// Reports the health of a machine, for a [`NodeSource`](crate::NodeSource) that receives such data unasked or
    /// after a request. An unknown node is ignored.
    pub fn health(&self, name: &str, health: NodeHealth) {
        if let Some(machine) = self.get(name) {
            machine.report_arrived(false);
            machine.reported_health(health);
        }
    }

    /// Reports all workloads on a machine, for a [`NodeSource`](crate::NodeSource) that receives such data unasked or
    /// after a request. An unknown node is ignored.
    pub fn inventory(&self, name: &str, workloads: &HostedPods) {
        if let Some(machine) = self.get(name) {
            machine.report_arrived(true);
            machine.reported_inventory(workloads);
        }
    }

    /// Reports a heartbeat of a machine, for a [`NodeSource`](crate::NodeSource) that receives such data. If the
    /// machine answers by separate reports, a heartbeat spares it a read, and counts as a report
    /// ([`Policy::silent_after`]) while reads are answered. An unknown node is ignored.
    pub fn heartbeat(&self, name: &str) {
        if let Some(machine) = self.get(name) {
            machine.reports(|reports, _| reports.heartbeat());
        }
    }

    /// Makes the reader task of a node read its machine at once, because its state changed. An unknown node is ignored.
    pub fn changed(&self, name: &str) {
        if let Some(machine) = self.get(name) {
            machine.wake_reader();
        }
    }

    /// Returns the node with this name, with the state of its machine; `None` if it was not added, or was removed or released since.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Machine>> {
        self.nodes.lock().machines.get(name).cloned()
    }

    /// Returns all nodes, with the state of their machines.
    pub(crate) fn all(&self) -> Vec<Arc<Machine>> {
        self.nodes.lock().machines.values().cloned().collect()
    }

    /// Returns `true` if all nodes that existed at the start were added.
    pub(crate) fn is_complete(&self) -> bool {
        self.nodes.lock().complete
    }

    /// Returns `true` if the node was removed while this process ran and its Node object is not deleted yet. The object
    /// is deleted without a grace period.
    pub(crate) fn has_departed(&self, name: &str) -> bool {
        self.nodes.lock().departed.contains(name)
    }

    /// Returns `true` if the node exists but has no readable specification.
    pub(crate) fn is_unreadable(&self, name: &str) -> bool {
        self.nodes.lock().unreadable.contains(name)
    }

    /// Forgets that a node was removed, once its Node object is deleted.
    pub(crate) fn forget(&self, name: &str) {
        self.nodes.lock().departed.remove(name);
    }

    /// Waits until all nodes that exist at the start were added.
    pub(crate) async fn completed(&self) {
        while !self.is_complete() {
            self.turnover.notified().await;
        }
    }
}

#[cfg(test)]
mod tests;
