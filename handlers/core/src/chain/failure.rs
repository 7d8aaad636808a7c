//! The errors of handlers: each says whether a retry may help.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use crate::event::Identity;

/// An error of a handler.
///
/// It is an enum of the handler's own, one variant for each step that can fail, each with its source:
///
/// ```
/// use std::time::Duration;
/// use staffetta_handler::Failure;
///
/// #[derive(Debug, thiserror::Error)]
/// enum PlugError {
///     #[error("ask the switch for a port")]
///     Ask(#[source] std::io::Error),
///     #[error("the switch has no port left")]
///     Full,
/// }
///
/// impl Failure for PlugError {
///     fn transient(&self) -> bool {
///         true
///     }
///     fn retry_after(&self) -> Option<Duration> {
///         matches!(self, Self::Full).then_some(Duration::from_secs(30))
///     }
/// }
/// ```
pub trait Failure: Error + Send + Sync + 'static {
    /// Returns `true` if the same invocation may succeed when it is repeated.
    fn transient(&self) -> bool;

    /// The wait before the next attempt, where the error knows it; it replaces the back-off.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Returns a value if nothing went wrong and the rest only takes time. The invocation is repeated as after a transient error,
    /// but reported only as [`Pending`] says, or when the time limit of the retries has passed.
    fn pending(&self) -> Option<Pending> {
        None
    }

    /// The error in one word of CamelCase, such as `QuotaExceeded`: the `reason` of the Kubernetes Event that reports it. At most
    /// 128 characters.
    fn reason(&self) -> &'static str {
        "HandlingFailed"
    }

    /// The object on which the Kubernetes Event is created, where it is not the one whose event failed: the Service of an
    /// EndpointSlice.
    fn concerns(&self) -> Option<&Identity> {
        None
    }
}

/// Work that is not done yet although nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The time after which it is reported, each time that it passes.
    pub report_after: Duration,
    /// Set if it waits in a queue outside and nothing was begun: the time limit of the retries starts when that is over.
    pub queued: bool,
}

impl Default for Pending {
    /// Work that was begun, reported after 30 s.
    fn default() -> Self {
        Self { report_after: Duration::from_secs(30), queued: false }
    }
}

/// A [`Failure`] whose type is erased.
pub type HandlerError = Box<dyn Failure>;

impl<F: Failure> From<F> for HandlerError {
    fn from(failure: F) -> Self {
        Box::new(failure)
    }
}

impl Failure for Infallible {
    fn transient(&self) -> bool {
        match *self {}
    }
}

impl Failure for kube::Error {
    /// Returns `true` for responses that may change: 401 (the token is read again), 408, 409, 429, and the 5xx of an overloaded
    /// server or proxy; and for every failure of the connection.
    fn transient(&self) -> bool {
        match self {
            Self::Api(status) => matches!(status.code, 401 | 408 | 409 | 429 | 500 | 502 | 503 | 504),
            Self::HyperError(_) | Self::Service(_) | Self::ReadEvents(_) => true,
            _ => false,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        let Self::Api(status) = self else { return None };
        let seconds = status.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }

    fn reason(&self) -> &'static str {
        if self.transient() { "ApiUnavailable" } else { "ApiRefused" }
    }
}

/// The error with its causes in one line: `write the annotation: patch pod: connection refused`.
pub fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let text = cause.to_string();
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = cause.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, retry_after_seconds: u32) -> kube::Error {
        let answer =
            serde_json::json!({ "code": code, "details": { "retryAfterSeconds": retry_after_seconds } });
        kube::Error::Api(serde_json::from_value(answer).expect("it is a Status"))
    }

    #[test]
    fn a_response_that_may_change_is_transient_and_keeps_its_hint() {
        for code in [401, 408, 409, 429, 500, 502, 503, 504] {
            assert!(answer(code, 0).transient(), "{code}");
        }
        for code in [400, 403, 404, 405, 410, 413, 415, 422] {
            assert!(!answer(code, 0).transient(), "{code}");
        }
        assert_eq!(answer(429, 7).retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(answer(429, 0).retry_after(), None);
        assert_eq!((answer(503, 0).reason(), answer(403, 0).reason()), ("ApiUnavailable", "ApiRefused"));
    }

    #[test]
    fn causes_are_joined_in_one_line_without_repetition() {
        #[derive(Debug, thiserror::Error)]
        #[error("write the annotation")]
        struct Step(#[source] std::io::Error);
        let error = Step(std::io::Error::other("connection refused"));
        assert_eq!(causes(&error), "write the annotation: connection refused");
    }
}
