//! The replicas that are alive, as far as they have no nodes, without I/O.
//!
//! A replica is known by the Leases of nodes that it holds. One without a node renews a Lease of its own.

use std::collections::HashMap;
use std::sync::Arc;

use staffetta_handler::BootTime;

use super::lease::{LeaseTiming, LeaseWrite, SeenLease, WriteResult, replica_lease};

/// The Leases of replicas without a node.
pub(super) struct Replicas {
    timing: LeaseTiming,
    /// The Lease of this replica.
    own: ReplicaLease,
    /// The Leases of all replicas, by name.
    seen: HashMap<Arc<str>, SeenReplica>,
}

/// The Lease of this replica, which nobody else renews.
struct ReplicaLease {
    name: Arc<str>,
    /// The newest state; `None` if the Lease does not exist.
    seen: Option<SeenLease>,
    /// The time of the next write.
    due: BootTime,
    /// The time at which the write in progress began.
    began: Option<BootTime>,
}

/// The newest state of the Lease of a replica.
struct SeenReplica {
    lease: SeenLease,
    /// The time when this process first saw this state.
    since: BootTime,
    /// The time at which the Lease is deleted if it has not changed.
    delete_at: BootTime,
}

impl Replicas {
    pub(super) fn new(replica: &str, timing: LeaseTiming) -> Self {
        let due = BootTime::default();
        let own = ReplicaLease { name: replica_lease(replica).into(), seen: None, due, began: None };
        Self { timing, own, seen: HashMap::new() }
    }

    /// Returns the replicas that renewed their own Leases recently.
    pub(super) fn alive(&self, now: BootTime) -> impl Iterator<Item = &str> {
        let alive = self.seen.values().filter(move |seen| now < seen.since + self.timing.duration);
        alive.map(|seen| &*seen.lease.holder)
    }

    /// Records the newest states of all Leases of replicas.
    pub(super) fn observe(&mut self, leases: Vec<(Arc<str>, SeenLease)>, now: BootTime) {
        let mut known = std::mem::take(&mut self.seen);
        let observed = leases.into_iter().map(|(name, lease)| {
            let same = known.remove(&name).filter(|known| known.lease == lease);
            let delete_at = now + self.timing.duration;
            (name, same.unwrap_or(SeenReplica { lease, since: now, delete_at }))
        });
        self.seen = observed.collect();
    }

    /// Returns the write to the Lease of this replica, if one is due. If this is not called any more, the Lease expires.
    pub(super) fn next(&mut self, now: BootTime) -> Option<(Arc<str>, LeaseWrite)> {
        if self.own.began.is_some() || now < self.own.due {
            return None;
        }
        self.own.began = Some(now);
        let renewal = |seen| LeaseWrite::Replace { seen };
        Some((Arc::clone(&self.own.name), self.own.seen.clone().map_or(LeaseWrite::Create, renewal)))
    }

    /// Records the result of a write. Returns `false` if it is not that of the Lease of this replica.
    pub(super) fn written(&mut self, name: &str, result: &WriteResult, now: BootTime) -> bool {
        if *self.own.name != *name {
            return false;
        }
        let began = self.own.began.take().unwrap_or(now);
        self.own.due = match result {
            WriteResult::Written(_) => began + self.timing.renewal,
            WriteResult::Conflict(_) => now,
            WriteResult::Missing if self.own.seen.is_some() => now,
            WriteResult::Missing | WriteResult::Failed => now + self.timing.retry,
        };
        match result {
            WriteResult::Written(seen) | WriteResult::Conflict(seen) => self.own.seen = Some(seen.clone()),
            WriteResult::Missing => self.own.seen = None,
            WriteResult::Failed => {}
        }
        true
    }

    /// Records that the result of the write in progress will not be known.
    pub(super) fn interrupted(&mut self) {
        self.own.began = None;
    }

    /// Returns the name and version of the Lease of this replica, to delete it; `None` if it does not exist.
    pub(super) fn own(&self) -> Option<(Arc<str>, u64)> {
        Some((Arc::clone(&self.own.name), self.own.seen.as_ref()?.version))
    }

    /// Returns the names and versions of expired Leases, to delete them. Each is returned again if it still exists later.
    pub(super) fn expired(&mut self, now: BootTime) -> Vec<(Arc<str>, u64)> {
        let expired = self.seen.iter_mut().filter(|(_, seen)| now >= seen.delete_at);
        let delete = |(name, seen): (&Arc<str>, &mut SeenReplica)| {
            seen.delete_at = now + self.timing.duration;
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
        assert_eq!((write, replicas.next(at(100))), (LeaseWrite::Create, None));
        assert!(!replicas.written("vnode.a.dev", &WriteResult::Failed, at(100)));
        assert!(replicas.written(&name, &WriteResult::Written(SeenLease::held(7, "ours")), at(101)));
        assert_eq!(replicas.next(at(109)), None);
        let renewal = LeaseWrite::Replace { seen: SeenLease::held(7, "ours") };
        assert_eq!(replicas.next(at(110)), Some((Arc::clone(&name), renewal.clone())));
        replicas.written(&name, &WriteResult::Failed, at(110));
        assert_eq!(replicas.next(at(111)), None);
        assert_eq!(replicas.next(at(112)), Some((Arc::clone(&name), renewal)));
        replicas.written(&name, &WriteResult::Missing, at(112));
        assert_eq!(replicas.next(at(112)), Some((Arc::clone(&name), LeaseWrite::Create)));
    }

    #[test]
    fn a_replica_is_alive_while_its_lease_changes_and_an_expired_lease_is_deleted() {
        let mut replicas = Replicas::new("ours", TIMING);
        let theirs = |version| vec![("theirs".into(), SeenLease::held(version, "b"))];
        replicas.observe(theirs(1), at(0));
        replicas.observe(theirs(2), at(30));
        replicas.observe(theirs(2), at(69));
        assert_eq!(replicas.alive(at(69)).collect::<Vec<_>>(), ["b"]);
        assert!(replicas.expired(at(69)).is_empty());
        assert_eq!(replicas.alive(at(70)).count(), 0);
        assert_eq!(replicas.expired(at(70)), [("theirs".into(), 2)]);
        assert!(replicas.expired(at(109)).is_empty(), "it is not repeated at once");
        assert_eq!(replicas.expired(at(110)).len(), 1);
        replicas.observe(theirs(3), at(111));
        assert_eq!(replicas.alive(at(111)).count(), 1, "it was paused");
    }
}
