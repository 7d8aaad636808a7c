//! The size policy of a pool.

/// Counts of a pool, of items unless they are called groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Items that owners hold.
    pub used: usize,
    /// Items that are free.
    pub warm: usize,
    /// Items that were returned and cool down.
    pub cooling: usize,
    /// Owners that wait for an item.
    pub waiting: usize,
    /// Items that were requested within about the last cool-down.
    pub lately: usize,
    /// `true` if items are created for waiting requests only: no item was requested yet, or none since a final refusal,
    /// or what was found at the start cools down.
    pub on_demand: bool,
    /// Items of one group.
    pub group_size: usize,
    /// Groups that exist.
    pub groups: usize,
    /// Groups of which all items are free.
    pub wholly_free: usize,
    /// Groups that are being created.
    pub growing: usize,
    /// Groups that are being deleted, or will be.
    pub shrinking: usize,
}

/// The resize that a policy decides, in whole groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Change nothing.
    Hold,
    /// Create this number of groups, 1 or more.
    Grow(usize),
    /// Delete this number of groups, 1 or more.
    Shrink(usize),
}

/// Decides the size of a pool: a pure function of its counts.
pub trait Policy: Send + Sync {
    /// Decides the resize of a pool with these counts.
    fn plan(&self, counts: &Counts) -> Plan;
}

/// Kuryr's values: at least `min` free items, at most `max`, `batch` at a time.
///
/// It runs ahead of demand: half of the number of recent requests is kept free too, so that a burst finds more than `min` in
/// its second half, and a single pod no more than that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MinMaxBatch {
    /// The minimum number of free items.
    pub min: usize,
    /// The maximum number of free items, 0 for no limit. Not less than `min`.
    pub max: usize,
    /// The minimum number of VIFs that are created at a time.
    pub batch: usize,
    /// The maximum number of groups; `None` for no limit.
    pub cap_groups: Option<usize>,
}

impl Policy for MinMaxBatch {
    fn plan(&self, counts: &Counts) -> Plan {
        let Counts { warm, waiting, lately, group_size, groups, growing, wholly_free, .. } = *counts;
        let size = group_size.max(1);
        let most = if self.max == 0 { usize::MAX } else { self.max };
        let target = if counts.on_demand { 0 } else { self.min.max(lately / 2).min(most) };
        let have = warm + growing * size;
        if have < target + waiting {
            let missing = target + waiting - have;
            let room = most.saturating_add(waiting) - have;
            let cap = self.cap_groups.map_or(usize::MAX, |cap| cap.saturating_sub(groups + growing));
            let batch = if counts.on_demand { 0 } else { self.batch.min(room) };
            // A waiting owner does not wait for a large refill.
            let first = waiting.saturating_add(self.batch);
            let many = waiting > 0 && missing > first.saturating_mul(2);
            let wanted = if many { first } else { missing.max(batch) }.div_ceil(size).min(cap);
            return if wanted == 0 { Plan::Hold } else { Plan::Grow(wanted) };
        }
        let surplus = (warm.saturating_sub(most.saturating_add(waiting)) / size).min(wholly_free);
        if surplus == 0 { Plan::Hold } else { Plan::Shrink(surplus) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KURYR: MinMaxBatch = MinMaxBatch { min: 5, max: 0, batch: 10, cap_groups: None };

    fn counts(warm: usize, waiting: usize, lately: usize) -> Counts {
        Counts { warm, waiting, lately, group_size: 1, groups: warm, wholly_free: warm, ..Counts::default() }
    }

    #[test]
    fn below_its_least_a_pool_grows_by_a_batch_or_by_what_is_missing() {
        assert_eq!(KURYR.plan(&counts(5, 0, 0)), Plan::Hold);
        assert_eq!(KURYR.plan(&counts(4, 0, 0)), Plan::Grow(10));
        assert_eq!(KURYR.plan(&counts(0, 20, 20)), Plan::Grow(30));
        assert_eq!(KURYR.plan(&Counts { growing: 5, ..counts(0, 0, 0) }), Plan::Hold);
    }

    #[test]
    fn whoever_waits_does_not_wait_for_a_large_refill() {
        let large = MinMaxBatch { min: 300, ..KURYR };
        assert_eq!(large.plan(&counts(0, 1, 1)), Plan::Grow(11));
        assert_eq!(large.plan(&counts(10, 0, 1)), Plan::Grow(290), "and then all of it");
        assert_eq!(
            MinMaxBatch { min: 20, ..KURYR }.plan(&counts(0, 1, 1)),
            Plan::Grow(21),
            "it is not worth a call"
        );
    }

    #[test]
    fn half_of_what_was_asked_for_lately_is_kept_ahead_within_the_most() {
        assert_eq!(KURYR.plan(&counts(49, 0, 100)), Plan::Grow(10));
        assert_eq!(KURYR.plan(&counts(50, 0, 100)), Plan::Hold);
        assert_eq!(MinMaxBatch { max: 20, ..KURYR }.plan(&counts(20, 0, 100)), Plan::Hold);
    }

    #[test]
    fn past_its_most_a_pool_shrinks_and_a_batch_does_not_lead_past_it() {
        let bounded = MinMaxBatch { max: 8, ..KURYR };
        assert_eq!(bounded.plan(&counts(11, 0, 0)), Plan::Shrink(3));
        assert_eq!(bounded.plan(&counts(8, 0, 0)), Plan::Hold);
        assert_eq!(bounded.plan(&counts(4, 0, 0)), Plan::Grow(4));
        assert_eq!(bounded.plan(&counts(0, 30, 30)), Plan::Grow(38));
        assert_eq!(KURYR.plan(&counts(1000, 0, 0)), Plan::Hold, "0 is no bound");
    }

    #[test]
    fn groups_are_whole_and_bounded() {
        let four = Counts { group_size: 4, groups: 2, ..counts(1, 0, 0) };
        assert_eq!(KURYR.plan(&four), Plan::Grow(3));
        assert_eq!(MinMaxBatch { cap_groups: Some(3), ..KURYR }.plan(&four), Plan::Grow(1));
        assert_eq!(MinMaxBatch { cap_groups: Some(2), ..KURYR }.plan(&four), Plan::Hold);
        let surplus = Counts { group_size: 4, groups: 4, wholly_free: 1, ..counts(13, 0, 0) };
        assert_eq!(
            MinMaxBatch { max: 5, ..KURYR }.plan(&surplus),
            Plan::Shrink(1),
            "no group that is in use"
        );
    }
}
