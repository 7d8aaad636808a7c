//! The error contract: an error itself says whether repeating may help.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use crate::object::Identity;

/// What a handler's error tells the chain.
///
/// A handler's error is an enum of its own, one variant for each step that can fail, each with its source:
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
    /// Whether the same invocation may succeed when it is repeated. [`Retry`](crate::Retry) asks this and nothing else.
    fn transient(&self) -> bool;

    /// How long to wait before the next attempt, where the error knows; it takes the place of the back-off.
    fn retry_after(&self) -> Option<Duration> {
        None
    }

    /// Whether nothing went wrong: all that could be done is done, and the rest comes with time. It is repeated like a
    /// transient failure, and nobody is told before it has lasted for [`patience`](Self::patience), or the time for retries is up.
    fn waits(&self) -> bool {
        false
    }

    /// For how long an error that [waits](Self::waits) is nobody's business. A wait that lasts longer is told like a failure that is
    /// repeated.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Whether an error that [waits](Self::waits) does so for its turn behind others, and nothing was begun yet: the time for retries
    /// begins when its turn has come.
    fn queues(&self) -> bool {
        false
    }

    /// What went wrong in one word of CamelCase, such as `QuotaExceeded`: the `reason` of the Kubernetes Event by which a
    /// person learns of it. At most 128 characters.
    fn reason(&self) -> &'static str {
        "HandlingFailed"
    }

    /// The object at which a person must look, where it is not the one whose event failed: the service of a slice. The
    /// Kubernetes Event is about that one.
    fn concerns(&self) -> Option<&Identity> {
        None
    }
}

/// A handler's error once its type is erased.
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
    /// Answers that a later attempt may change: 408, 409, 429 and the 5xx of a server or a proxy in trouble, a token that
    /// has to be read again (401), and every failure of the connection.
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

/// The chain of causes in one line: `write the annotation: patch pod: connection refused`.
pub fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !line.ends_with(&cause_text) {
            line.push_str(": ");
            line.push_str(&cause_text);
        }
        source = cause.source();
    }
    line
}

/// A text of others, cut where it is longer than anybody reads: of a long one the first 1024 bytes, and ` ...`.
pub fn shortened(mut text: String) -> String {
    if text.len() > LONGEST {
        let end = (0..=LONGEST).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(" ...");
    }
    text
}

/// How many bytes of a text of others are kept: of 100,000 objects in trouble, 100 MB at most.
pub(crate) const LONGEST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, retry_after_seconds: u32) -> kube::Error {
        let answer =
            serde_json::json!({ "code": code, "details": { "retryAfterSeconds": retry_after_seconds } });
        kube::Error::Api(serde_json::from_value(answer).expect("it is a Status"))
    }

    #[test]
    fn an_answer_that_may_change_is_transient_and_its_hint_is_handed_on() {
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
    fn causes_are_one_line_and_none_is_told_twice() {
        #[derive(Debug, thiserror::Error)]
        #[error("write the annotation")]
        struct Step(#[source] std::io::Error);
        let error = Step(std::io::Error::other("connection refused"));
        assert_eq!(causes(&error), "write the annotation: connection refused");
    }
}
