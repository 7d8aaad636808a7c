//! The results of handlers, and what the wrappers make of them.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::failures::{Failures, LastError};
use crate::event::{Identity, truncated};
use crate::failure::{Failure, HandlerError, Pending, causes};

/// The result of a successful invocation: the work is done, or the handler is to be called again.
///
/// A wrapper of the chain may return further actions, which only [`Async`](crate::Async) applies.
#[derive(Debug, Default)]
pub struct Action(Option<Box<Next>>);

/// The reason for which work is not finished yet although nothing failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    /// The reason in words, such as `the port is not active yet`.
    pub text: Cow<'static, str>,
    /// The reason as one CamelCase word, for the Kubernetes Event; see [`Failure::reason`].
    pub reason: &'static str,
    /// The object on which the Kubernetes Event is created, if that is not the object that is handled.
    pub concerns: Option<Box<Identity>>,
    /// The time after which the unfinished work is reported as a failure, and again each time that this time has passed.
    /// [`Duration::MAX`] means never.
    pub report_after: Duration,
    /// `true` if the work waits in the queue of an external system, and was not begun there. The time limit of [`Retry`](crate::Retry)
    /// starts only when that wait is over.
    pub queued: bool,
}

/// The continuation of work that an invocation did not end.
#[derive(Debug)]
pub(super) enum Next {
    /// The handler is called again after a time: for unfinished work if there is a reason, otherwise after a success.
    Again(Duration, Option<Why>),
    /// The attempt failed with a transient error, and [`Retry`](crate::Retry) permits another one.
    Retry(HandlerError, Delay),
    /// The failure or the unfinished work is recorded and reported, and the message waits.
    Wait(Wait),
    /// The leadership term ended: the message stays unhandled, and the attempt does not count.
    Interrupted,
}

/// The delay before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delay {
    /// The delay: what the error requested, otherwise the back-off.
    pub(super) wait: Duration,
    /// The time after which a trigger of the object may end the wait, at most `wait`: after a failure the back-off alone, otherwise
    /// [`LEAST_BY_TRIGGER`].
    pub(super) least: Duration,
}

/// The shortest time from an attempt to the next one that a trigger causes, so that a storm of triggers does not keep a driver busy.
pub(super) const LEAST_BY_TRIGGER: Duration = Duration::from_secs(1);

/// A wait for the next attempt.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) kind: WaitKind,
    pub(super) delay: Delay,
    /// The failures of the object so far, including the last attempt.
    pub(super) failures: Failures,
}

/// The reason for which a message waits for its next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitKind {
    /// The handler succeeded, and asked to be called again.
    Later,
    /// The work is not finished.
    Unfinished,
    /// The last attempt failed with a transient error.
    Retrying,
    /// The attempts ended with a failure.
    Failed,
}

impl WaitKind {
    /// Returns `true` if the last attempt failed.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Retrying | Self::Failed)
    }
}

impl Wait {
    /// Returns the wait of a handler that asked to be called again after `after`.
    pub(super) fn again(kind: WaitKind, after: Duration, failures: Failures) -> Self {
        Self { kind, delay: Delay { wait: after, least: after.min(LEAST_BY_TRIGGER) }, failures }
    }

    /// Returns the wait after an attempt that failed with the transient `error`. `past` are the failures before it.
    pub(super) fn retry(error: &dyn Failure, delay: Delay, past: Option<&Failures>) -> Self {
        let mut failures = past.cloned().unwrap_or_default();
        failures.failed(error, true);
        Self { kind: WaitKind::Retrying, delay, failures }
    }
}

impl Action {
    /// Returns the action of finished work: the handler is called again when the object changes.
    pub fn done() -> Self {
        Self(None)
    }

    /// Returns the action of a handler that succeeded, and wants to be called again with the same event after `after`, or with a newer
    /// event earlier. Less than 10 ms count as 10 ms.
    pub fn requeue(after: Duration) -> Self {
        Next::Again(after, None).into()
    }

    /// Returns the action of a handler whose work is not finished, and that is to be called again with the same event after `after`, or with
    /// a newer event earlier. Less than 10 ms count as 10 ms. The wait is reported as a failure only after [`Why::report_after`], or
    /// if it would last longer than the time limit of the retries.
    pub fn again(after: Duration, why: Why) -> Self {
        Next::Again(after, Some(why)).into()
    }

    /// Returns the action of an invocation that was stopped because the leadership term ended. The message stays unhandled, and the attempt
    /// does not count as a failure.
    pub fn interrupted() -> Self {
        Next::Interrupted.into()
    }

    /// Returns `true` if the work is finished.
    pub fn is_done(&self) -> bool {
        self.0.is_none()
    }

    /// Returns `true` if the handler succeeded, also if it asked to be called again.
    pub fn is_success(&self) -> bool {
        match self.0.as_deref() {
            None | Some(Next::Again(_, None)) => true,
            Some(Next::Wait(wait)) => wait.kind == WaitKind::Later,
            Some(_) => false,
        }
    }

    /// Returns the failure with which the retries ended; `None` if the work is finished or goes on.
    pub fn failure(&self) -> Option<&LastError> {
        match self.0.as_deref()? {
            Next::Wait(Wait { kind: WaitKind::Failed, failures, .. }) => failures.last_error(),
            _ => None,
        }
    }

    /// Keeps `note` in memory with the object until it is handled successfully. Wrappers outside of [`LogExceptions`](crate::LogExceptions)
    /// find it in [`Context::note`](crate::Context::note) at the next attempt.
    pub fn keep(&mut self, note: Arc<dyn Any + Send + Sync>) {
        if let Some(Next::Wait(wait)) = self.0.as_deref_mut() {
            wait.failures.note = Some(note);
        }
    }

    /// Returns what follows the invocation; `None` if the work is finished.
    pub(super) fn next(self) -> Option<Next> {
        self.0.map(|next| *next)
    }
}

impl From<()> for Action {
    fn from((): ()) -> Self {
        Self::done()
    }
}

impl From<Next> for Action {
    fn from(next: Next) -> Self {
        Self(Some(Box::new(next)))
    }
}

impl Why {
    /// Returns the reason `text` of work that has begun, and is reported as a failure after 30 s.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            text: text.into(),
            reason: "HandlingFailed",
            concerns: None,
            report_after: Duration::from_secs(30),
            queued: false,
        }
    }

    /// Returns the reason that `error` reports, which is no failure.
    pub(super) fn of(error: &dyn Failure, pending: Pending) -> Self {
        Self {
            text: truncated(causes(error)).into(),
            reason: error.reason(),
            concerns: error.concerns().cloned().map(Box::new),
            report_after: pending.report_after,
            queued: pending.queued,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Why {}

impl Failure for Why {
    fn transient(&self) -> bool {
        true
    }

    fn reason(&self) -> &'static str {
        self.reason
    }

    fn concerns(&self) -> Option<&Identity> {
        self.concerns.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_costs_no_memory_beside_an_error() {
        assert_eq!(size_of::<Result<Action, HandlerError>>(), 16);
    }
}
