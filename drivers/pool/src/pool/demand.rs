//! Counts the recent requests for items of a warm pool, so that the pool can keep more free items while there
//! are many.

use std::time::Duration;

/// A counter of the recent requests for items of a warm pool, in constant space, over a sliding window. It keeps
/// the counts of two fixed windows, and takes the requests of the previous one as spread evenly over it.
#[derive(Clone, Debug)]
pub(super) struct Demand {
    window: Duration,
    /// The start of the current fixed window, on the clock of the pool.
    began: Duration,
    /// The number of requests in the current fixed window.
    current: usize,
    /// The number of requests in the fixed window before.
    previous: usize,
}

impl Demand {
    /// Creates a counter for a window of this length; less than 1 s counts as 1 s.
    pub(super) fn new(window: Duration) -> Self {
        Self { window: window.max(Duration::from_secs(1)), began: Duration::ZERO, current: 0, previous: 0 }
    }

    /// Counts a request that was made at the time `now`.
    pub(super) fn add(&mut self, now: Duration) {
        self.advance(now);
        self.current += 1;
    }

    /// Returns the approximate number of requests in the last `window`: those of the current fixed window, and the share of
    /// the previous one that the sliding window still covers.
    pub(super) fn recent(&self, now: Duration) -> usize {
        let mut at = self.clone();
        at.advance(now);
        let gone = now.saturating_sub(at.began).as_millis();
        let whole = at.window.as_millis();
        let left = at.previous as u128 * whole.saturating_sub(gone) / whole;
        at.current + usize::try_from(left).unwrap_or(usize::MAX)
    }

    /// Starts the fixed window that contains `now`, if the current one has ended.
    fn advance(&mut self, now: Duration) {
        let gone = now.saturating_sub(self.began);
        if gone >= self.window {
            self.previous = if gone < self.window * 2 { self.current } else { 0 };
            self.current = 0;
            let into = u64::try_from(gone.as_millis() % self.window.as_millis()).unwrap_or_default();
            self.began = now.saturating_sub(Duration::from_millis(into));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_remembered_for_a_window_and_fades_in_the_next() {
        let mut demand = Demand::new(Duration::from_secs(20));
        let at = Duration::from_secs;
        for _ in 0..100 {
            demand.add(at(43));
        }
        let recent = [43, 59, 60, 70, 79, 80, 500].map(|second| demand.recent(at(second)));
        assert_eq!(recent, [100, 100, 100, 50, 5, 0, 0]);
    }
}
