//! How many calls may be in flight: additive increase, multiplicative decrease, as TCP does it (RFC 5681). A function of
//! what was answered and of time.

use std::time::Duration;

use tokio::time::Instant;

/// After a decrease, further ones are ignored for so long: they are answers to calls that were under way.
const SETTLE: Duration = Duration::from_secs(1);

/// How many calls may be in flight.
#[derive(Debug)]
pub(super) struct Window {
    size: usize,
    max: usize,
    /// Good answers since the size last changed.
    good: usize,
    settled: Option<Instant>,
}

impl Window {
    /// As wide as it may be.
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        Self { size: max, max, good: 0, settled: None }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// The service answered as it should: after a whole window of such answers, one more call may be in flight.
    pub(super) fn answered(&mut self) {
        self.good += 1;
        if self.good >= self.size && self.size < self.max {
            (self.size, self.good) = (self.size + 1, 0);
        }
    }

    /// The service said that it is asked too much: half as many calls, one at least.
    pub(super) fn throttled(&mut self, now: Instant) {
        if self.settled.is_some_and(|settled| now < settled) {
            return;
        }
        (self.size, self.good, self.settled) = ((self.size / 2).max(1), 0, Some(now + SETTLE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_halves_when_throttled_and_grows_by_one_a_window() {
        let mut window = Window::new(16);
        window.throttled(Instant::now());
        window.throttled(Instant::now());
        assert_eq!(window.size(), 8, "one decrease for all calls that were under way");
        for _ in 0..8 {
            window.answered();
        }
        assert_eq!(window.size(), 9);
        for _ in 0..10 {
            tokio::time::advance(SETTLE).await;
            window.throttled(Instant::now());
        }
        assert_eq!(window.size(), 1);
        for _ in 0..1000 {
            window.answered();
        }
        assert_eq!(window.size(), 16);
    }
}
