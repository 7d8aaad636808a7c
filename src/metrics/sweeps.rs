//! The sweeps of one handler.

use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;

/// Counts the sweeps of one handler.
#[derive(Default)]
pub(crate) struct Sweeps {
    succeeded: AtomicU64,
    failed: AtomicU64,
    orphans: AtomicU64,
    /// In milliseconds since 1970; 0 before the first.
    last_success: AtomicU64,
}

impl Sweeps {
    /// A sweep was made, and found so many owners gone.
    pub(crate) fn succeeded(&self, orphans: usize) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        self.orphans.fetch_add(orphans as u64, Ordering::Relaxed);
        let now = Timestamp::now().as_millisecond().try_into().unwrap_or_default();
        self.last_success.store(now, Ordering::Relaxed);
    }

    /// A sweep could not be made.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// How many sweeps there were, by their outcome.
    pub(super) fn counts(&self) -> [(&'static str, u64); 2] {
        [
            ("success", self.succeeded.load(Ordering::Relaxed)),
            ("failure", self.failed.load(Ordering::Relaxed)),
        ]
    }

    /// How many owners they found gone.
    pub(super) fn orphans(&self) -> u64 {
        self.orphans.load(Ordering::Relaxed)
    }

    /// When the last one succeeded, in seconds since 1970; 0 before the first.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far from 2^52")]
    pub(super) fn last_success(&self) -> f64 {
        self.last_success.load(Ordering::Relaxed) as f64 / 1000.0
    }
}
