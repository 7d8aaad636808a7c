//! A warm pool that is filled with VIFs.

use std::time::Duration;

use crate::id::{SecurityGroupId, VifId};
use crate::stock::StockKey;
use crate::warm_pool::{Candidate, Kind};

/// VIFs that are made one by one. Those with the right security groups come first, then those that are active; of the
/// others that which has been free the longest.
pub(super) enum Ports {}

/// One hand-out: who asks again gets another one.
pub(super) type Hold = u64;

impl Kind for Ports {
    type Key = StockKey;
    type Group = VifId;
    type Item = VifId;
    /// The security groups, sorted.
    type Want = Vec<SecurityGroupId>;
    type Owner = Hold;
    type Rank = (bool, bool, Duration);

    fn items(group: &VifId) -> Vec<VifId> {
        vec![group.clone()]
    }

    fn rank(candidate: &Candidate<'_, Self>) -> Self::Rank {
        (!candidate.fits, !candidate.ready, candidate.since)
    }
}

/// Security groups as they are compared.
pub(super) fn sorted(security_groups: &[SecurityGroupId]) -> Vec<SecurityGroupId> {
    let mut sorted = security_groups.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted
}
