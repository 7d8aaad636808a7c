//! The error of a driver, in terms that a handler can act on.

mod causes;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::milliseconds;

/// The error of a call of a driver.
///
/// It consists of the step that failed, a [`Reason`], and optional details and a source. A handler learns from it whether the
/// same call may succeed later, after which delay, and whether the failed step may have taken effect.
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
/// In JSON, fields without a value are omitted, and the source is a list of the messages of its chain. Unknown fields are
/// rejected.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriverError {
    reason: Reason,
    #[serde(skip)]
    name: Option<&'static str>,
    step: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// The delay before the call may be repeated, in milliseconds, rounded up so that a caller never waits too short a time; `None` if the
    /// driver does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ambiguous: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "causes", rename = "causes")]
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// The reason of a failure. It determines whether the call may be repeated: a transient failure may be, a final one may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The resource does not exist. Final: a retry alone does not help.
    NotFound,
    /// A quota is exhausted. Transient: the quota may be raised, or resources may be released.
    Quota,
    /// A subnet has no free address. Transient: addresses may be released.
    NoAddress,
    /// The external system rejected the request, for example because of wrong credentials or a malformed request. Final: a retry alone does
    /// not help.
    Refused,
    /// The external system could not be reached, did not respond in time, or failed. Transient.
    Unavailable,
    /// The resource is in use or being changed at this moment. Transient.
    Conflict,
    /// A prerequisite is still being created, which is not a failure. Transient; it usually takes only moments.
    Awaited,
    /// The external system accepts only a limited number of requests at the same time, and nothing was requested yet. This is not
    /// a failure. Transient; the delay depends on the number of earlier requests.
    Queued,
    /// The external system has no such function. Final: a retry alone does not help.
    Unsupported,
}

impl Reason {
    /// Returns the word for the `reason` field of Kubernetes Events, the error message, and `true` if a failure with this reason is
    /// transient.
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

    /// Returns the reason as one word in CamelCase, for the `reason` field of a Kubernetes Event.
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
    /// Creates an error of `step`, a phrase in the imperative: `request a port`.
    pub fn new(reason: Reason, step: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            name: None,
            step: step.into(),
            detail: None,
            retry_after_ms: None,
            ambiguous: false,
            request_id: None,
            source: None,
        }
    }

    /// Adds a detail: the message of the external system, or the name of the resource and its fault.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Sets the [name](Self::name) of the failure, one word in CamelCase for Kubernetes Events. It is not part of the JSON.
    #[must_use]
    pub fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Adds the delay before the call may be repeated, which the caller uses in place of its back-off. It is rounded up to whole
    /// milliseconds.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.retry_after_ms = Some(milliseconds::of(delay));
        self
    }

    /// Marks the error as [ambiguous](Self::ambiguous): the request was sent, but its response was lost.
    #[must_use]
    pub fn maybe_applied(mut self) -> Self {
        self.ambiguous = true;
        self
    }

    /// Clears [`ambiguous`](Self::ambiguous): the caller need not check whether the step took effect, because another component
    /// does.
    #[must_use]
    pub fn unambiguous(mut self) -> Self {
        self.ambiguous = false;
        self
    }

    /// Adds the id of the failed request, as it appears in the log of the external system.
    #[must_use]
    pub fn request_id(mut self, id: impl Into<String>) -> Self {
        self.request_id = Some(id.into().into_boxed_str());
        self
    }

    /// Adds the underlying error as the source.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Returns `true` if the underlying error that [`because`](Self::because) added is of the type `E`.
    pub fn is_because_of<E: Error + 'static>(&self) -> bool {
        self.source.as_deref().is_some_and(<dyn Error + Send + Sync>::is::<E>)
    }

    /// Returns the reason of the failure.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Returns the failure as one word in CamelCase, for the `reason` field of a Kubernetes Event; `None` if the name of the
    /// [`Reason`] is specific enough.
    pub fn name(&self) -> Option<&'static str> {
        self.name
    }

    /// Returns `true` if the same call may succeed when it is repeated.
    pub fn transient(&self) -> bool {
        self.reason.transient()
    }

    /// Returns the delay before the call may be repeated; `None` if the driver does not know it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }

    /// Returns `true` if the step may have taken effect. The caller must then search for the created resource by its ownership
    /// mark before it repeats the call.
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
        assert!(error.is_because_of::<std::io::Error>() && !error.is_because_of::<fmt::Error>());
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
