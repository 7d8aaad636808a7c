//! An index of the Leases of nodes and of replicas, fed by a watch.

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::coordination::v1::Lease;
use staffetta_handler::{Event, Index, Tombstone};

use super::{SeenLease, is_of_replica};

/// The newest state of each Lease, by name. The state of a deleted Lease is kept for a node that is known.
#[derive(Default)]
pub(in crate::vnode) struct LeaseIndex {
    nodes: DashMap<String, SeenLease>,
    replicas: DashMap<Arc<str>, SeenLease>,
}

impl LeaseIndex {
    /// Returns the newest state of the Lease of a node; `None` if it was never seen.
    pub(in crate::vnode) fn get(&self, node: &str) -> Option<SeenLease> {
        self.nodes.get(node).map(|seen| seen.clone())
    }

    /// Returns the Leases of replicas, by name.
    pub(in crate::vnode) fn replicas(&self) -> Vec<(Arc<str>, SeenLease)> {
        self.replicas.iter().map(|entry| (Arc::clone(entry.key()), entry.value().clone())).collect()
    }

    /// Forgets the deleted Leases of nodes that are not `known` any more.
    pub(in crate::vnode) fn expire(&self, known: impl Fn(&str) -> bool) {
        self.nodes.retain(|node, seen| !seen.deleted || known(node));
    }
}

impl Index<Lease> for LeaseIndex {
    fn apply(&self, event: &Event<Lease>) {
        let name = event.object_ref().name.to_owned();
        if is_of_replica(&name) {
            match event {
                Event::Added(lease) | Event::Modified(lease) => {
                    self.replicas.insert(name.into(), SeenLease::of(lease));
                }
                Event::Deleted(_) => drop(self.replicas.remove(name.as_str())),
            }
            return;
        }
        match event {
            Event::Added(lease) | Event::Modified(lease) => {
                self.nodes.insert(name, SeenLease::of(lease));
            }
            Event::Deleted(Tombstone::Last(lease)) => {
                self.nodes.insert(name, SeenLease::deleted(lease));
            }
            Event::Deleted(Tombstone::Missed(_)) => {
                if let Some(mut seen) = self.nodes.get_mut(&name) {
                    seen.deleted = true;
                }
            }
        }
    }
}
