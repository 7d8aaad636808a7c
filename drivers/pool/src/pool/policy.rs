//! The policy that decides how many items a warm pool keeps free.

/// The counts of a pool: of items, except for the fields that count groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// The number of items that owners hold.
    pub used: usize,
    /// The number of free items that can be handed out.
    pub warm: usize,
    /// The number of items that were returned and are still in their cool-down.
    pub cooling: usize,
    /// The number of owners that wait for an item.
    pub waiting: usize,
    /// The approximate number of requests for items within the last cool-down period; 0 if `on_demand`.
    pub recent: usize,
    /// `true` if items are created for waiting owners only: no item was requested yet, or none since creation last failed with
    /// [`Shortfall::Refused`](super::Shortfall::Refused), or the groups that were found at the start are still in their cool-down.
    pub on_demand: bool,
    /// The number of items in one group.
    pub group_size: usize,
    /// The number of groups that exist.
    pub groups: usize,
    /// The number of groups whose items are all free.
    pub wholly_free: usize,
    /// The number of groups that are being created.
    pub growing: usize,
    /// The number of groups that are being deleted, or will be.
    pub shrinking: usize,
}

/// The change of a pool's size that a policy decides, in whole groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeChange {
    /// Leave the size as it is.
    Hold,
    /// Create this number of groups, 1 or more.
    Grow(usize),
    /// Delete this number of groups, 1 or more.
    Shrink(usize),
}

/// Decides the size of a pool. A decision depends only on the counts of the pool.
pub trait SizePolicy: Send + Sync {
    /// Decides the next change of a pool with these counts.
    fn plan(&self, counts: &PoolCounts) -> SizeChange;
}

/// The policy of Kuryr's VIF pools, with its three options: at least `min` free items, at most `max`, and at least `batch` created at
/// once (`ports_pool_min`, `ports_pool_max`, `ports_pool_batch`).
///
/// In addition, the pool keeps at least half as many free items as there were recent requests for items, up to `max`. So a burst of
/// requests finds more than `min` free items in its second half, while a single request does not raise the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinMaxBatch {
    /// The minimum number of free items.
    pub min: usize,
    /// The maximum number of free items, 0 for no limit. Not less than `min`. No items are created while those that are free or in
    /// their cool-down are as many as this number and the waiting owners together.
    pub max: usize,
    /// The minimum number of items that the pool creates at once, as far as `max` and `cap_groups` allow; ignored while items are created
    /// for waiting owners only.
    pub batch: usize,
    /// The maximum number of groups; `None` for no limit.
    pub cap_groups: Option<usize>,
}

impl SizePolicy for MinMaxBatch {
    fn plan(&self, counts: &PoolCounts) -> SizeChange {
        let PoolCounts { warm, cooling, waiting, recent, group_size, groups, growing, wholly_free, .. } =
            *counts;
        let size = group_size.max(1);
        let most = if self.max == 0 { usize::MAX } else { self.max };
        let target = if counts.on_demand { 0 } else { self.min.max(recent / 2).min(most) };
        let have = warm + growing * size;
        if have < target + waiting {
            let missing = target + waiting - have;
            // Items in their cool-down count: a program that restarts again and again would otherwise create new ones each time.
            let room = most.saturating_add(waiting).saturating_sub(have + cooling);
            let cap = self.cap_groups.map_or(usize::MAX, |cap| cap.saturating_sub(groups + growing));
            let batch = if counts.on_demand { 0 } else { self.batch.min(room) };
            // A waiting owner does not wait for a large refill.
            let first = waiting.saturating_add(self.batch);
            let many = waiting > 0 && missing > first.saturating_mul(2);
            let wanted = if many { first } else { missing.max(batch) }.min(room).div_ceil(size).min(cap);
            return if wanted == 0 { SizeChange::Hold } else { SizeChange::Grow(wanted) };
        }
        let surplus = (warm.saturating_sub(most.saturating_add(waiting)) / size).min(wholly_free);
        if surplus == 0 { SizeChange::Hold } else { SizeChange::Shrink(surplus) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KURYR: MinMaxBatch = MinMaxBatch { min: 5, max: 0, batch: 10, cap_groups: None };

    fn counts(warm: usize, waiting: usize, recent: usize) -> PoolCounts {
        PoolCounts {
            warm,
            waiting,
            recent,
            group_size: 1,
            groups: warm,
            wholly_free: warm,
            ..PoolCounts::default()
        }
    }

    #[test]
    fn below_its_least_a_pool_grows_by_a_batch_or_by_what_is_missing() {
        assert_eq!(KURYR.plan(&counts(5, 0, 0)), SizeChange::Hold);
        assert_eq!(KURYR.plan(&counts(4, 0, 0)), SizeChange::Grow(10));
        assert_eq!(KURYR.plan(&counts(0, 20, 20)), SizeChange::Grow(30));
        assert_eq!(KURYR.plan(&PoolCounts { growing: 5, ..counts(0, 0, 0) }), SizeChange::Hold);
    }

    #[test]
    fn whoever_waits_does_not_wait_for_a_large_refill() {
        let large = MinMaxBatch { min: 300, ..KURYR };
        assert_eq!(large.plan(&counts(0, 1, 1)), SizeChange::Grow(11));
        assert_eq!(large.plan(&counts(10, 0, 1)), SizeChange::Grow(290), "and then all of it");
        assert_eq!(
            MinMaxBatch { min: 20, ..KURYR }.plan(&counts(0, 1, 1)),
            SizeChange::Grow(21),
            "it is not worth a call"
        );
    }

    #[test]
    fn half_of_what_was_asked_for_lately_is_kept_ahead_within_the_most() {
        assert_eq!(KURYR.plan(&counts(49, 0, 100)), SizeChange::Grow(10));
        assert_eq!(KURYR.plan(&counts(50, 0, 100)), SizeChange::Hold);
        assert_eq!(MinMaxBatch { max: 20, ..KURYR }.plan(&counts(20, 0, 100)), SizeChange::Hold);
    }

    #[test]
    fn past_its_most_a_pool_shrinks_and_a_batch_does_not_lead_past_it() {
        let bounded = MinMaxBatch { max: 8, ..KURYR };
        assert_eq!(bounded.plan(&counts(11, 0, 0)), SizeChange::Shrink(3));
        assert_eq!(bounded.plan(&counts(8, 0, 0)), SizeChange::Hold);
        assert_eq!(bounded.plan(&counts(4, 0, 0)), SizeChange::Grow(4));
        assert_eq!(bounded.plan(&counts(0, 30, 30)), SizeChange::Grow(38));
        assert_eq!(KURYR.plan(&counts(1000, 0, 0)), SizeChange::Hold, "0 is no bound");
    }

    #[test]
    fn items_in_their_cool_down_count_towards_the_maximum() {
        let bounded = MinMaxBatch { max: 20, ..KURYR };
        let found = |cooling, waiting| bounded.plan(&PoolCounts { cooling, ..counts(0, waiting, 0) });
        assert_eq!(found(19, 0), SizeChange::Grow(1));
        assert_eq!(found(20, 0), SizeChange::Hold);
        assert_eq!(found(100, 100), SizeChange::Grow(20));
        assert_eq!(found(479, 100), SizeChange::Hold, "they are free when their cool-down ends");
        assert_eq!(
            KURYR.plan(&PoolCounts { cooling: 479, ..counts(0, 1, 1) }),
            SizeChange::Grow(10),
            "0 is no bound"
        );
    }

    #[test]
    fn groups_are_whole_and_bounded() {
        let four = PoolCounts { group_size: 4, groups: 2, ..counts(1, 0, 0) };
        assert_eq!(KURYR.plan(&four), SizeChange::Grow(3));
        assert_eq!(MinMaxBatch { cap_groups: Some(3), ..KURYR }.plan(&four), SizeChange::Grow(1));
        assert_eq!(MinMaxBatch { cap_groups: Some(2), ..KURYR }.plan(&four), SizeChange::Hold);
        let surplus = PoolCounts { group_size: 4, groups: 4, wholly_free: 1, ..counts(13, 0, 0) };
        assert_eq!(
            MinMaxBatch { max: 5, ..KURYR }.plan(&surplus),
            SizeChange::Shrink(1),
            "no group that is in use"
        );
    }
}
