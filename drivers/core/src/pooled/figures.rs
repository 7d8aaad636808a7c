//! What a pool tells of itself in figures.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a pool tells of itself: how it stands, and what it has counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolFigures {
    /// VIFs that are ready to be handed out.
    pub free: usize,
    /// VIFs that were given back and cool down.
    pub cooling: usize,
    /// VIFs that pods use.
    pub used: usize,
    /// VIFs that are being made.
    pub making: usize,
    /// VIFs that are to be destroyed.
    pub doomed: usize,
    /// Pods that wait for a VIF.
    pub waiting: usize,
    /// VIFs that were handed out at once.
    pub warm: u64,
    /// VIFs that were handed out to pods that had to wait for them.
    pub waited: u64,
    /// Calls for VIFs that brought some, and failed in nothing.
    pub refills: u64,
    /// Calls for VIFs that failed, wholly or for a part, or brought none.
    pub short_refills: u64,
    /// VIFs of which it is known that two pods show them, or that they do not exist though a pod shows them.
    pub conflicts: u64,
}

/// What is counted.
#[derive(Default)]
pub(super) struct Counters {
    pub(super) warm: AtomicU64,
    pub(super) waited: AtomicU64,
    pub(super) refills: AtomicU64,
    pub(super) short_refills: AtomicU64,
    pub(super) conflicts: AtomicU64,
}

impl PoolFigures {
    /// Adds what an earlier pool has counted, and nothing of how it stood.
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

impl Counters {
    /// What was counted, with nothing of how the pool stands.
    pub(super) fn figures(&self) -> PoolFigures {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        PoolFigures {
            warm: read(&self.warm),
            waited: read(&self.waited),
            refills: read(&self.refills),
            short_refills: read(&self.short_refills),
            conflicts: read(&self.conflicts),
            ..PoolFigures::default()
        }
    }
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
