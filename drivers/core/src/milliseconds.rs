//! Durations as whole milliseconds in JSON, for `#[serde(with = "milliseconds")]`. They are rounded up, so that a caller that
//! waits for the written time never waits too short.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The number of nanoseconds in a millisecond.
const NANOS_PER_MILLI: u128 = 1_000_000;

/// Returns the milliseconds of `duration`, rounded up; `u64::MAX` if they exceed 64 bits.
pub fn of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(NANOS_PER_MILLI)).unwrap_or(u64::MAX)
}

/// Serializes `duration` as whole milliseconds.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    of(*duration).serialize(serializer)
}

/// Deserializes a duration from whole milliseconds.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_millisecond_counts_as_a_whole_one() {
        assert_eq!(of(Duration::ZERO), 0);
        assert_eq!(of(Duration::from_nanos(1)), 1);
        assert_eq!(of(Duration::from_secs(30)), 30_000);
        assert_eq!(of(Duration::MAX), u64::MAX);
    }
}
