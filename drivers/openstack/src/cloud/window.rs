//! The maximum number of calls in flight. It changes by additive increase and multiplicative decrease, as in TCP (RFC 5681). Pure functions
//! of responses and time.

use std::time::Duration;

use tokio::time::Instant;

/// The time after a decrease during which no other decrease takes place, because the throttled responses belong to calls that were already
/// in flight.
const DECREASE_INTERVAL: Duration = Duration::from_secs(1);

/// The number of calls that may be in flight at present.
#[derive(Debug)]
pub(super) struct ConcurrencyWindow {
    size: usize,
    max: usize,
    /// The number of unthrottled responses since the size last changed.
    unthrottled_count: usize,
    /// The earliest time of the next decrease; `None` before the first.
    next_decrease: Option<Instant>,
}

impl ConcurrencyWindow {
    /// Creates a window of the maximum size, at least one.
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { size: max, max, unthrottled_count: 0, next_decrease: None }
    }

    /// Returns the number of calls that may be in flight now.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Records an unthrottled response. The window grows by one after as many of these as its size, up to the maximum.
    pub(super) fn answered(&mut self) {
        self.unthrottled_count += 1;
        if self.unthrottled_count >= self.size && self.size < self.max {
            (self.size, self.unthrottled_count) = (self.size + 1, 0);
        }
    }

    /// Records a throttled response. The window halves, down to one, unless it did so less than a second ago.
    pub(super) fn throttled(&mut self, now: Instant) {
        if self.next_decrease.is_none_or(|next| now >= next) {
            (self.size, self.unthrottled_count) = ((self.size / 2).max(1), 0);
            self.next_decrease = Some(now + DECREASE_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_halves_when_throttled_and_grows_by_one_a_window() {
        let mut window = ConcurrencyWindow::new(16);
        window.throttled(Instant::now());
        window.throttled(Instant::now());
        assert_eq!(window.size(), 8, "one decrease for all calls that were under way");
        for _ in 0..8 {
            window.answered();
        }
        assert_eq!(window.size(), 9);
        for _ in 0..10 {
            tokio::time::advance(DECREASE_INTERVAL).await;
            window.throttled(Instant::now());
        }
        assert_eq!(window.size(), 1);
        for _ in 0..1000 {
            window.answered();
        }
        assert_eq!(window.size(), 16);
    }
}
