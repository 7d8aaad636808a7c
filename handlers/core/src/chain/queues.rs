//! One ordered queue for each ordering key, and the only place of the chain that waits.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::coop::consume_budget;

use super::EventHandler;
use super::action::Action;
use super::context::Context;
use super::queue_map::QueueMap;
use super::queue_state::{QueueEntry, QueueMetrics};
use crate::event::{Message, OrderingKey};
use crate::failure::HandlerError;

/// A wrapper with a queue for each ordering key: it passes the messages of a key to the handler one after the other, in order of arrival.
/// Messages of different keys are handled concurrently. It applies what the handler and its wrappers decide: a message whose work is not
/// finished waits here, without a task and without a permit of [`Limit`](crate::Limit).
///
/// Adding a message never waits. A queue exists only while it holds a message. Use this type within a tokio runtime. When the last clone is
/// dropped, running invocations finish, and nothing more is handled.
pub struct Async<E: Message, H> {
    queues: Arc<QueueMap<E, H>>,
    /// The guard that stops the queues when the last clone is dropped.
    guard: Arc<StopOnDrop<E, H>>,
}

/// A guard that stops the queues when it is dropped.
struct StopOnDrop<E: Message, H>(Arc<QueueMap<E, H>>);

impl<E: Message + Clone, H: EventHandler<E>> Async<E, H> {
    /// Creates queues in front of the handler `inner`, which handle messages from the start and report to `metrics`. `key` returns the
    /// ordering key of a message. With `by_key`, a newer watch event of a key replaces an attempted one of any of its objects, because the
    /// handler reconciles everything that belongs to the key together.
    pub fn new(
        inner: H,
        by_key: bool,
        key: impl Fn(&E) -> OrderingKey + Send + Sync + 'static,
        metrics: Arc<dyn QueueMetrics>,
    ) -> Self {
        let queues = Arc::new(QueueMap::new(inner, by_key, Box::new(key), metrics));
        tokio::spawn(Arc::clone(&queues).run_schedule());
        let guard = Arc::new(StopOnDrop(Arc::clone(&queues)));
        Self { queues, guard }
    }

    /// Makes the queues hold all messages back, unhandled, until [`open`](Self::open) is called.
    #[must_use]
    pub fn closed(self) -> Self {
        self.queues.open.store(false, SeqCst);
        self
    }

    /// Lets the queues handle messages from now on, including those that were held back since [`closed`](Self::closed).
    pub fn open(&self) {
        let queues = Arc::clone(&self.queues);
        queues.open.store(!queues.is_stopped.load(SeqCst), SeqCst);
        let mut held = Vec::new();
        for mut queue in queues.map.iter_mut().filter(|queue| !queue.started) {
            queue.started = true;
            held.push(*queue.key());
        }
        tokio::spawn(async move {
            for key in held {
                queues.change(key, |_| ());
                consume_budget().await;
            }
        });
    }

    /// Adds a message. A task handles it, so this method may be called while locks are held.
    pub fn push(&self, event: E) {
        if let Some((key, attempt)) = self.queues.add(event) {
            tokio::spawn(Arc::clone(&self.queues).run(key, attempt));
        }
    }

    /// Ends the attempts of the object of `event`, and removes its queued messages, because the handler declines this newer event of it.
    /// Messages of other types stay, and so do deletions and messages of an object whose deletion was requested.
    pub fn decline(&self, event: &E) {
        self.queues.change((self.queues.key)(event), |queue| queue.decline(event));
    }

    /// Returns the number of busy queues. A queue is not busy if its messages only wait for the time of their next attempt.
    pub fn busy(&self) -> usize {
        self.queues.busy.load(SeqCst)
    }

    /// Returns the number of queues, which is the number of ordering keys with a message in any phase.
    pub fn queues(&self) -> usize {
        self.queues.map.len()
    }

    /// Passes the messages in the queues to `visit`, in any order. The queues are read one after the other, so this is not a consistent
    /// snapshot. `visit` must not call the queues.
    pub fn for_each_queued(&self, mut visit: impl FnMut(QueueEntry<E>)) {
        self.queues.map.iter().for_each(|queue| queue.entries().for_each(&mut visit));
    }

    /// Returns the messages that were not handled successfully yet, also those that were left when the queues ended.
    pub fn entries(&self) -> Vec<QueueEntry<E>> {
        let mut entries = Vec::new();
        self.for_each_queued(|entry| entries.push(entry));
        entries.extend(self.queues.unhandled.lock().iter().cloned());
        entries
    }

    /// Completes when at most `most` queues are [busy](Self::busy).
    pub async fn until_busy_at_most(&self, most: usize) {
        self.queues.until(|queues| queues.busy.load(SeqCst) <= most).await;
    }

    /// Ends all waits for further attempts, and waits up to `grace` for running and queued messages. After that, nothing more is handled.
    /// Returns `true` if all running and queued messages ended, with or without success. [`entries`](Self::entries) then returns all
    /// messages that were not handled successfully: those that were held or waited, and those that are left.
    pub async fn drain(&self, grace: Duration) -> bool {
        let queues = &self.queues;
        queues.is_shut_down.store(true, SeqCst);
        queues.shutdown.cancel();
        let keys: Vec<_> = queues.map.iter().map(|queue| *queue.key()).collect();
        for key in keys {
            queues.change(key, |_| ());
        }
        let empty = queues.until(|queues| queues.map.is_empty());
        let drained = tokio::time::timeout(grace, empty).await.is_ok();
        queues.stop();
        drained
    }

    /// Ends all waits for further attempts, discards queued messages, and waits up to `grace` for running invocations. Returns `true` if
    /// all of them ended.
    pub async fn halt(&self, grace: Duration) -> bool {
        self.queues.stop();
        self.drain(grace).await
    }
}

impl<E: Message + Clone, H: EventHandler<E>> EventHandler<E> for Async<E, H> {
    /// Adds a clone of the message. If no message of its key is present, the handler starts within this call and, when it first has to
    /// wait, continues in a task. The handler of a trigger always runs in a task, because the sender of the trigger may hold locks that
    /// the handler takes.
    async fn handle(&self, event: &E, _: &Context<'_>) -> Result<Action, HandlerError> {
        if event.is_trigger() {
            self.push(event.clone());
        } else if let Some((key, attempt)) = self.queues.add(event.clone()) {
            // The handler runs in a task of its own within another one, and if the calling task has used up its budget.
            let here = !self.queues.polling.swap(true, SeqCst);
            let mut run = Box::pin(Arc::clone(&self.queues).run(key, attempt));
            // No handler panics out of `run`, which catches that.
            let done =
                here && consume_budget().now_or_never().is_some() && run.as_mut().now_or_never().is_some();
            if here {
                self.queues.polling.store(false, SeqCst);
            }
            if !done {
                tokio::spawn(run);
            }
        }
        Ok(Action::done())
    }
}

impl<E: Message, H> Clone for Async<E, H> {
    fn clone(&self) -> Self {
        Self { queues: Arc::clone(&self.queues), guard: Arc::clone(&self.guard) }
    }
}

impl<E: Message, H> Drop for StopOnDrop<E, H> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests;
