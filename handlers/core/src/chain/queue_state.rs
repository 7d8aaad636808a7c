//! The observable state of the queues: counts, entries for single messages, and metrics.

use std::borrow::Cow;
use std::time::Duration;

use tokio::time::Instant;

use super::retry_state::{LastError, RetryMemory};
use crate::event::{Change, Message};

/// One message that has not been handled yet.
#[derive(Clone, Debug)]
pub struct QueueEntry {
    /// The kind of its object, as in the field `kind`.
    pub kind: Cow<'static, str>,
    /// The namespace; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The change of the object.
    pub change: Change,
    /// The state of the message.
    pub phase: Phase,
    /// The time at which that state began.
    pub since: Instant,
    /// The last error since the object was last handled with success.
    pub last_error: Option<LastError>,
}

/// The state of a message that has not been handled yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The queues of its handler are closed: an index or the ownership marks are not complete.
    Held,
    /// It waits for an earlier message of its ordering key or for a permit of [`Limit`](crate::Limit).
    Queued,
    /// Its handler runs.
    Running,
    /// It failed with a transient error and waits for its next attempt.
    Retrying {
        /// The time of that attempt.
        at: Instant,
    },
    /// It failed and is handled again later, or when its object changes.
    Failed {
        /// The time at which it is handled again.
        at: Instant,
    },
}

/// A message in a queue.
#[derive(Clone)]
pub(super) struct Queued<E> {
    pub(super) event: E,
    pub(super) phase: Phase,
    /// The time at which the phase began.
    pub(super) since: Instant,
    /// The failures of its object so far.
    pub(super) retry: RetryMemory,
}

impl<E: Message> From<Queued<E>> for QueueEntry {
    fn from(Queued { event, phase, since, retry }: Queued<E>) -> Self {
        let object_ref = event.object_ref();
        Self {
            kind: object_ref.kind.clone(),
            namespace: object_ref.namespace.map(str::to_owned),
            name: object_ref.name.to_owned(),
            uid: object_ref.uid.to_owned(),
            change: event.change(),
            phase,
            since,
            last_error: retry.and_then(|retry| retry.shown),
        }
    }
}

/// The number of messages in each phase, in the queues of one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// In [`Phase::Held`].
    pub held: usize,
    /// In [`Phase::Queued`].
    pub queued: usize,
    /// In [`Phase::Running`].
    pub running: usize,
    /// In [`Phase::Retrying`].
    pub retrying: usize,
    /// In [`Phase::Failed`].
    pub failed: usize,
    /// The start of the invocation that has been running the longest.
    pub oldest_running: Option<Instant>,
    /// The time that all running invocations have taken so far, in total.
    pub unfinished: Duration,
}

impl QueueCounts {
    /// The number of all messages.
    pub fn total(&self) -> usize {
        self.held + self.queued + self.running + self.retrying + self.failed
    }

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

/// Counts the messages of one handler. It is called for every message, so it must be cheap and must not block.
pub trait QueueMetrics: Send + Sync + 'static {
    /// A message was added.
    fn added(&self);

    /// The handler was invoked for a message that had been queued for `time`, the wait for a permit included. The delay after
    /// a failure does not count. A message that replaced a queued one inherits its time.
    fn waited(&self, time: Duration);

    /// An invocation ended, or was interrupted, after `time`. Each attempt is one invocation; [`Timeout`](crate::Timeout) measures it.
    fn worked(&self, time: Duration);

    /// A message failed with a transient error and will be tried again.
    fn retried(&self);
}

/// Counts nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl QueueMetrics for NoMetrics {
    fn added(&self) {}
    fn waited(&self, _: Duration) {}
    fn worked(&self, _: Duration) {}
    fn retried(&self) {}
}
