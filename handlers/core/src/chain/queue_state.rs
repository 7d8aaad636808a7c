//! The observable state of the queues: counts, single messages, and metrics.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::retry_state::{LastError, RetryMemory};

/// One message in the queues of a handler: it waits, runs or failed.
#[derive(Clone, Debug)]
pub struct QueueEntry<E> {
    /// The message itself: an event of an object, or a trigger.
    pub event: E,
    /// The phase of the message: held back, queued, running, waiting for a retry, or failed.
    pub phase: Phase,
    /// The time at which the current phase of the message began.
    pub since: Instant,
    /// The recorded failures of the message's object since it was last handled successfully; `None` if nothing is recorded.
    pub(super) retry: RetryMemory,
}

impl<E> QueueEntry<E> {
    /// Returns the last error since the object was last handled successfully; `None` if there was none. It may report only
    /// [unfinished work](crate::Failure::pending).
    pub fn last_error(&self) -> Option<&LastError> {
        self.retry.as_ref()?.most_recent()
    }

    /// Returns the details that [`Context::attach`](crate::Context::attach) attached to the object; `None` if there are none.
    pub fn attachment(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.retry.as_ref()?.attachment.as_ref()
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
    /// The message failed with a transient error and waits for its next attempt.
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

    /// Counts a transient failure after which the message is to be tried again. [Pending](crate::Failure::pending) work is not counted.
    fn retried(&self);
}
