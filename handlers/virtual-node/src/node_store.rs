//! The nodes that exist.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use staffetta_driver::app_hosting::HostedPods;
use tokio::sync::Notify;

use crate::lock::lock;
use crate::machine::Machine;
use crate::node::{NodeHealth, NodeSpec};
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::triggers::Notifier;

/// The nodes that exist. A [`NodeSource`](crate::NodeSource) fills it, and the handler reads it. No method blocks.
pub struct NodeStore {
    nodes: Mutex<Nodes>,
    /// Notified when a node appears or disappears.
    pub(crate) turnover: Notify,
    pub(crate) notifier: Arc<Notifier>,
    pub(crate) pods: Arc<ClusterIndex>,
    policy: Policy,
}

#[derive(Default)]
struct Nodes {
    machines: HashMap<String, Arc<Machine>>,
    /// `true` once all nodes that existed at the start are known.
    complete: bool,
    /// Nodes that were removed in the life of this process, until their objects are gone.
    departed: HashSet<String>,
    /// Nodes that exist and whose descriptions cannot be read.
    unread: HashSet<String>,
}

impl NodeStore {
    pub(crate) fn new(pods: Arc<ClusterIndex>, policy: Policy) -> Self {
        let (notifier, turnover) = (Arc::default(), Notify::new());
        Self { nodes: Mutex::default(), turnover, notifier, pods, policy }
    }

    /// Adds a node, or replaces its specification.
    pub fn exists(&self, spec: NodeSpec) {
        let name = spec.name.clone();
        let mut nodes = lock(&self.nodes);
        nodes.departed.remove(&name);
        let known = nodes.machines.get(&name).filter(|machine| machine.view().spec.address == spec.address);
        if let Some(machine) = known.cloned() {
            drop(nodes);
            machine.describe(spec);
        } else {
            let (notifier, pods) = (Arc::clone(&self.notifier), Arc::clone(&self.pods));
            let machine = Machine::new(spec, notifier, pods, self.policy.clone());
            nodes.machines.insert(name.clone(), Arc::new(machine));
            drop(nodes);
            self.turnover.notify_one();
        }
        self.notifier.node_due(&name);
    }

    /// Removes a node: its object goes, and its pods with it.
    pub fn gone(&self, name: &str) {
        let mut nodes = lock(&self.nodes);
        if nodes.machines.remove(name).is_some() {
            nodes.departed.insert(name.to_owned());
            drop(nodes);
            self.turnover.notify_one();
            self.notifier.node_due(name);
        }
    }

    /// Sets the nodes that exist and whose descriptions cannot be read: their objects and pods stay as they are. Nodes
    /// that are no longer listed are treated like others again.
    pub fn unread(&self, names: Vec<String>) {
        let names = names.into_iter().collect();
        let before = std::mem::replace(&mut lock(&self.nodes).unread, names);
        if before != lock(&self.nodes).unread {
            self.turnover.notify_one();
        }
    }

    /// Declares that all nodes that exist at the start are known. No Node object is removed before.
    pub fn complete(&self) {
        lock(&self.nodes).complete = true;
        self.turnover.notify_one();
    }

    /// Reports the health of a machine that publishes it by itself.
    pub fn health(&self, name: &str, health: NodeHealth) {
        if let Some(machine) = self.get(name) {
            machine.reported_health(health);
        }
    }

    /// Reports what runs on a machine that publishes it by itself.
    pub fn inventory(&self, name: &str, workloads: &HostedPods) {
        if let Some(machine) = self.get(name) {
            machine.reported_inventory(workloads);
        }
    }

    /// Has a machine read at once, because something changed there.
    pub fn changed(&self, name: &str) {
        if let Some(machine) = self.get(name) {
            machine.wake_reader();
        }
    }

    /// The node of that name.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<Machine>> {
        lock(&self.nodes).machines.get(name).cloned()
    }

    /// All nodes.
    pub(crate) fn all(&self) -> Vec<Arc<Machine>> {
        lock(&self.nodes).machines.values().cloned().collect()
    }

    /// Returns `true` if all nodes that existed at the start are known.
    pub(crate) fn is_complete(&self) -> bool {
        lock(&self.nodes).complete
    }

    /// Returns `true` if the node was removed in the life of this process, so that nothing waits for it.
    pub(crate) fn has_departed(&self, name: &str) -> bool {
        lock(&self.nodes).departed.contains(name)
    }

    /// Returns `true` if the node exists but its description could not be read.
    pub(crate) fn is_unread(&self, name: &str) -> bool {
        lock(&self.nodes).unread.contains(name)
    }

    /// Forgets a removed node, of which nothing is left.
    pub(crate) fn forget(&self, name: &str) {
        lock(&self.nodes).departed.remove(name);
    }

    /// Waits until all nodes that exist at the start are known.
    pub(crate) async fn completed(&self) {
        while !self.is_complete() {
            self.turnover.notified().await;
        }
    }
}

#[cfg(test)]
mod tests;
