//! Durations in the configuration file.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

/// A duration in the configuration: a whole number of seconds, or a string with units such as `"500ms"`, `"30s"` or `"2m30s"`. A
/// duration is neither negative nor longer than [`TimeSpan::MAX`], so that adding it to a time cannot overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "TimeSpanForm")]
pub struct TimeSpan(Duration);

/// The reason why a value is not a [`TimeSpan`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeSpanError {
    /// The text is not a duration with units, such as `2m30s`.
    #[error("not a length of time; write seconds, or units as in \"500ms\", \"30s\" or \"2m30s\"")]
    Malformed,
    /// The value is negative, or longer than [`TimeSpan::MAX`].
    #[error("must be from 0s to {}", TimeSpan::MAX)]
    OutOfRange,
}

impl TimeSpan {
    /// The longest duration: 366 days.
    pub const MAX: Self = Self::from_secs(366 * 24 * 60 * 60);

    /// Returns a duration of `seconds`.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl From<TimeSpan> for Duration {
    fn from(span: TimeSpan) -> Self {
        span.0
    }
}

impl TryFrom<SignedDuration> for TimeSpan {
    type Error = TimeSpanError;

    fn try_from(signed: SignedDuration) -> Result<Self, TimeSpanError> {
        let span = Duration::try_from(signed).ok().map(Self);
        span.filter(|span| *span <= Self::MAX).ok_or(TimeSpanError::OutOfRange)
    }
}

impl FromStr for TimeSpan {
    type Err = TimeSpanError;

    fn from_str(text: &str) -> Result<Self, TimeSpanError> {
        text.trim().parse::<SignedDuration>().map_err(|_| TimeSpanError::Malformed)?.try_into()
    }
}

/// Writes the largest unit that needs no fraction: `500s`, `2m`, `1500ms`.
impl fmt::Display for TimeSpan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(u128, &str); 6] = [
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
            (1, "ns"),
        ];
        let nanoseconds = self.0.as_nanos();
        match UNITS.iter().find(|(length, _)| nanoseconds != 0 && nanoseconds.is_multiple_of(*length)) {
            Some((length, unit)) => write!(formatter, "{}{unit}", nanoseconds / length),
            None => formatter.write_str("0s"),
        }
    }
}

impl Serialize for TimeSpan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The two forms in which a file writes a [`TimeSpan`].
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a number of seconds, or a string such as \"2m30s\"")]
enum TimeSpanForm {
    /// A whole number of seconds.
    Seconds(i64),
    /// A string with units.
    Text(String),
}

impl TryFrom<TimeSpanForm> for TimeSpan {
    type Error = TimeSpanError;

    fn try_from(form: TimeSpanForm) -> Result<Self, TimeSpanError> {
        match form {
            TimeSpanForm::Seconds(seconds) => SignedDuration::from_secs(seconds).try_into(),
            TimeSpanForm::Text(text) => text.parse(),
        }
    }
}

impl JsonSchema for TimeSpan {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TimeSpan".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "format": "span" })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn units_may_be_combined_and_a_bare_number_is_seconds() {
        assert_eq!("2m30s".parse(), Ok(TimeSpan::from_secs(150)));
        assert_eq!("500ms".parse(), Ok(TimeSpan(Duration::from_millis(500))));
        assert_eq!(serde_json::from_str::<TimeSpan>("90").unwrap(), TimeSpan::from_secs(90));
        assert_eq!(serde_json::from_str::<TimeSpan>("\"1 hour\"").unwrap(), TimeSpan::from_secs(3600));
    }

    #[test]
    fn malformed_negative_and_too_long_values_are_rejected() {
        for text in ["", "60", "soon"] {
            assert_eq!(text.parse::<TimeSpan>(), Err(TimeSpanError::Malformed), "{text}");
        }
        for text in ["-5s", "5s ago", "8785h"] {
            assert_eq!(text.parse::<TimeSpan>(), Err(TimeSpanError::OutOfRange), "{text}");
        }
        for number in ["-1", "9223372036854775807", "1.5"] {
            assert!(serde_json::from_str::<TimeSpan>(number).is_err(), "{number}");
        }
    }

    #[test]
    fn a_length_of_time_is_written_in_the_largest_unit_without_a_fraction() {
        let written = |span: TimeSpan| span.to_string();
        assert_eq!(written(TimeSpan::from_secs(0)), "0s");
        assert_eq!(written(TimeSpan::from_secs(500)), "500s");
        assert_eq!(written(TimeSpan::from_secs(120)), "2m");
        assert_eq!(written(TimeSpan(Duration::from_millis(1500))), "1500ms");
    }

    proptest! {
        #[test]
        fn a_written_length_of_time_parses_to_the_same_value(nanoseconds in 0..=TimeSpan::MAX.0.as_nanos()) {
            let span = TimeSpan(Duration::from_nanos(u64::try_from(nanoseconds).unwrap()));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
    }
}
