//! What went wrong in the other world, in the words that a handler understands.

mod form;

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::form::Form;

/// Why a driver could not do what it was asked to do.
///
/// It names the step that failed, says why in one of a closed set of [`Reason`]s, keeps its source, and tells the handler
/// what it must know to go on: whether the same call may succeed later, after how long, and whether the thing may have
/// been done all the same.
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
/// It can be carried as JSON; what is lost on the way is the type of its source, whose chain becomes one of texts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "Form", from = "Form")]
pub struct DriverError {
    reason: Reason,
    step: Cow<'static, str>,
    detail: Option<String>,
    retry_after: Option<Duration>,
    ambiguous: bool,
    request_id: Option<String>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

/// Why a step failed, and with it whether repeating may help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// What the call names does not exist. Final.
    NotFound,
    /// A quota is used up. It may be raised, or something may be released: transient.
    Quota,
    /// A subnet has no free address. Transient, for the same reason.
    NoAddress,
    /// The other side understood and said no: wrong credentials, a malformed request. Final.
    Refused,
    /// The other side could not be reached, did not answer in time or is in trouble. Transient.
    Unavailable,
    /// The thing is used or changed by somebody else at this moment. Transient.
    Conflict,
    /// Something that is needed first is being made. Nothing is wrong, and it is a matter of moments: transient.
    Awaited,
    /// It has to wait for its turn, because the other side takes in only so many at a time. Nothing is wrong, and nothing was
    /// asked for; how long it takes is up to those before it: transient.
    Queued,
    /// The other side cannot do such a thing at all. Final.
    Unsupported,
}

impl Reason {
    /// Whether the same call may succeed when it is repeated.
    pub fn transient(self) -> bool {
        match self {
            Self::Quota
            | Self::NoAddress
            | Self::Unavailable
            | Self::Conflict
            | Self::Awaited
            | Self::Queued => true,
            Self::NotFound | Self::Refused | Self::Unsupported => false,
        }
    }

    /// The reason in one word of CamelCase, for a person who sees the object and not the driver.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotFound => "ReferenceNotFound",
            Self::Quota => "QuotaExceeded",
            Self::NoAddress => "SubnetFull",
            Self::Refused => "DriverRefused",
            Self::Unavailable => "DriverUnavailable",
            Self::Conflict => "DriverConflict",
            Self::Awaited => "Awaited",
            Self::Queued => "Queued",
            Self::Unsupported => "Unsupported",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFound => "it does not exist",
            Self::Quota => "the quota is used up",
            Self::NoAddress => "no address is free",
            Self::Refused => "it was refused",
            Self::Unavailable => "the other side is not available",
            Self::Conflict => "it is in use or changes at this moment",
            Self::Awaited => "it waits for something that is being made",
            Self::Queued => "it waits for its turn",
            Self::Unsupported => "it is not supported",
        })
    }
}

impl DriverError {
    /// `step` says what was tried, as an imperative: `request a port`.
    pub fn new(reason: Reason, step: impl Into<Cow<'static, str>>) -> Self {
        Self {
            reason,
            step: step.into(),
            detail: None,
            retry_after: None,
            ambiguous: false,
            request_id: None,
            source: None,
        }
    }

    /// Adds what the other side said, or what was wrong with which thing.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// Adds how long to wait before the call is repeated; it takes the place of the back-off.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.retry_after = Some(delay);
        self
    }

    /// Says that the step may have taken effect all the same: the request was sent, the answer got lost.
    #[must_use]
    pub fn maybe_done(mut self) -> Self {
        self.ambiguous = true;
        self
    }

    /// Says that whoever asked need not look for what may have been done: somebody else sees to that.
    #[must_use]
    pub fn settled(mut self) -> Self {
        self.ambiguous = false;
        self
    }

    /// Adds the id by which the other side's log names the request.
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

    /// Why the step failed.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether the same call may succeed when it is repeated.
    pub fn transient(&self) -> bool {
        self.reason.transient()
    }

    /// How long to wait before the call is repeated, where the driver knows.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the step may have taken effect all the same. The caller then looks for what it made by its ownership mark
    /// before it asks again.
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
            f.write_str(" (it may have been done all the same)")?;
        }
        if let Some(id) = &self.request_id {
            write!(f, " (request {id})")?;
        }
        Ok(())
    }
}

impl Error for DriverError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
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
            .maybe_done()
            .because(std::io::Error::other("broken pipe"));
        assert_eq!(
            error.to_string(),
            "release a port: the other side is not available: HTTP 503 (it may have been done all the same) (request req-7)"
        );
        assert_eq!(error.source().unwrap().to_string(), "broken pipe");
        assert!(error.ambiguous() && error.transient());
    }

    #[test]
    fn what_somebody_can_mend_is_transient_and_what_was_refused_is_final() {
        let transient =
            [Reason::Quota, Reason::NoAddress, Reason::Unavailable, Reason::Conflict, Reason::Queued];
        let fatal = [Reason::NotFound, Reason::Refused, Reason::Unsupported];
        assert!(transient.iter().all(|reason| reason.transient()));
        assert!(!fatal.iter().any(|reason| reason.transient()));
    }
}
