//! The error of a driver, in terms that a handler understands.

mod causes;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::milliseconds;

/// The error of a driver.
///
/// It names the step that failed, gives the reason as one of a closed set of [`Reason`]s and keeps its source. It contains what
/// the handler must know: whether the same call may succeed later, after how long, and whether the step may have taken effect
/// all the same.
///
/// ```
/// use std::time::Duration;
/// use staffetta_driver::{DriverError, Reason};
///
/// let error = DriverError::new(Reason::NoAddress, "request a port")
///     .detail("the subnet 10.0.0.0/29 is full")
///     .after(Duration::from_secs(5));
/// assert_eq!(error.to_string(), "request a port: no address is free: the subnet 10.0.0.0/29 is full");
/// assert!(error.transient() && !error.ambiguous());
/// ```
///
/// In JSON, fields without a value are left out, and the source becomes the texts of its chain.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverError {
    reason: Reason,
    step: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The delay, rounded up so that waiting that long is always long enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ambiguous: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "causes", rename = "causes")]
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The reason why a step failed, which determines if it may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The resource does not exist. Final.
    NotFound,
    /// A quota is used up. It may be raised, or something may be released: transient.
    Quota,
    /// A subnet has no free address. Transient, for the same reason.
    NoAddress,
    /// The external system rejected the request: wrong credentials, a malformed request. Final.
    Refused,
    /// The external system could not be reached, did not answer in time or failed. Transient.
    Unavailable,
    /// The resource is in use or being changed at this moment. Transient.
    Conflict,
    /// A prerequisite is being created. Not a failure; it takes moments: transient.
    Awaited,
    /// The external system accepts only so many at a time, and nothing was requested yet. Not a failure; the delay depends on the
    /// ones before it: transient.
    Queued,
    /// The external system has no such function. Final.
    Unsupported,
}

impl Reason {
    /// Returns the name, the text, and whether the same call may succeed when it is repeated.
    fn properties(self) -> (&'static str, &'static str, bool) {
        match self {
            Self::NotFound => ("ReferenceNotFound", "it does not exist", false),
            Self::Quota => ("QuotaExceeded", "the quota is used up", true),
            Self::NoAddress => ("SubnetFull", "no address is free", true),
            Self::Refused => ("DriverRefused", "the request was rejected", false),
            Self::Unavailable => ("DriverUnavailable", "the external system is unavailable", true),
            Self::Conflict => ("DriverConflict", "the resource is in use or being changed", true),
            Self::Awaited => ("Awaited", "a prerequisite is not ready yet", true),
            Self::Queued => ("Queued", "it is queued", true),
            Self::Unsupported => ("Unsupported", "it is not supported", false),
        }
    }

    /// Returns `true` if the same call may succeed when it is repeated.
    pub fn transient(self) -> bool {
        self.properties().2
    }

    /// Returns the reason in one word of CamelCase, for the Event on an object.
    pub fn name(self) -> &'static str {
        self.properties().0
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.properties().1)
    }
}

impl DriverError {
    /// Creates an error of `step`, an imperative: `request a port`.
    pub fn new(reason: Reason, step: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            step: step.into(),
            detail: None,
            retry_after_ms: None,
            ambiguous: false,
            request_id: None,
            source: None,
        }
    }

    /// Adds the message of the external system, or the resource and its fault.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds the delay before the call is repeated, which replaces the back-off. It is rounded up to whole milliseconds.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.retry_after_ms = Some(milliseconds::of(delay));
        self
    }

    /// Marks the error as [ambiguous](Self::ambiguous): the request was sent, and its answer got lost.
    #[must_use]
    pub fn maybe_applied(mut self) -> Self {
        self.ambiguous = true;
        self
    }

    /// Clears [`ambiguous`](Self::ambiguous): the caller need not look for the effect, since another component does.
    #[must_use]
    pub fn unambiguous(mut self) -> Self {
        self.ambiguous = false;
        self
    }

    /// Adds the id by which the log of the external system names the request.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Returns the reason of the failure.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns `true` if the same call may succeed when it is repeated.
    pub fn transient(&self) -> bool {
        self.reason.transient()
    }

    /// Returns the delay before the call is repeated, if the driver knows it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }

    /// Returns `true` if the step may have taken effect. The caller then looks for the created resource by its ownership mark
    /// before it repeats the call.
    pub fn ambiguous(&self) -> bool {
        self.ambiguous
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.reason)?;
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        if self.ambiguous {
            f.write_str(" (it may have taken effect)")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_step_reason_detail_and_request_and_keeps_its_source() {
        let error = DriverError::new(Reason::Unavailable, "release a port")
            .detail("HTTP 503")
            .request_id("req-7")
            .maybe_applied()
            .because(std::io::Error::other("broken pipe"));
        assert_eq!(
            error.to_string(),
            "release a port: the external system is unavailable: HTTP 503 (it may have taken effect) (request req-7)"
        );
        assert_eq!(error.source().unwrap().to_string(), "broken pipe");
        assert!(error.ambiguous() && error.transient());
    }

    #[test]
    fn what_can_be_mended_is_transient_and_what_was_refused_is_final() {
        let transient =
            [Reason::Quota, Reason::NoAddress, Reason::Unavailable, Reason::Conflict, Reason::Queued];
        let fatal = [Reason::NotFound, Reason::Refused, Reason::Unsupported];
        assert!(transient.iter().all(|reason| reason.transient()));
        assert!(!fatal.iter().any(|reason| reason.transient()));
    }
}
