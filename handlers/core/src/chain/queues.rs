//! One ordered queue for each ordering key.

use std::hash::BuildHasherDefault;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::error;

use super::EventHandler;
use super::context::{Context, POLLING, SharedQueueState};
use super::key_queue::{CurrentMessage, KeyQueue, QueuePolicy};
use super::outage::Outage;
use super::queue_state::{QueueEntry, QueueMetrics};
use crate::event::{KeyHasher, Message, OrderingKey};
use crate::failure::{HandlerError, causes, panic_as_error};

/// A wrapper with a queue for each ordering key: it passes the messages of a key to the handler one after the other, in order of arrival.
/// Messages of different keys are handled concurrently.
///
/// Adding a message never waits. A queue exists only while it holds a message that is queued, running or requeued after a failure. Use
/// this type within a tokio runtime. When the last clone is dropped, running invocations finish, and nothing more is handled.
pub struct Async<E: Message, H> {
    queues: Arc<Queues<E, H>>,
    /// The guard that stops the queues when the last clone is dropped.
    stop: Arc<DropGuard>,
}

/// The state that the clones of an [`Async`] and the tasks of its queues share.
struct Queues<E: Message, H> {
    inner: H,
    key: Box<dyn Fn(&E) -> OrderingKey + Send + Sync>,
    policy: QueuePolicy,
    by_key: DashMap<OrderingKey, KeyQueue<E>, BuildHasherDefault<KeyHasher>>,
    /// `false` while messages are held back and not handled (see [`Async::closed`]), and after the queues were stopped.
    open: AtomicBool,
    /// Cancelled to end everything except running invocations. Its child `shutdown` in `shared` ends only retries and delays.
    stop: CancellationToken,
    /// The largest number of busy queues since the map of the queues last released unused memory.
    peak: AtomicUsize,
    /// The number of messages that were replaced because their queue was full although coalescing is off.
    overflowed: AtomicU64,
    /// The messages that were not handled successfully when the queues shut down, from queues that were removed since.
    unhandled: Mutex<Vec<QueueEntry<E>>>,
    shared: SharedQueueState,
}

/// The number of shards of the map of the queues, each with its own lock. It is small because the program has one worker thread by default.
const SHARDS: usize = 4;

/// The number of busy queues up to which the map of the queues keeps its memory when none is busy any more.
const KEPT_CAPACITY: usize = 256;

impl<E: Message + Clone, H: EventHandler<E>> Async<E, H> {
    /// Creates queues in front of the handler `inner`, which handle messages from the start and report to `metrics`. `key` returns the
    /// ordering key of a message.
    pub fn new(
        inner: H,
        policy: QueuePolicy,
        key: impl Fn(&E) -> OrderingKey + Send + Sync + 'static,
        metrics: Arc<dyn QueueMetrics>,
    ) -> Self {
        let stop = CancellationToken::new();
        let (busy, less_busy, shutdown) = (AtomicUsize::new(0), Notify::new(), stop.child_token());
        let queues = Queues {
            inner,
            key: Box::new(key),
            policy,
            by_key: DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), SHARDS),
            open: AtomicBool::new(true),
            stop: stop.clone(),
            peak: AtomicUsize::new(0),
            overflowed: AtomicU64::new(0),
            unhandled: Mutex::default(),
            shared: SharedQueueState { metrics, busy, less_busy, shutdown, outage: Outage::default() },
        };
        Self { queues: Arc::new(queues), stop: Arc::new(stop.drop_guard()) }
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
        queues.open.store(!queues.stop.is_cancelled(), SeqCst);
        let mut held = Vec::new();
        for mut queue in queues.by_key.iter_mut().filter(|queue| !queue.started) {
            queue.started = true;
            held.push(*queue.key());
        }
        tokio::spawn(async move {
            for key in held {
                tokio::spawn(Arc::clone(&queues).run(key, None));
                consume_budget().await;
            }
        });
    }

    /// Adds a message. A task handles it, so this method may be called while locks are held.
    pub fn push(&self, event: E) {
        if let Some((idle, first)) = self.queues.add(event, false) {
            tokio::spawn(Arc::clone(&self.queues).run(idle, first));
        }
    }

    /// Ends the retries of the object of `event`, and removes its queued messages, because the handler declines this newer event of it.
    /// Messages of other types stay, and so do deletions and messages of an object whose deletion was requested.
    pub fn decline(&self, event: &E) {
        if let Some(mut queue) = self.queues.by_key.get_mut(&(self.queues.key)(event)) {
            queue.decline(event);
        }
    }

    /// Returns the number of busy queues. A queue is not busy if all its messages failed and only wait for the time of their next
    /// attempt.
    pub fn busy(&self) -> usize {
        self.queues.shared.busy.load(SeqCst)
    }

    /// Returns the number of messages that were replaced because their queue was full although coalescing is off.
    pub fn overflowed(&self) -> u64 {
        self.queues.overflowed.load(SeqCst)
    }

    /// Returns the number of queues, which is the number of ordering keys with a message in any phase.
    pub fn queues(&self) -> usize {
        self.queues.by_key.len()
    }

    /// Passes the messages in the queues to `visit`, in any order. The queues are read one after the other, so this is not a consistent
    /// snapshot. `visit` must not call the queues.
    pub fn for_each_queued(&self, mut visit: impl FnMut(QueueEntry<E>)) {
        self.queues.by_key.iter().for_each(|queue| queue.messages().for_each(&mut visit));
    }

    /// Returns the messages that were not handled successfully yet, also those that were left when the queues ended.
    pub fn entries(&self) -> Vec<QueueEntry<E>> {
        let mut entries = Vec::new();
        self.for_each_queued(|entry| entries.push(entry));
        entries.extend(self.queues.unhandled().iter().cloned());
        entries
    }

    /// Completes when at most `most` queues are [busy](Self::busy).
    pub async fn until_busy_at_most(&self, most: usize) {
        self.queues.until(|queues| queues.shared.busy.load(SeqCst) <= most).await;
    }

    /// Ends all retries, and waits up to `grace` for running and queued messages. After that, nothing more is handled. Returns `true`
    /// if all running and queued messages ended, with or without success. [`entries`](Self::entries) then returns all messages that were
    /// not handled successfully: those that were held or failed, and those that are left.
    pub async fn drain(&self, grace: Duration) -> bool {
        let queues = &self.queues;
        queues.shared.shutdown.cancel();
        queues.by_key.retain(|_, queue| {
            if !queue.started {
                queues.shared.busy.fetch_sub(1, SeqCst);
                queues.unhandled().extend(queue.messages());
            }
            queue.started
        });
        let empty = queues.until(|queues| queues.by_key.is_empty());
        let drained = tokio::time::timeout(grace, empty).await.is_ok();
        queues.stop();
        drained
    }

    /// Ends all retries, discards queued messages, and waits up to `grace` for running invocations. Returns `true` if all of them
    /// ended.
    pub async fn halt(&self, grace: Duration) -> bool {
        self.queues.stop();
        self.drain(grace).await
    }
}

impl<E: Message + Clone, H: EventHandler<E>> EventHandler<E> for Async<E, H> {
    /// Adds a clone of the message. If no message of its key is present, the handler starts within this call and, when it first has to
    /// wait, continues in a task. The handler of a trigger always runs in a task, because the sender of the trigger may hold locks that
    /// the handler takes.
    async fn handle(&self, event: &E, _: &Context<'_>) -> Result<(), HandlerError> {
        if event.is_trigger() {
            self.push(event.clone());
        } else if let Some((idle, first)) = self.queues.add(event.clone(), true) {
            let mut run = Box::pin(Arc::clone(&self.queues).run(idle, first));
            // The handler runs in a task of its own within another handler, and if the calling task has used up its budget.
            let mut done = false;
            if !POLLING.replace(true) {
                // No handler panics out of `run`, which catches that.
                done = consume_budget().now_or_never().is_some() && run.as_mut().now_or_never().is_some();
                POLLING.set(false);
            }
            if !done {
                tokio::spawn(run);
            }
        }
        Ok(())
    }
}

impl<E: Message, H> Clone for Async<E, H> {
    fn clone(&self) -> Self {
        Self { queues: Arc::clone(&self.queues), stop: Arc::clone(&self.stop) }
    }
}

impl<E: Message + Clone, H: EventHandler<E>> Queues<E, H> {
    /// Adds a message. Returns the key if the caller has to start [`run`](Self::run) for it, with the message itself if `at_once` is
    /// `true`. Otherwise the message is queued, and newer messages may replace it until the task starts.
    fn add(&self, event: E, at_once: bool) -> Option<(OrderingKey, Option<CurrentMessage<E>>)> {
        self.shared.metrics.added();
        let (key, now) = ((self.key)(&event), Instant::now());
        match self.by_key.entry(key) {
            Entry::Occupied(mut queue) => {
                let overflowed = queue.get_mut().push(event, now, &self.policy);
                self.overflowed.fetch_add(overflowed as u64, SeqCst);
                None
            }
            Entry::Vacant(vacant) => {
                let open = self.open.load(SeqCst);
                if !open && self.stop.is_cancelled() {
                    return None;
                }
                let mut queue = vacant.insert(KeyQueue::new(open));
                let first = if open && at_once {
                    Some(queue.begin(event, now))
                } else {
                    queue.push(event, now, &self.policy);
                    None
                };
                let busy = self.shared.busy.fetch_add(1, SeqCst) + 1;
                if busy > self.peak.load(SeqCst) {
                    self.peak.store(busy, SeqCst);
                }
                open.then_some((key, first))
            }
        }
    }

    /// Handles the messages of one key, beginning with `first`, until the queue is empty, and then removes the queue.
    async fn run(self: Arc<Self>, key: OrderingKey, first: Option<CurrentMessage<E>>) {
        let mut next = if first.is_some() { first } else { self.next(key).await };
        while let Some((event, current)) = next {
            let context = Context { current, queues: Some(&self.shared) };
            if let Err(error) = panic_as_error(pin!(self.inner.handle(&event, &context))).await {
                let (object_ref, error) = (event.object_ref(), causes(&*error));
                error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid, error,
                    "a failure was not handled by any wrapper of the chain; the event is dropped");
            }
            next = self.next(key).await;
            if next.is_some() {
                consume_budget().await;
            }
        }
        // Once no queue is busy, the map gives back the memory of a burst.
        if self.shared.remove_busy() && self.peak.load(SeqCst) > KEPT_CAPACITY {
            self.peak.store(0, SeqCst);
            self.by_key.shrink_to_fit();
        }
    }

    /// Ends the current message of a key, and returns the next one. If there are only failed messages, it waits for the time of the
    /// earliest one. Removes the queue and returns `None` if no message is left, or after a stop.
    async fn next(&self, key: OrderingKey) -> Option<CurrentMessage<E>> {
        let mut attempt_due = false;
        loop {
            let (due, outage, arrival) = {
                let Entry::Occupied(mut entry) = self.by_key.entry(key) else { return None };
                let queue = entry.get_mut();
                if attempt_due {
                    queue.retry_now();
                }
                if queue.end(&self.policy) {
                    self.shared.outage.end();
                }
                if let Some(message) = queue.pop(&self.policy).filter(|_| !self.stop.is_cancelled()) {
                    return Some(message);
                }
                let stopping = self.shared.shutdown.is_cancelled();
                let Some(next_attempt) = queue.next_attempt().filter(|_| !stopping) else {
                    // Before the queue is removed, so that `entries` misses no message.
                    if stopping {
                        self.unhandled().extend(queue.messages());
                    }
                    entry.remove();
                    return None;
                };
                next_attempt
            };
            // Boxed, because the future of every message would have room for it.
            let is_due = Box::pin(self.shared.wait_until(due, outage, &arrival)).await;
            attempt_due = is_due && outage.is_some();
        }
    }

    /// Locks the list of messages that were not handled successfully when the queues shut down.
    fn unhandled(&self) -> MutexGuard<'_, Vec<QueueEntry<E>>> {
        self.unhandled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything except running invocations. Messages that arrive later are dropped.
    fn stop(&self) {
        self.open.store(false, SeqCst);
        self.stop.cancel();
    }

    /// Completes when `condition` returns `true`. The condition is checked whenever the number of busy queues has decreased.
    async fn until(&self, condition: impl Fn(&Self) -> bool) {
        loop {
            let less_busy = self.shared.less_busy.notified();
            if condition(self) {
                return;
            }
            less_busy.await;
        }
    }
}

#[cfg(test)]
mod tests;
