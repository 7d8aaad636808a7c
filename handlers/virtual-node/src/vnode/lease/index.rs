//! An index of the Leases of nodes, fed by a watch.

use k8s_openapi::api::coordination::v1::Lease;
use staffetta_handler::{Event, Index, Tombstone};

use dashmap::DashMap;

use super::SeenLease;

/// The newest state of each Lease, by the name of the node. The state of a deleted one is kept for a node that is known.
#[derive(Default)]
pub(in crate::vnode) struct LeaseIndex(DashMap<String, SeenLease>);

impl LeaseIndex {
    /// Returns the newest state of the Lease of a node; `None` if it was never seen.
    pub(in crate::vnode) fn get(&self, node: &str) -> Option<SeenLease> {
        self.0.get(node).map(|seen| seen.clone())
    }

    /// Forgets the deleted Lease of a node that is not known any more.
    pub(in crate::vnode) fn forget(&self, node: &str) {
        self.0.remove_if(node, |_, seen| seen.deleted);
    }
}

impl Index<Lease> for LeaseIndex {
    fn apply(&self, event: &Event<Lease>) {
        let name = event.object_ref().name.to_owned();
        match event {
            Event::Added(lease) | Event::Modified(lease) => {
                self.0.insert(name, SeenLease::of(lease));
            }
            Event::Deleted(Tombstone::Last(lease)) => {
                self.0.insert(name, SeenLease::deleted(lease));
            }
            Event::Deleted(Tombstone::Missed(_)) => {
                if let Some(mut seen) = self.0.get_mut(&name) {
                    seen.deleted = true;
                }
            }
        }
    }
}
