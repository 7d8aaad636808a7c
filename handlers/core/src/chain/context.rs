//! The facts about a message that its queue knows, for the wrappers and the handler.

use std::any::Any;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::failures::{Failures, LastError};
use super::queue_state::QueueMetrics;

/// The facts about a message that its queue knows: the attempts so far, the time in the queue, and the shutdown. All of it is read-only.
///
/// [`Async`](crate::Async) creates a context for each invocation. A wrapper that is used without queues gets [`Context::detached`].
pub struct Context<'q> {
    /// The time at which the message began to wait for its handler.
    pub(super) queued_since: Instant,
    /// The failed attempts of the message's object; `None` if there are none.
    pub(super) failures: Option<&'q Failures>,
    /// `true` if another message of the object waits after a failure.
    pub(super) others_fail: bool,
    /// `true` if this is a repeated attempt, whose time in the queue was measured before.
    pub(super) repeated: bool,
    /// The queue; `None` if the message is in no queue.
    pub(super) queue: Option<&'q dyn Queued>,
}

/// The queue of a message, independent of the types of its messages and handler.
pub(super) trait Queued: Send + Sync {
    /// Returns the metrics of the handler's queues.
    fn metrics(&self) -> &dyn QueueMetrics;
    /// Returns the token that is cancelled when the queues shut down.
    fn shutdown(&self) -> &CancellationToken;
    /// Records that the handler has run for the current message since `at`.
    fn running(&self, at: Instant);
}

impl Context<'_> {
    /// Returns the context of a message that is in no queue.
    pub fn detached() -> Self {
        Self {
            queued_since: Instant::now(),
            failures: None,
            others_fail: false,
            repeated: false,
            queue: None,
        }
    }

    /// Returns the time at which the message began to wait in its queue.
    pub fn queued_since(&self) -> Instant {
        self.queued_since
    }

    /// Returns the failed and unfinished attempts since this object was last handled successfully; `None` if there were none.
    pub fn failures(&self) -> Option<&Failures> {
        self.failures
    }

    /// Returns the number of failed attempts since this object was last handled successfully.
    pub fn attempts(&self) -> u32 {
        self.failures.map_or(0, Failures::attempts)
    }

    /// Returns the last error that counted as a failure since this object was last handled successfully; `None` if there was none.
    pub fn last_error(&self) -> Option<&LastError> {
        self.failures?.last_error()
    }

    /// Returns what [`Action::keep`](crate::Action::keep) kept after an earlier attempt; `None` if there is nothing since the object was
    /// last handled successfully.
    pub fn note(&self) -> Option<&Arc<dyn Any + Send + Sync>> {
        self.failures?.note.as_ref()
    }

    /// Returns `true` if this attempt continues the attempts of an event, and `false` if it is the first one, also after its retries have
    /// ended with a failure.
    pub fn is_repeated(&self) -> bool {
        self.repeated
    }

    /// Completes when the queues of the handler shut down. Never completes if the message is in no queue ([`detached`](Self::detached)).
    pub async fn shutdown(&self) {
        match self.queue {
            Some(queue) => queue.shutdown().cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the failures that a success now would end: `None` without failures, or if another message of the object still fails.
    pub(super) fn recovery(&self) -> Option<&Failures> {
        self.failures.filter(|failures| failures.last_error().is_some() && !self.others_fail)
    }

    /// Returns the time of the invocation, which begins now. The first one of a message also reports its time in the queue.
    pub(super) fn invoked(&self) -> Instant {
        let now = Instant::now();
        if let Some(queue) = self.queue.filter(|_| !self.repeated) {
            queue.metrics().waited(now.saturating_duration_since(self.queued_since));
        }
        now
    }
}
