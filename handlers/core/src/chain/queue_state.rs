//! The observable state of the queues: counts, single messages, and metrics.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::retry_state::{LastError, RetryMemory};
use crate::event::{Change, Message, ObjectRef};

/// One message in the queues of a handler, for status pages: it waits, runs or failed.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    /// The kind of the object, as in the field `kind`.
    pub kind: Cow<'static, str>,
    /// The namespace of the object; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
    /// The change of the object.
    pub change: Change,
    /// The state of the message.
    pub phase: Phase,
    /// The time at which the current phase of the message began.
    pub since: Instant,
    /// The last error since the object was last handled successfully; `None` if there was none.
    pub last_error: Option<LastError>,
    /// The details that [`Context::attach`](crate::Context::attach) attached to the object.
    pub attachment: Option<Arc<dyn Any + Send + Sync>>,
}

/// The state of a message that was not handled successfully yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The queues of the handler are closed: an index is not complete, or the ownership marks (tags on external resources) were not
    /// read yet.
    Held,
    /// The message waits for an earlier message of its ordering key, or for a permit of [`Limit`](crate::Limit).
    Queued,
    /// The handler is running.
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

/// A message in a queue, with its phase.
#[derive(Clone)]
pub(super) struct Queued<E> {
    /// The message itself.
    pub(super) event: E,
    /// The phase of the message.
    pub(super) phase: Phase,
    /// The time at which the phase began.
    pub(super) since: Instant,
    /// The failures of the object so far.
    pub(super) retry: RetryMemory,
}

impl<E: Message> From<Queued<E>> for QueueEntry {
    fn from(Queued { event, phase, since, retry }: Queued<E>) -> Self {
        let ObjectRef { kind, namespace, name, uid } = event.object_ref();
        let (last_error, attachment) = retry.map(|retry| (retry.shown, retry.attachment)).unwrap_or_default();
        Self {
            kind,
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
            uid: uid.to_owned(),
            change: event.change(),
            phase,
            since,
            last_error,
            attachment,
        }
    }
}

/// The number of messages in each phase, in the queues of one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Messages in [`Phase::Held`].
    pub held: usize,
    /// Messages in [`Phase::Queued`].
    pub queued: usize,
    /// Messages in [`Phase::Running`].
    pub running: usize,
    /// Messages in [`Phase::Retrying`].
    pub retrying: usize,
    /// Messages in [`Phase::Failed`].
    pub failed: usize,
    /// The start of the running invocation that began first; `None` if none is running.
    pub oldest_running: Option<Instant>,
    /// The total time that all running invocations have taken so far.
    pub unfinished: Duration,
}

impl QueueCounts {
    /// Returns the number of messages in all phases.
    pub fn total(&self) -> usize {
        self.held + self.queued + self.running + self.retrying + self.failed
    }

    /// Counts one message in the field of its phase.
    pub(super) fn add<E>(&mut self, message: &Queued<E>, now: Instant) {
        let since = message.since;
        match message.phase {
            Phase::Held => self.held += 1,
            Phase::Queued => self.queued += 1,
            Phase::Retrying { .. } => self.retrying += 1,
            Phase::Failed { .. } => self.failed += 1,
            Phase::Running => {
                self.running += 1;
                self.oldest_running = Some(self.oldest_running.map_or(since, |oldest| oldest.min(since)));
                self.unfinished += now.saturating_duration_since(since);
            }
        }
    }
}

/// Receives the measurements of the queues of one handler. The methods are called for every message, so they must be cheap and must not
/// block.
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
