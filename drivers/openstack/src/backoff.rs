//! Exponential back-off without jitter, by the crate `backoff`.

use std::fmt;
use std::time::Duration;

use backoff::backoff::Backoff as _;
use backoff::{ExponentialBackoff, ExponentialBackoffBuilder};

/// Delays that start at an initial value and double with each failure, up to a maximum.
pub(crate) struct DoublingDelay(ExponentialBackoff);

impl DoublingDelay {
    /// Creates delays of which the first is `initial` and none is longer than `max`.
    pub(crate) fn new(initial: Duration, max: Duration) -> Self {
        let backoff = ExponentialBackoffBuilder::new()
            .with_initial_interval(initial)
            .with_max_interval(max)
            .with_multiplier(2.0)
            .with_randomization_factor(0.0)
            .with_max_elapsed_time(None)
            .build();
        Self(backoff)
    }

    /// Returns the delay after one more failure.
    pub(crate) fn next_delay(&mut self) -> Duration {
        self.0.next_backoff().unwrap_or(self.0.max_interval)
    }
}

impl fmt::Debug for DoublingDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DoublingDelay").field(&self.0.current_interval).finish()
    }
}
