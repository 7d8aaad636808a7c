//! The JSON form of the source of a [`DriverError`](super::DriverError): the messages of the error chain, the nearest cause
//! first.

use std::error::Error;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serializer};

/// The type of the source of a `DriverError`. It is shared, because errors are cloned for all who wait for the same call.
type Source = Arc<dyn Error + Send + Sync>;

/// A cause that was read from JSON, of which only the message is known.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Cause {
    text: String,
    #[source]
    next: Option<Arc<Cause>>,
}

/// Serializes the error chain as a list of messages; an error without a source is an empty list.
#[expect(clippy::ref_option, reason = "serde passes a reference to the field")]
pub(super) fn serialize<S: Serializer>(source: &Option<Source>, serializer: S) -> Result<S::Ok, S::Error> {
    let source = source.as_deref().map(|source| source as &dyn Error);
    serializer.collect_seq(std::iter::successors(source, |cause| (*cause).source()).map(ToString::to_string))
}

/// Reads a list of messages as an error chain of [`Cause`]s. Returns `None` for an empty list.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Source>, D::Error> {
    let texts = Vec::deserialize(deserializer)?;
    let chain = texts.into_iter().rev().fold(None, |next, text| Some(Arc::new(Cause { text, next })));
    Ok(chain.map(|cause| cause as Source))
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::time::Duration;

    use crate::{DriverError, Reason};

    #[test]
    fn an_error_travels_whole() {
        let inner = DriverError::new(Reason::Conflict, "ask the switch");
        let error = DriverError::new(Reason::Quota, "make a port")
            .detail("3 ports are allowed")
            .after(Duration::from_micros(1500))
            .maybe_applied()
            .request_id("req-7")
            .because(inner.because(std::io::Error::other("broken pipe")));
        let json = serde_json::to_value(&error).unwrap();
        let expected = serde_json::json!({
            "reason": "quota", "step": "make a port", "detail": "3 ports are allowed", "retry_after_ms": 2,
            "ambiguous": true, "request_id": "req-7",
            "causes": ["ask the switch: the resource is in use or being changed", "broken pipe"],
        });
        assert_eq!(json, expected);
        let read: DriverError = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), json);
        assert_eq!(read.to_string(), error.to_string());
    }

    #[test]
    fn what_says_nothing_is_left_out_and_need_not_be_said() {
        let json = serde_json::json!({ "reason": "no_address", "step": "make a port" });
        let error: DriverError = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&error).unwrap(), json);
        assert!(error.transient() && !error.ambiguous() && error.source().is_none());
    }
}
