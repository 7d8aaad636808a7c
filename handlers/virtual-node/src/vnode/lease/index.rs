//! An index of the Leases of nodes and of replicas, fed by a watch.

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::coordination::v1::Lease;
use staffetta_handler::{Event, Index, Tombstone};

use super::SeenLease;

/// The newest state of each Lease that another replica or nobody holds, by the name of the Lease. The watch leaves out the Leases that this
/// replica holds, so a Lease that it takes appears as deleted until that is [forgotten](Self::forget_taken). The state of a deleted Lease
/// is kept while its node is known.
#[derive(Default)]
pub(in crate::vnode) struct LeaseIndex(DashMap<Arc<str>, SeenLease>);

impl LeaseIndex {
    /// Returns the newest state of the Lease of a node that the watch has shown; `None` if it has shown none, or that state was forgotten.
    pub(in crate::vnode) fn get(&self, node: &str) -> Option<SeenLease> {
        self.0.get(node).map(|seen| seen.clone())
    }

    /// Returns the existing Leases that are not those of `known` nodes: those of replicas, and those of nodes that only another replica
    /// knows or knew.
    pub(in crate::vnode) fn unknown(&self, known: impl Fn(&str) -> bool) -> Vec<(Arc<str>, SeenLease)> {
        let unknown = self.0.iter().filter(|entry| !entry.deleted && !known(entry.key()));
        unknown.map(|entry| (Arc::clone(entry.key()), entry.value().clone())).collect()
    }

    /// Forgets that the watch has shown a Lease as deleted, at or before `version`: this replica has taken the Lease with that version.
    pub(in crate::vnode) fn forget_taken(&self, node: &str, version: u64) {
        self.0.remove_if(node, |_, seen| seen.deleted && seen.version <= version);
    }

    /// Forgets the deleted Leases of replicas, and of nodes that are not `known` any more.
    pub(in crate::vnode) fn expire(&self, known: impl Fn(&str) -> bool) {
        self.0.retain(|node, seen| !seen.deleted || known(node));
    }
}

impl Index<Lease> for LeaseIndex {
    fn apply(&self, event: &Event<Lease>) {
        let name = event.object_ref().name;
        match event {
            Event::Added(lease) | Event::Modified(lease) => {
                self.0.insert(name.into(), SeenLease::of(lease));
            }
            Event::Deleted(Tombstone::Last(lease)) => {
                self.0.insert(name.into(), SeenLease::deleted(lease));
            }
            Event::Deleted(Tombstone::Missed(_)) => {
                self.0.alter(name, |_, seen| seen.deleted_unseen());
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

    #[test]
    fn the_existing_leases_of_replicas_and_of_nodes_that_are_not_known_are_found() {
        let index = LeaseIndex::default();
        for name in ["vnode.known.dev", "vnode.lost.dev", "vnode.ended.dev", "staffetta-replica-1"] {
            let lease = json!({ "metadata": { "name": name, "resourceVersion": "7" } });
            let lease = Arc::new(serde_json::from_value::<Lease>(lease).unwrap());
            index.apply(&Event::Added(Arc::clone(&lease)));
            if name == "vnode.ended.dev" {
                index.apply(&Event::Deleted(Tombstone::Last(lease)));
            }
        }
        let unknown = index.unknown(|name| name == "vnode.known.dev");
        let mut names: Vec<_> = unknown.iter().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        assert_eq!(names, ["staffetta-replica-1", "vnode.lost.dev"]);
    }
}
