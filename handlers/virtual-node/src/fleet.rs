//! The nodes that exist.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use staffetta_handler::Outlet;
use tokio::sync::Notify;

use crate::machine::Machine;
use crate::node::NodeSpec;
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::signals::Voice;

/// The nodes that exist. It is told by a [`NodeSource`](crate::NodeSource) and by the readers of the machines, and tells the
/// chain what changed.
pub struct Fleet {
    machines: DashMap<String, Arc<Machine>>,
    complete: AtomicBool,
    /// Nodes that were there and went while this process lives.
    departed: DashMap<String, ()>,
    /// Nodes that exist and of which nobody can say how they are to be.
    unread: Mutex<HashSet<String>>,
    /// Rings when a node comes or goes.
    pub(crate) turnover: Notify,
    voice: Arc<Voice>,
    pods: Arc<ClusterIndex>,
    policy: Policy,
}

impl Fleet {
    pub(crate) fn new(pods: Arc<ClusterIndex>, policy: Policy) -> Self {
        let (voice, turnover) = (Arc::default(), Notify::new());
        let (machines, departed, complete) = (DashMap::new(), DashMap::new(), AtomicBool::new(false));
        Self { machines, complete, departed, unread: Mutex::default(), turnover, voice, pods, policy }
    }

    /// The node of that name.
    pub fn get(&self, name: &str) -> Option<Arc<Machine>> {
        self.machines.get(name).map(|machine| Arc::clone(&machine))
    }

    /// All nodes.
    pub fn all(&self) -> Vec<Arc<Machine>> {
        self.machines.iter().map(|machine| Arc::clone(&machine)).collect()
    }

    /// Whether all nodes that exist at the start are known.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::SeqCst)
    }

    /// Whether the node was there and went while this process lives: nobody need be waited for.
    pub(crate) fn has_departed(&self, name: &str) -> bool {
        self.departed.contains_key(name)
    }

    /// Whether the node exists, and nobody can say how it is to be.
    pub(crate) fn is_unread(&self, name: &str) -> bool {
        self.unread.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    pub(crate) fn leave_unread(&self, names: Vec<String>) {
        let names = names.into_iter().collect();
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        if *unread != names {
            *unread = names;
            drop(unread);
            self.turnover.notify_one();
        }
    }

    /// Nothing is left of a node that went.
    pub(crate) fn forget(&self, name: &str) {
        self.departed.remove(name);
    }

    /// Tells what changed to `outlet` from now on.
    pub(crate) fn speaks_to(&self, outlet: &Outlet) {
        self.voice.speaks_to(outlet);
    }

    /// Says that there is something to do for a node.
    pub(crate) fn node_due(&self, name: &str) {
        self.voice.node_due(name);
    }

    pub(crate) fn insert(&self, spec: NodeSpec) {
        let name = spec.name.clone();
        self.departed.remove(&name);
        if let Some(machine) = self.get(&name).filter(|machine| machine.spec().place == spec.place) {
            machine.describe(spec);
        } else {
            let machine =
                Machine::new(spec, Arc::clone(&self.voice), Arc::clone(&self.pods), self.policy.clone());
            self.machines.insert(name.clone(), Arc::new(machine));
            self.turnover.notify_one();
        }
        self.node_due(&name);
    }

    pub(crate) fn remove(&self, name: &str) {
        if self.machines.remove(name).is_some() {
            self.departed.insert(name.to_owned(), ());
            self.turnover.notify_one();
            self.node_due(name);
        }
    }

    /// Ends when all nodes that exist at the start are known.
    pub(crate) async fn completed(&self) {
        while !self.is_complete() {
            self.turnover.notified().await;
        }
    }

    pub(crate) fn complete(&self) {
        self.complete.store(true, Ordering::SeqCst);
        self.turnover.notify_one();
    }
}

#[cfg(test)]
mod tests;
