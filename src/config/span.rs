//! A length of time, as a configuration file writes it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::SignedDuration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time: a whole number of seconds, or a string with units such as `"500ms"`, `"30s"` or `"2m30s"`.
/// It is neither negative nor longer than [`Span::MAX`], so that adding it to a clock cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

/// Why something is not a [`Span`].
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// Not a number with a unit.
    #[error("is not a length of time; write seconds, or units as in \"500ms\", \"30s\" or \"2m30s\"")]
    Malformed,
    /// Time does not run backwards here.
    #[error("is negative")]
    Negative,
    /// Longer than [`Span::MAX`].
    #[error("is more than {}", Span::MAX)]
    TooLong,
}

impl Span {
    /// The longest length of time: 366 days.
    pub const MAX: Self = Self::from_secs(366 * 24 * 60 * 60);

    /// A number of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A number of milliseconds.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(Duration::from_millis(milliseconds))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.0
    }
}

impl TryFrom<i128> for Span {
    type Error = SpanError;

    fn try_from(seconds: i128) -> Result<Self, SpanError> {
        if seconds < 0 {
            return Err(SpanError::Negative);
        }
        let seconds = u64::try_from(seconds).map_err(|_| SpanError::TooLong)?;
        Some(Self::from_secs(seconds)).filter(|span| *span <= Self::MAX).ok_or(SpanError::TooLong)
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let signed: SignedDuration = text.trim().parse().map_err(|_| SpanError::Malformed)?;
        let duration = Duration::try_from(signed).map_err(|_| SpanError::Negative)?;
        Some(Self(duration)).filter(|span| *span <= Self::MAX).ok_or(SpanError::TooLong)
    }
}

/// In the largest unit that needs no fraction: `500s`, `2m`, `1500ms`.
impl fmt::Display for Span {
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

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("seconds, or a string such as \"2m30s\"")
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Span, E> {
        Span::try_from(i128::from(seconds)).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Span, E> {
        Span::try_from(i128::from(seconds)).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Span".into()
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
        assert_eq!("2m30s".parse(), Ok(Span::from_secs(150)));
        assert_eq!("500ms".parse(), Ok(Span::from_millis(500)));
        assert_eq!(serde_json::from_str::<Span>("90").unwrap(), Span::from_secs(90));
        assert_eq!(serde_json::from_str::<Span>("\"1 hour\"").unwrap(), Span::from_secs(3600));
    }

    #[test]
    fn what_is_not_a_length_of_time_is_refused() {
        assert_eq!("".parse::<Span>(), Err(SpanError::Malformed));
        assert_eq!("60".parse::<Span>(), Err(SpanError::Malformed));
        assert_eq!("soon".parse::<Span>(), Err(SpanError::Malformed));
        assert_eq!("-5s".parse::<Span>(), Err(SpanError::Negative));
        assert_eq!("5s ago".parse::<Span>(), Err(SpanError::Negative));
        assert_eq!("8785h".parse::<Span>(), Err(SpanError::TooLong));
        assert_eq!(Span::try_from(-1), Err(SpanError::Negative));
        assert_eq!(Span::try_from(i128::MAX), Err(SpanError::TooLong));
        assert!(serde_json::from_str::<Span>("1.5").is_err());
    }

    #[test]
    fn it_is_written_in_the_largest_whole_unit() {
        let written = |span: Span| span.to_string();
        assert_eq!(written(Span::from_secs(0)), "0s");
        assert_eq!(written(Span::from_secs(500)), "500s");
        assert_eq!(written(Span::from_secs(120)), "2m");
        assert_eq!(written(Span::from_millis(1500)), "1500ms");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(nanoseconds in 0..=Span::MAX.0.as_nanos()) {
            let span = Span(Duration::from_nanos(u64::try_from(nanoseconds).unwrap()));
            prop_assert_eq!(span.to_string().parse(), Ok(span));
        }
    }
}
