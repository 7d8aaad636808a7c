//! The replicas that are alive, as far as they have no nodes that this replica knows, without I/O.
//!
//! A replica is known by the Leases of nodes that it holds. One without a node renews a Lease of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use staffetta_handler::BootTime;

use super::lease::{
    LeaseElection, LeaseTiming, LeaseWrite, SeenLease, WriteResult, is_of_replica, replica_lease,
};

/// The number of Lease durations without a change after which the Lease of a node that this replica does not know is deleted. A replica that
/// knows the node takes the Lease before.
const UNKNOWN_NODE_DURATIONS: u32 = 5;

/// The Lease that shows that this replica is alive while it holds the Lease of no node, and the Leases of other replicas and of nodes
/// that this replica does not know.
pub(super) struct Replicas {
    replica: String,
    timing: LeaseTiming,
    /// The name of the Lease of this replica.
    name: Arc<str>,
    /// The election for the Lease of this replica, for which nobody else stands.
    own: LeaseElection,
    /// The Leases of other replicas and of nodes that this replica does not know, by name.
    seen: HashMap<Arc<str>, UnknownLease>,
}

/// The newest state of a Lease that is not the one of a known node.
struct UnknownLease {
    lease: SeenLease,
    /// The time when this process first saw this state.
    since: BootTime,
    /// The time at which the Lease is deleted if it has not changed.
    delete_at: BootTime,
}

impl Replicas {
    pub(super) fn new(replica: &str, timing: LeaseTiming) -> Self {
        let own = LeaseElection::new(replica, timing);
        let (replica, name) = (replica.to_owned(), replica_lease(replica).into());
        Self { replica, timing, name, own, seen: HashMap::new() }
    }

    /// Returns the identities of the holders of the Leases in `seen` that have changed within the last Lease duration.
    pub(super) fn alive(&self, now: BootTime) -> impl Iterator<Item = &str> {
        let alive = self.seen.values().filter(move |seen| now < seen.since + self.timing.duration);
        alive.map(|seen| &*seen.lease.holder).filter(|holder| !holder.is_empty())
    }

    /// Records the newest states of all Leases that are not those of known nodes.
    pub(super) fn observe(&mut self, leases: Vec<(Arc<str>, SeenLease)>, now: BootTime) {
        let mut known = std::mem::take(&mut self.seen);
        let observed = leases.into_iter().map(|(name, lease)| {
            let same = known.remove(&name).filter(|known| known.lease == lease);
            let delete_at = now + self.expires_after(&name);
            (name, same.unwrap_or(UnknownLease { lease, since: now, delete_at }))
        });
        self.seen = observed.collect();
    }

    /// Returns the time without a change after which a Lease is deleted.
    fn expires_after(&self, name: &str) -> Duration {
        self.timing.duration * if is_of_replica(name) { 1 } else { UNKNOWN_NODE_DURATIONS }
    }

    /// Returns the write to the Lease of this replica, if one is due. If this is not called any more, the Lease expires.
    pub(super) fn next(&mut self, now: BootTime) -> Option<(Arc<str>, LeaseWrite)> {
        let write = self.own.next(true, Duration::ZERO, Some(0), now)?;
        self.own.begin(now);
        // Nobody else holds it, so it is taken by its creation.
        let write = if matches!(write, LeaseWrite::Create { .. }) { LeaseWrite::Recreate } else { write };
        Some((Arc::clone(&self.name), write))
    }

    /// Records the result of a write to the Lease of this replica. Does nothing and returns `false` if `name` is that of another Lease.
    pub(super) fn written(&mut self, name: &str, result: &WriteResult, now: BootTime) -> bool {
        if *self.name != *name {
            return false;
        }
        match result {
            // It is created again at once.
            WriteResult::Missing => self.own = LeaseElection::new(&self.replica, self.timing),
            WriteResult::Written(seen) => self.own.finish(&WriteResult::First(seen.clone()), now),
            WriteResult::Conflict(seen) => {
                self.own.finish(&WriteResult::Conflict(SeenLease { renewed: true, ..seen.clone() }), now);
            }
            _ => self.own.finish(result, now),
        }
        true
    }

    /// Records that the result of the write in progress to the Lease of this replica will not be known.
    pub(super) fn interrupted(&mut self, now: BootTime) {
        self.own.finish(&WriteResult::Failed, now);
    }

    /// Ends the hold of the Lease of this replica. Returns its name and version, to delete it; `None` if it is not held.
    pub(super) fn give_up(&mut self) -> Option<(Arc<str>, u64)> {
        Some((Arc::clone(&self.name), self.own.give_up()?.version))
    }

    /// Returns the names and versions of expired Leases, to delete them. Each is returned again if it still exists later.
    pub(super) fn expired(&mut self, now: BootTime) -> Vec<(Arc<str>, u64)> {
        let duration = self.timing.duration;
        let expired = self.seen.iter_mut().filter(|(_, seen)| now >= seen.delete_at);
        let delete = |(name, seen): (&Arc<str>, &mut UnknownLease)| {
            seen.delete_at = now + duration;
            (Arc::clone(name), seen.lease.version)
        };
        expired.map(delete).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const TIMING: LeaseTiming = LeaseTiming {
        duration: Duration::from_secs(40),
        renewal: Duration::from_secs(10),
        retry: Duration::from_secs(2),
    };

    fn at(seconds: u64) -> BootTime {
        BootTime::default() + Duration::from_secs(seconds)
    }

    #[test]
    fn a_replica_renews_its_lease_once_a_period_and_creates_it_again_if_somebody_deleted_it() {
        let mut replicas = Replicas::new("ours", TIMING);
        let (name, write) = replicas.next(at(100)).unwrap();
        assert_eq!((write, replicas.next(at(100))), (LeaseWrite::Recreate, None));
        assert!(!replicas.written("vnode.a.dev", &WriteResult::Failed, at(100)));
        assert!(replicas.written(&name, &WriteResult::Written(SeenLease::held(7, "ours")), at(101)));
        assert_eq!(replicas.next(at(109)), None);
        let renewal = LeaseWrite::Replace { seen: SeenLease::held(7, "ours") };
        assert_eq!(replicas.next(at(110)), Some((Arc::clone(&name), renewal.clone())));
        replicas.written(&name, &WriteResult::Failed, at(110));
        assert_eq!(replicas.next(at(111)), None);
        assert_eq!(replicas.next(at(112)), Some((Arc::clone(&name), renewal)));
        replicas.written(&name, &WriteResult::Missing, at(112));
        assert_eq!(replicas.next(at(112)), Some((Arc::clone(&name), LeaseWrite::Recreate)));
    }

    #[test]
    fn a_replica_is_alive_while_its_lease_changes_and_an_expired_lease_is_deleted() {
        let mut replicas = Replicas::new("ours", TIMING);
        let name: Arc<str> = replica_lease("b").into();
        let theirs = |version| vec![(Arc::clone(&name), SeenLease::held(version, "b"))];
        replicas.observe(theirs(1), at(0));
        replicas.observe(theirs(2), at(30));
        replicas.observe(theirs(2), at(69));
        assert_eq!(replicas.alive(at(69)).collect::<Vec<_>>(), ["b"]);
        assert!(replicas.expired(at(69)).is_empty());
        assert_eq!(replicas.alive(at(70)).count(), 0);
        assert_eq!(replicas.expired(at(70)), [(Arc::clone(&name), 2)]);
        assert!(replicas.expired(at(109)).is_empty(), "it is not repeated at once");
        assert_eq!(replicas.expired(at(110)).len(), 1);
        replicas.observe(theirs(3), at(111));
        assert_eq!(replicas.alive(at(111)).count(), 1, "it was paused");
    }

    #[test]
    fn the_lease_of_a_node_that_only_a_dead_replica_knew_is_deleted_after_others_could_take_it() {
        let mut replicas = Replicas::new("ours", TIMING);
        let lease = |version, holder| vec![("vnode.a.dev".into(), SeenLease::held(version, holder))];
        replicas.observe(lease(1, "dead"), at(0));
        assert_eq!(replicas.alive(at(39)).collect::<Vec<_>>(), ["dead"]);
        assert!(replicas.alive(at(40)).count() == 0 && replicas.expired(at(199)).is_empty());
        assert_eq!(replicas.expired(at(200)), [("vnode.a.dev".into(), 1)]);
        replicas.observe(lease(2, ""), at(201));
        assert_eq!(replicas.alive(at(201)).count(), 0, "nobody holds it");
        replicas.observe(Vec::new(), at(202));
        assert!(replicas.expired(at(999)).is_empty(), "this replica knows the node, or the Lease is deleted");
    }
}
