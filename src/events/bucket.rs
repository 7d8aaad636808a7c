//! A token bucket that is one moment in time.

use std::time::Duration;

use tokio::time::Instant;

/// How often something may happen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// How often at once, after a long quiet; at least 1.
    pub(crate) burst: u32,
    /// After which time once more.
    pub(crate) interval: Duration,
}

/// How much of a [`Rate`] is used up. It says nothing else than when it is full again, so one that is full need not be kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    full: Instant,
}

impl Bucket {
    pub(crate) fn full(now: Instant) -> Self {
        Self { full: now }
    }

    /// How long until it may happen once more; nothing when it may now.
    pub(crate) fn wait(&self, rate: Rate, now: Instant) -> Duration {
        let lacking = self.full.saturating_duration_since(now);
        lacking.saturating_sub(rate.interval.saturating_mul(rate.burst.saturating_sub(1)))
    }

    /// It happens now.
    pub(crate) fn take(&mut self, rate: Rate, now: Instant) {
        self.full = self.full.max(now) + rate.interval;
    }

    pub(crate) fn is_full(&self, now: Instant) -> bool {
        self.full <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_burst_it_may_happen_once_an_interval_and_after_a_quiet_the_burst_is_back() {
        let rate = Rate { burst: 3, interval: Duration::from_secs(10) };
        let mut now = Instant::now();
        let mut bucket = Bucket::full(now);
        for _ in 0..3 {
            assert_eq!(bucket.wait(rate, now), Duration::ZERO);
            bucket.take(rate, now);
        }
        assert_eq!(bucket.wait(rate, now), Duration::from_secs(10));
        now += Duration::from_secs(4);
        assert_eq!(bucket.wait(rate, now), Duration::from_secs(6));
        now += Duration::from_secs(6);
        assert_eq!(bucket.wait(rate, now), Duration::ZERO);
        bucket.take(rate, now);
        assert!(!bucket.is_full(now) && bucket.is_full(now + Duration::from_secs(30)));
        now += Duration::from_secs(1000);
        for _ in 0..3 {
            assert_eq!(bucket.wait(rate, now), Duration::ZERO);
            bucket.take(rate, now);
        }
        assert_eq!(bucket.wait(rate, now), Duration::from_secs(10));
    }
}
