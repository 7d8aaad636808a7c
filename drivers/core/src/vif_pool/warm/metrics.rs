//! Metrics of a pool.

/// Metrics of a pool: gauges, and counters since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VifPoolMetrics {
    /// VIFs that are ready to be handed out.
    pub free: usize,
    /// VIFs that were returned and cool down.
    pub cooling: usize,
    /// VIFs that pods use.
    pub used: usize,
    /// VIFs that are being created.
    pub creating: usize,
    /// VIFs that are to be deleted.
    pub deleting: usize,
    /// Pods that wait for a VIF.
    pub waiting: usize,
    /// VIFs that were handed out at once.
    pub warm: u64,
    /// VIFs that were handed out to waiting pods.
    pub waited: u64,
    /// Calls that created VIFs without a failure.
    pub refills: u64,
    /// Calls that failed to create VIFs, all or some of them.
    pub short_refills: u64,
    /// VIFs that two pods list, or that a pod lists and that do not exist.
    pub conflicts: u64,
}

impl VifPoolMetrics {
    /// Adds the counters of an earlier pool, and none of its gauges.
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
