//! Converts times of the runtime's clock to timestamps and seconds.

use jiff::Timestamp;
use tokio::time::Instant;

/// The current time on the runtime's clock and on the wall clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    instant: Instant,
    timestamp: Timestamp,
}

impl Now {
    /// Reads the runtime's clock and the wall clock.
    pub(super) fn read() -> Self {
        Self { instant: Instant::now(), timestamp: Timestamp::now() }
    }

    /// Returns the seconds since `instant`; 0 if it is in the future.
    pub(super) fn seconds_since(self, instant: Instant) -> f64 {
        rounded_seconds(self.instant.saturating_duration_since(instant))
    }

    /// Returns the seconds until `instant`; 0 if it is in the past.
    pub(super) fn seconds_until(self, instant: Instant) -> f64 {
        rounded_seconds(instant.saturating_duration_since(self.instant))
    }

    /// Formats `instant` as a timestamp in UTC with milliseconds (RFC 3339).
    pub(super) fn rfc3339(self, instant: Instant) -> String {
        let ago = self.instant.saturating_duration_since(instant);
        let ahead = instant.saturating_duration_since(self.instant);
        let timestamp = self.timestamp.checked_sub(ago).and_then(|past| past.checked_add(ahead));
        // Only a time thousands of years ahead is out of range.
        format!("{:.3}", timestamp.unwrap_or(Timestamp::MAX))
    }
}

/// Converts a duration to seconds, rounded to milliseconds.
fn rounded_seconds(time: std::time::Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_instant_is_converted_to_a_timestamp_and_to_seconds() {
        let instant = Instant::now() + Duration::from_secs(3600);
        let now = Now { instant, timestamp: "2026-11-21T14:00:00.25Z".parse().unwrap() };
        let (past, future) = (instant - Duration::from_millis(1500), instant + Duration::from_secs(60));
        assert_eq!(now.rfc3339(past), "2026-11-21T13:59:58.750Z");
        assert_eq!(now.rfc3339(future), "2026-11-21T14:01:00.250Z");
        assert_eq!((now.seconds_since(past), now.seconds_until(past)), (1.5, 0.0));
        assert_eq!((now.seconds_since(future), now.seconds_until(future)), (0.0, 60.0));
    }
}
