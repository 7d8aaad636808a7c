//! Even shares of the nodes among replicas, without I/O.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The interval at which the Leases of nodes are checked.
pub(super) const ELECTION_INTERVAL: Duration = Duration::from_millis(500);

/// The delay before a replica that already has its share of the nodes takes a node whose Lease nobody holds, so that others can take it
/// first.
const FULL_DELAY: Duration = Duration::from_millis(2500);

/// The maximum delay before a replica below its share takes a free node. With [`TIE_BREAK`], it is at most [`FULL_DELAY`].
const MAX_DELAY_BELOW: Duration = Duration::from_secs(1);

/// The upper bound of [`tie_break`], the part of a delay that differs between replicas with the same number of nodes. It is several times
/// [`ELECTION_INTERVAL`].
const TIE_BREAK: Duration = Duration::from_millis(1500);

/// A replica may exceed its share by one part in `SLACK_DIVISOR` (a tenth) without giving nodes up.
const SLACK_DIVISOR: usize = 10;

/// A replica gives up at most one part in `MOVED_DIVISOR` (a quarter) of its share in one renewal period.
const MOVED_DIVISOR: usize = 4;

/// The number of nodes that each replica is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FairShare(usize);

impl FairShare {
    /// Returns the share of each of `replicas` that look after `nodes` nodes.
    pub(super) fn new(nodes: usize, replicas: usize) -> Self {
        Self(nodes.div_ceil(replicas.max(1)).max(1))
    }

    /// Returns the delay after which a replica with `held` nodes takes a node whose Lease nobody holds. A replica with less than its share
    /// always precedes one that has it.
    pub(super) fn delay(self, held: usize) -> Duration {
        let percent = u32::try_from(held * 100 / self.0).unwrap_or(u32::MAX);
        if percent >= 100 { FULL_DELAY } else { MAX_DELAY_BELOW * percent / 100 }
    }

    /// Returns the number of nodes by which `held` exceeds the share plus a tenth of it ([`SLACK_DIVISOR`]); 0 if it does not.
    pub(super) fn surplus(self, held: usize) -> usize {
        held.saturating_sub(self.0 + self.0 / SLACK_DIVISOR)
    }

    /// Returns the number of nodes that a replica gives up in one renewal period at most. None is given up while that many nodes have no
    /// holder.
    pub(super) fn moved_in_a_period(self) -> usize {
        self.0.div_ceil(MOVED_DIVISOR)
    }
}

/// Returns a part of [`TIE_BREAK`], different for each replica and node, so that replicas with the same number of nodes do
/// not all try to take the same one, and none of them takes all.
pub(super) fn tie_break(replica: &str, node: &str) -> Duration {
    TIE_BREAK * (digest(replica, node) % 1000) / 1000
}

/// Returns a duration up to a tenth shorter than `interval`, different for each node, so that nodes that were added together
/// do not renew their Leases together.
pub(super) fn spread(interval: Duration, node: &str) -> Duration {
    interval * (1000 - digest("renewal", node) % 101) / 1000
}

/// Returns a hash of two texts.
fn digest(one: &str, other: &str) -> u32 {
    let mut digest = DefaultHasher::new();
    (one, other).hash(&mut digest);
    u32::try_from(digest.finish() >> 32).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_replicas_have_room_for_all_nodes() {
        for (nodes, replicas, share) in [(1000, 3, 334), (12, 3, 4), (13, 3, 5), (2, 3, 1), (0, 0, 1)] {
            assert_eq!(FairShare::new(nodes, replicas), FairShare(share));
        }
    }

    #[test]
    fn a_replica_below_its_share_precedes_one_that_has_it_whatever_the_tie_break() {
        for share in [1, 7, 334] {
            let last = FairShare(share).delay(share - 1) + TIE_BREAK;
            assert!(last <= FairShare(share).delay(share), "{share}");
            assert_eq!(FairShare(share).delay(0), Duration::ZERO);
            assert_eq!(FairShare(share).delay(share * 9), FULL_DELAY);
        }
    }

    #[test]
    fn a_replica_gives_up_what_exceeds_its_share_by_more_than_a_tenth_and_a_quarter_of_a_share_in_a_period() {
        let (large, small) = (FairShare(334), FairShare(4));
        assert_eq!([334, 367, 368, 1000].map(|held| large.surplus(held)), [0, 0, 1, 633]);
        assert_eq!([0, 4, 5, 12].map(|held| small.surplus(held)), [0, 0, 1, 8]);
        assert_eq!((large.moved_in_a_period(), small.moved_in_a_period()), (84, 1));
    }
}
