//! The observable state of the queues: counts, single messages, and metrics.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::failures::{LastError, Memory};

/// One message in the queues of a handler: it waits, runs or failed.
#[derive(Clone, Debug)]
pub struct QueueEntry<E> {
    /// The message itself: an event of an object, or a trigger.
    pub event: E,
    /// The phase of the message: held back, queued, running, waiting for its next attempt, or failed.
    pub phase: Phase,
    /// The time at which the current phase of the message began.
    pub since: Instant,
    /// The recorded failures of the message's object since it was last handled successfully; `None` if nothing is recorded.
    pub(super) failures: Memory,
}

impl<E> QueueEntry<E> {
    /// Returns the last error since the object was last handled successfully; `None` if there was none. It may only be the
    /// [reason](crate::Why) for which the work is not finished.
    pub fn last_error(&self) -> Option<&LastError> {
        self.failures.as_ref()?.most_recent()
    }

    /// Returns the time since which the object fails; `None` if it does not. Unfinished work fails from its beginning, once it is
    /// reported as a failure.
    pub fn failing_since(&self) -> Option<Instant> {
        Some(self.failures.as_ref()?.last_error()?.since)
    }

    /// Returns what [`Action::keep`](crate::Action::keep) kept for the object; `None` if there is nothing.
    pub fn note(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.failures.as_ref()?.note.as_ref()
    }
}

/// The state of a message that was not handled successfully yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The message is held back and does not reach the handler yet: an index of the handler is not complete, or the ownership marks (tags
    /// on external resources) were not read yet.
    Held,
    /// The message waits for an earlier message of its ordering key, or for a permit of [`Limit`](crate::Limit).
    Queued,
    /// The handler is running for the message.
    Running,
    /// The message waits for its next attempt: it failed with a transient error, or its handler asked for it.
    Retrying {
        /// The time of the next attempt.
        at: Instant,
    },
    /// The message failed, and its retries are over. It is handled again later, or when its object changes.
    Failed {
        /// The time at which the message is handled again.
        at: Instant,
    },
}

/// The metrics of the queues of one handler. The methods are called for every message, so they must be cheap and must not block.
pub trait QueueMetrics: Send + Sync + 'static {
    /// Counts a message that was added to the queues.
    fn added(&self);

    /// Measures the `time` that a message was queued before its handler was invoked, including the time until a permit was free. The
    /// delay after a failure is not included. A message that replaced a queued message counts from the arrival of the older one.
    fn waited(&self, time: Duration);

    /// Measures an invocation that ended, or was interrupted, after `time`. Each attempt is one invocation, measured by
    /// [`Timeout`](crate::Timeout).
    fn worked(&self, time: Duration);

    /// Counts a transient failure after which the message is to be tried again. Unfinished work is not counted.
    fn retried(&self);

    /// Counts a delay before the next attempt that a handler or its error asked for, and that was shorter than the shortest one of 10 ms.
    fn raised_delay(&self);
}
