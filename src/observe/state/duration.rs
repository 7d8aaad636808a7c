//! Durations as text for people.

/// Formats a duration with its two largest units, for the status page and `staffetta status`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "negative values become 0 and large ones the maximum"
)]
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{:02}s", seconds % 60),
        3600..86_400 => format!("{hours}h{:02}m", minutes % 60),
        _ => format!("{days}d{:02}h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_written_in_its_two_largest_units() {
        for (seconds, written) in [
            (0.0, "0s"),
            (59.4, "59s"),
            (59.6, "1m00s"),
            (185.0, "3m05s"),
            (7800.0, "2h10m"),
            (356_400.0, "4d03h"),
        ] {
            assert_eq!(duration(seconds), written);
        }
    }
}
