//! An index of the Leases of nodes and of replicas, fed by a watch.

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::coordination::v1::Lease;
use staffetta_handler::{Event, Index, Tombstone};

use super::{SeenLease, is_of_replica};

/// The newest state of each Lease that another replica holds, or nobody, by name. The watch leaves out the Leases that this replica holds,
/// so one that it takes appears as deleted, and is then [forgotten](Self::forget_taken). The state of a deleted Lease is kept for a node
/// that is known.
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

    /// Forgets the deletion of a Lease at or before `version`, at which this replica has written it.
    pub(in crate::vnode) fn forget_taken(&self, node: &str, version: u64) {
        self.nodes.remove_if(node, |_, seen| seen.deleted && seen.version <= version);
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
                self.nodes.alter(&name, |_, seen| seen.deleted_unseen());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_deletion_by_which_a_lease_left_the_watch_is_forgotten_and_a_later_one_is_not() {
        let index = LeaseIndex::default();
        let lease = |version: u64| {
            let spec = json!({ "holderIdentity": "theirs" });
            let lease =
                json!({ "metadata": { "name": "n", "resourceVersion": version.to_string() }, "spec": spec });
            Arc::new(serde_json::from_value::<Lease>(lease).unwrap())
        };
        index.apply(&Event::Added(lease(7)));
        index.forget_taken("n", 9);
        assert!(index.get("n").is_some_and(|seen| !seen.deleted), "it exists");
        index.apply(&Event::Deleted(Tombstone::Last(lease(8))));
        index.forget_taken("n", 7);
        assert!(index.get("n").is_some_and(|seen| seen.deleted));
        index.forget_taken("n", 8);
        assert_eq!(index.get("n"), None);
    }

    #[test]
    fn a_lease_that_was_deleted_while_nobody_watched_may_have_had_another_holder() {
        let index = LeaseIndex::default();
        let metadata = json!({ "name": "n", "resourceVersion": "7" });
        let given_up: Lease =
            serde_json::from_value(json!({ "metadata": metadata, "spec": { "holderIdentity": "" } }))
                .unwrap();
        let added = Event::Added(Arc::new(given_up));
        index.apply(&added);
        let identity = added.erase().identity();
        index.apply(&Event::Deleted(Tombstone::Missed(Arc::new(identity))));
        assert!(index.get("n").is_some_and(|seen| seen.deleted && !seen.holder.is_empty()));
    }
}
