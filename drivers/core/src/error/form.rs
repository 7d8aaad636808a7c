//! An error as it travels in JSON: whole, with its causes as texts.

use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{DriverError, Reason};
use crate::milliseconds;

/// The fields of a [`DriverError`]. Those that say nothing are left out.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    reason: Reason,
    step: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ambiguous: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    /// The chain of causes, the nearest one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    causes: Vec<String>,
}

impl From<DriverError> for Form {
    fn from(error: DriverError) -> Self {
        let causes = std::iter::successors(error.source(), |cause| (*cause).source());
        Self {
            causes: causes.map(ToString::to_string).collect(),
            reason: error.reason,
            retry_after_ms: error.retry_after.map(milliseconds::of),
            ambiguous: error.ambiguous,
            step: error.step,
            detail: error.detail,
            request_id: error.request_id,
        }
    }
}

impl From<Form> for DriverError {
    fn from(form: Form) -> Self {
        Self {
            reason: form.reason,
            step: form.step,
            detail: form.detail,
            retry_after: form.retry_after_ms.map(Duration::from_millis),
            ambiguous: form.ambiguous,
            request_id: form.request_id,
            source: Cause::chain(form.causes).map(|cause| cause as Arc<dyn Error + Send + Sync>),
        }
    }
}

/// A cause of which only the text is known.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
struct Cause {
    text: String,
    #[source]
    next: Option<Arc<Cause>>,
}

impl Cause {
    fn chain(texts: Vec<String>) -> Option<Arc<Self>> {
        texts.into_iter().rev().fold(None, |next, text| Some(Arc::new(Self { text, next })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_travels_whole() {
        let inner = DriverError::new(Reason::Conflict, "ask the switch");
        let error = DriverError::new(Reason::Quota, "make a port")
            .detail("3 ports are allowed")
            .after(Duration::from_micros(1500))
            .maybe_done()
            .request_id("req-7")
            .because(inner.because(std::io::Error::other("broken pipe")));
        let json = serde_json::to_value(&error).unwrap();
        let expected = serde_json::json!({
            "reason": "quota", "step": "make a port", "detail": "3 ports are allowed", "retry_after_ms": 2,
            "ambiguous": true, "request_id": "req-7",
            "causes": ["ask the switch: it is in use or changes at this moment", "broken pipe"],
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
