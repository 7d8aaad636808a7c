//! Metrics of a VIF pool.

/// Metrics of a VIF pool. The fields up to `waiting` are gauges; the others are counters since the creation of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VifPoolMetrics {
    /// The number of free VIFs, which can be handed out at once.
    pub free: usize,
    /// The number of VIFs that were returned and are still in their cool-down.
    pub cooling: usize,
    /// The number of VIFs that pods use.
    pub used: usize,
    /// The number of VIFs that are being created.
    pub creating: usize,
    /// The number of VIFs that are being deleted, or will be.
    pub deleting: usize,
    /// The number of pods that wait for a VIF.
    pub waiting: usize,
    /// The number of requests that got a VIF at once.
    pub warm: u64,
    /// The number of requests that got a VIF after they had waited for it.
    pub waited: u64,
    /// The number of calls that created VIFs without a failure.
    pub refills: u64,
    /// The number of calls that failed to create some or all of the VIFs.
    pub short_refills: u64,
    /// The number of conflicts that were found: VIFs that two pods list, and VIFs that a pod uses and that do not exist.
    pub conflicts: u64,
}

impl VifPoolMetrics {
    /// Adds the counters of a previous pool; its gauges are ignored.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        Self {
            warm: self.warm + earlier.warm,
            waited: self.waited + earlier.waited,
            refills: self.refills + earlier.refills,
            short_refills: self.short_refills + earlier.short_refills,
            conflicts: self.conflicts + earlier.conflicts,
            ..self
        }
    }
}
