//! A token bucket for the writes of Events. Its state is only the time at which it is full again.

use std::time::Duration;

use tokio::time::Instant;

/// A rate limit: allows `burst` requests without delay, then one in each `interval`.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    burst: u32,
    interval: Duration,
    /// The time at which the bucket is full again.
    full_at: Instant,
}

impl TokenBucket {
    /// Returns a full bucket. `burst` must be at least 1.
    pub(super) fn full(burst: u32, interval: Duration, now: Instant) -> Self {
        Self { burst, interval, full_at: now }
    }

    /// Returns the time from which a token is available.
    pub(super) fn available_at(&self) -> Instant {
        let at = self.full_at.checked_sub(self.interval.saturating_mul(self.burst.saturating_sub(1)));
        at.unwrap_or_else(Instant::now)
    }

    /// Takes a token. The caller has checked [`available_at`](Self::available_at).
    pub(super) fn take(&mut self, now: Instant) {
        self.full_at = self.full_at.max(now) + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_burst_there_is_one_token_an_interval_and_after_a_pause_the_whole_burst() {
        let mut now = Instant::now() + Duration::from_secs(1000);
        let mut bucket = TokenBucket::full(3, Duration::from_secs(10), now);
        for _ in 0..3 {
            assert!(bucket.available_at() <= now);
            bucket.take(now);
        }
        assert_eq!(bucket.available_at() - now, Duration::from_secs(10));
        now += Duration::from_secs(10);
        bucket.take(now);
        assert_eq!(bucket.available_at() - now, Duration::from_secs(10));
        now += Duration::from_secs(1000);
        for _ in 0..3 {
            assert!(bucket.available_at() <= now);
            bucket.take(now);
        }
        assert_eq!(bucket.available_at() - now, Duration::from_secs(10));
    }
}
