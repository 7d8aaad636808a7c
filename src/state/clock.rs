//! Moments as the program reckons with them, in words for others.

use jiff::Timestamp;
use tokio::time::Instant;

/// This moment on both clocks: that by which the program reckons, and that by which people do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    instant: Instant,
    timestamp: Timestamp,
}

impl Now {
    pub(super) fn read() -> Self {
        Self { instant: Instant::now(), timestamp: Timestamp::now() }
    }

    /// How many seconds ago it was; 0 when it is ahead.
    pub(super) fn seconds_since(self, instant: Instant) -> f64 {
        milliseconds(self.instant.saturating_duration_since(instant))
    }

    /// How many seconds it is ahead; 0 when it is over.
    pub(super) fn seconds_until(self, instant: Instant) -> f64 {
        milliseconds(instant.saturating_duration_since(self.instant))
    }

    /// The time of day, to the millisecond: RFC 3339 in UTC.
    pub(super) fn words(self, instant: Instant) -> String {
        let ago = self.instant.saturating_duration_since(instant);
        let ahead = instant.saturating_duration_since(self.instant);
        let timestamp = self.timestamp.checked_sub(ago).and_then(|past| past.checked_add(ahead));
        // Only a time thousands of years away cannot be told.
        format!("{:.3}", timestamp.unwrap_or(Timestamp::MAX))
    }
}

/// A length of time in seconds, to the millisecond.
fn milliseconds(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_moment_is_told_by_the_time_of_day_and_by_how_far_it_is() {
        let instant = Instant::now() + Duration::from_secs(3600);
        let now = Now { instant, timestamp: "2026-11-21T14:00:00.25Z".parse().unwrap() };
        let (past, future) = (instant - Duration::from_millis(1500), instant + Duration::from_secs(60));
        assert_eq!(now.words(past), "2026-11-21T13:59:58.750Z");
        assert_eq!(now.words(future), "2026-11-21T14:01:00.250Z");
        assert_eq!((now.seconds_since(past), now.seconds_until(past)), (1.5, 0.0));
        assert_eq!((now.seconds_since(future), now.seconds_until(future)), (0.0, 60.0));
    }
}
