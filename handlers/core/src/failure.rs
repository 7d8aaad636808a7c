//! The errors of handlers. Each error states whether a retry may help.

use std::any::Any;
use std::convert::Infallible;
use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use kube::core::Status;

use crate::backoff::MAX_HINT;
use crate::event::Identity;

/// An error of a handler. It states whether a retry may help, and how the error is reported.
///
/// Each handler defines its own enum, with one variant for each step that can fail:
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

    /// Returns the delay before the next attempt, which replaces the back-off; `None` if the back-off applies.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Returns a value if the error is not a real failure but reports work that needs more time. The invocation is repeated as after a
    /// transient error, so [`transient`](Self::transient) must return `true`. It is reported as a failure only after
    /// [`Pending::report_after`], or when the time limit of the retries has passed.
    fn pending(&self) -> Option<Pending> {
        None
    }

    /// Returns the error as one CamelCase word, such as `QuotaExceeded`. This word becomes the `reason` of the Kubernetes Event that
    /// reports the error, which allows at most 128 characters.
    fn reason(&self) -> &'static str {
        "HandlingFailed"
    }

    /// Returns the object on which the Kubernetes Event is created, if that is not the object that was being handled. For example, a
    /// failure of an `EndpointSlice` is reported on its Service.
    fn concerns(&self) -> Option<&Identity> {
        None
    }
}

/// Work that is not finished yet although nothing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The time after which the unfinished work is reported as a failure, and again each time that this time has passed.
    pub report_after: Duration,
    /// `true` if the work waits in the queue of an external system, and was not begun there. The time limit of the retries starts only
    /// when that wait is over.
    pub queued: bool,
}

impl Default for Pending {
    /// Returns the value for work that has begun, and is reported as a failure after 30 s.
    fn default() -> Self {
        Self { report_after: Duration::from_secs(30), queued: false }
    }
}

/// The boxed error of a handler. Any type of error that implements [`Failure`] converts to it.
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
    /// Returns `true` for responses that may differ the next time, and for every failure of the connection. The codes are 401 (the
    /// token is read again), 408, 409, 429, 500, 502, 503 and 504.
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
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)).min(MAX_HINT))
    }

    fn reason(&self) -> &'static str {
        if self.transient() { "ApiUnavailable" } else { "ApiRefused" }
    }
}

/// The error of a handler that panicked; the field is the panic message.
#[derive(Debug, thiserror::Error)]
#[error("the handler panicked: {0}")]
pub struct Panicked(String);

impl Panicked {
    /// Creates the error of a panic with this payload.
    pub(crate) fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self(text.unwrap_or_else(|| "without a message".to_owned()))
    }
}

impl Failure for Panicked {
    fn transient(&self) -> bool {
        false
    }

    fn reason(&self) -> &'static str {
        "Panicked"
    }
}

/// The error of an invocation of a handler or of a driver that exceeded its time limit and was interrupted.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", limit.as_secs_f64())]
pub struct TimedOut {
    /// The time limit that was exceeded.
    pub limit: Duration,
}

impl Failure for TimedOut {
    fn transient(&self) -> bool {
        true
    }

    fn reason(&self) -> &'static str {
        "TimedOut"
    }
}

/// Runs `work` and returns a panic as the error [`Panicked`]. Pass large work pinned: an argument of an `async fn` takes up twice its
/// size in the future.
pub(crate) async fn panic_as_error<T>(
    work: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, HandlerError> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|payload| Err(Panicked::new(&*payload).into()))
}

/// Runs `work` outside of a chain for at most `limit`. Returns [`TimedOut`] if it takes longer, and [`Panicked`] if it panics.
pub async fn bounded<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, HandlerError>> + Send,
) -> Result<T, HandlerError> {
    let result = tokio::time::timeout(limit, panic_as_error(work)).await;
    result.unwrap_or_else(|_| Err(TimedOut { limit }.into()))
}

/// Joins the error and its causes in one line: `write the annotation: patch pod: connection refused`.
pub fn causes(error: &dyn Error) -> String {
    let mut line = String::new();
    let mut rest = Some(error);
    while let Some(error) = rest {
        let status = error.source().and_then(|source| source.downcast_ref::<Box<Status>>());
        // The text of kube for a response of the API server repeats it in its `Debug` form.
        let text = match status {
            Some(status) => format!("{} ({} {})", status.message, status.code, status.reason),
            None => error.to_string(),
        };
        if !line.ends_with(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
        rest = error.source().filter(|_| status.is_none());
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
    fn a_response_of_the_api_server_is_told_once_in_its_own_words() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot list pods")]
        struct Outer(#[source] kube::Error);

        let answer =
            serde_json::json!({ "message": "pods is forbidden", "reason": "Forbidden", "code": 403 });
        let error = Outer(kube::Error::Api(serde_json::from_value(answer).expect("it is a Status")));
        assert_eq!(causes(&error), "cannot list pods: pods is forbidden (403 Forbidden)");
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
        assert_eq!(answer(503, u32::MAX).retry_after(), Some(MAX_HINT), "no server stops a watch for years");
        assert_eq!((answer(503, 0).reason(), answer(403, 0).reason()), ("ApiUnavailable", "ApiRefused"));
    }

    #[tokio::test(start_paused = true)]
    async fn bounded_work_outside_of_a_chain_neither_hangs_nor_panics() {
        let limit = Duration::from_secs(30);
        let hangs = bounded::<()>(limit, std::future::pending()).await;
        assert_eq!(hangs.expect_err("it hangs").to_string(), "no answer within 30 s");
        let panics = bounded::<()>(limit, async { panic!("out of cheese") }).await;
        assert_eq!(panics.expect_err("it panics").to_string(), "the handler panicked: out of cheese");
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
