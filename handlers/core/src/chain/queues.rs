//! One ordered queue for each ordering key.

use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
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
use super::context::{Context, CurrentMessages, POLLING, SharedQueueState};
use super::failure::{HandlerError, causes};
use super::key_queue::{KeyQueue, QueuePolicy};
use super::log_exceptions::panic_as_error;
use super::queue_state::{NoMetrics, Phase, QueueCounts, QueueEntry, QueueMetrics, Queued};
use super::retry_state::{Outcome, RetryMemory};
use crate::event::{KeyHasher, Message, OrderingKey};

/// Passes the messages of one ordering key to the handler one at a time, in order of arrival; those of different keys run
/// concurrently.
///
/// Adding a message never waits. A queue exists while it holds a message, be it queued, running or requeued after a failure; an
/// idle key has none. It must be used within a tokio runtime. When the last copy is dropped, running invocations may end and
/// nothing more is handled.
pub struct Async<E: Message, H> {
    queues: Arc<Queues<E, H>>,
    /// Stops the queues when the last copy is dropped.
    stop: Arc<DropGuard>,
}

/// The state shared by the copies of an [`Async`] and the tasks of its queues.
struct Queues<E: Message, H> {
    inner: H,
    key: Box<dyn Fn(&E) -> OrderingKey + Send + Sync>,
    policy: QueuePolicy,
    by_key: DashMap<OrderingKey, KeyQueue<E>, BuildHasherDefault<KeyHasher>>,
    /// Unset while messages are held; see [`Async::open`].
    open: AtomicBool,
    /// Ends everything but running invocations.
    stop: CancellationToken,
    /// The largest number of queues since the map was last shrunk.
    peak: AtomicUsize,
    /// Messages that a full queue replaced although coalescing is off.
    overflowed: AtomicU64,
    shared: SharedQueueState,
}

/// The number of parts of the map, each with its own lock. The program has one worker thread unless configured otherwise.
const SHARDS: usize = 4;

/// The number of queues for which an idle map keeps its memory.
const KEPT_CAPACITY: usize = 256;

impl<E: Message + Clone, H: EventHandler<E>> Async<E, H> {
    /// Open queues without metrics.
    pub fn new(
        inner: H,
        policy: QueuePolicy,
        key: impl Fn(&E) -> OrderingKey + Send + Sync + 'static,
    ) -> Self {
        Self::with_metrics(inner, policy, key, Arc::new(NoMetrics))
    }

    /// Open queues that record `metrics`.
    pub fn with_metrics(
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
            shared: SharedQueueState { metrics, busy, less_busy, shutdown },
        };
        Self { queues: Arc::new(queues), stop: Arc::new(stop.drop_guard()) }
    }

    /// Closes the queues: messages are held until [`open`](Self::open).
    #[must_use]
    pub fn closed(self) -> Self {
        self.queues.open.store(false, SeqCst);
        self
    }

    /// Starts to handle the held messages.
    pub fn open(&self) {
        let queues = Arc::clone(&self.queues);
        queues.open.store(!queues.stop.is_cancelled(), SeqCst);
        let mut held = Vec::new();
        for mut queue in queues.by_key.iter_mut().filter(|queue| !queue.started) {
            queue.start();
            held.push(*queue.key());
        }
        tokio::spawn(async move {
            for key in held {
                start(Arc::clone(&queues).run(key, None));
                consume_budget().await;
            }
        });
    }

    /// Adds a message and handles it in a task of its own, so it may be called with locks held.
    pub fn push(&self, event: E) {
        if let Some((idle, first)) = self.queues.add(event, false) {
            tokio::spawn(Arc::clone(&self.queues).run(idle, first));
        }
    }

    /// The number of ordering keys with a message that waits for more than a point in time.
    pub fn busy(&self) -> usize {
        self.queues.shared.busy.load(SeqCst)
    }

    /// The number of queues: one for each ordering key that is not idle.
    pub fn queues(&self) -> usize {
        self.queues.by_key.len()
    }

    /// The number of messages that a full queue replaced although coalescing is off.
    pub fn overflowed(&self) -> u64 {
        self.queues.overflowed.load(SeqCst)
    }

    /// The number of messages in each phase. The queues are read one after the other, while others change.
    pub fn counts(&self) -> QueueCounts {
        let (mut counts, now) = (QueueCounts::default(), Instant::now());
        self.queues.by_key.iter().for_each(|queue| {
            queue.messages().for_each(|message| counts.add(message, now));
        });
        counts
    }

    /// At most `limit` messages that are not handled yet: first those with an error, and among these and among the others
    /// first those that have been waiting the longest.
    pub fn entries(&self, limit: usize) -> Vec<QueueEntry> {
        let mut messages = Vec::new();
        self.queues.by_key.iter().for_each(|queue| messages.extend(queue.messages().cloned()));
        messages.sort_by_key(|Queued { since, retry, .. }| {
            match retry.as_ref().and_then(|retry| retry.shown.as_ref()) {
                Some(last_error) => (false, last_error.since),
                None => (true, *since),
            }
        });
        messages.into_iter().take(limit).map(QueueEntry::from).collect()
    }

    /// Completes once at most `most` ordering keys are [busy](Self::busy).
    pub async fn until_busy_at_most(&self, most: usize) {
        self.queues.until(|queues| queues.shared.busy.load(SeqCst) <= most).await;
    }

    /// Ends all retries, and waits at most `grace` for running and queued messages; then nothing more is handled. Returns
    /// `true` if all were handled. Held messages are discarded.
    pub async fn drain(&self, grace: Duration) -> bool {
        let queues = &self.queues;
        queues.shared.shutdown.cancel();
        queues.by_key.retain(|_, queue| {
            queues.shared.busy.fetch_sub(usize::from(!queue.started), SeqCst);
            queue.started
        });
        let empty = queues.until(|queues| queues.by_key.is_empty());
        let drained = tokio::time::timeout(grace, empty).await.is_ok();
        queues.stop();
        drained
    }

    /// Ends all retries, discards queued messages, and waits at most `grace` for running ones. Returns `true` if all ended.
    pub async fn halt(&self, grace: Duration) -> bool {
        self.queues.stop();
        self.drain(grace).await
    }
}

impl<E: Message + Clone, H: EventHandler<E>> EventHandler<E> for Async<E, H> {
    /// Adds a copy of the message. If its key is idle, its handler runs until it first waits, then in a task of its own. A
    /// trigger's handler runs in a task from the start: its sender may hold locks that the handler takes.
    async fn handle(&self, event: &E, _: &Context<'_>) -> Result<(), HandlerError> {
        if event.is_trigger() {
            self.push(event.clone());
        } else if let Some((idle, first)) = self.queues.add(event.clone(), true) {
            start(Arc::clone(&self.queues).run(idle, first));
        }
        Ok(())
    }
}

impl<E: Message, H> Clone for Async<E, H> {
    fn clone(&self) -> Self {
        Self { queues: Arc::clone(&self.queues), stop: Arc::clone(&self.stop) }
    }
}

/// Polls `run` once, and spawns it if it is pending, if it is called from within such a poll, or if the calling task has used up
/// its budget.
fn start(run: impl Future<Output = ()> + Send + 'static) {
    let mut run = Box::pin(run);
    if !POLLING.replace(true) {
        // No handler panics out of `run`, which catches that.
        let done = consume_budget().now_or_never().is_some() && run.as_mut().now_or_never().is_some();
        POLLING.set(false);
        if done {
            return;
        }
    }
    tokio::spawn(run);
}

impl<E: Message + Clone, H: EventHandler<E>> Queues<E, H> {
    /// Adds a message. Returns its key if the queue has to be run; the message is then its first step if it is handled `at_once`,
    /// else it is queued, and newer ones may replace it until the task starts.
    fn add(&self, event: E, at_once: bool) -> Option<(OrderingKey, Option<Queued<E>>)> {
        self.shared.metrics.added();
        let (key, now) = ((self.key)(&event), Instant::now());
        match self.by_key.entry(key) {
            Entry::Occupied(mut queue) => {
                let overflowed = queue.get_mut().push(event, now, &self.policy);
                if overflowed > 0 {
                    self.overflowed.fetch_add(overflowed as u64, SeqCst);
                }
                None
            }
            Entry::Vacant(vacant) => {
                let open = self.open.load(SeqCst);
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

    /// Handles the messages of one key, `first` before the others, until its queue is empty and removed.
    async fn run(self: Arc<Self>, key: OrderingKey, first: Option<Queued<E>>) {
        let mut at_once = first.is_some();
        let mut next = if at_once { first } else { self.next(key, None).await };
        while let Some(message) = next {
            let end = self.handle_one(key, message, at_once).await;
            next = self.next(key, Some(end)).await;
            at_once = false;
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

    /// Handles one message. A failure or panic that no wrapper has ended is logged here.
    async fn handle_one(
        &self,
        key: OrderingKey,
        Queued { event, since, retry, .. }: Queued<E>,
        at_once: bool,
    ) -> (RetryMemory, Outcome) {
        let context = Context::new(self, key, (since, at_once), retry);
        if let Err(error) = panic_as_error(self.inner.handle(&event, &context)).await {
            let (object_ref, error) = (event.object_ref(), causes(&*error));
            error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid, error,
                "a failure was not handled by any wrapper of the chain; the event is dropped");
        }
        context.into_end()
    }

    /// Ends the current message of a key and takes the next, as soon as its time has come. Removes the queue if there is none, or
    /// after a stop.
    async fn next(&self, key: OrderingKey, mut end: Option<(RetryMemory, Outcome)>) -> Option<Queued<E>> {
        loop {
            let (due, arrival) = {
                let Entry::Occupied(mut entry) = self.by_key.entry(key) else { return None };
                let queue = entry.get_mut();
                if let Some(end) = end.take() {
                    queue.end(end, &self.policy);
                }
                if let Some(message) = queue.pop().filter(|_| !self.stop.is_cancelled()) {
                    return Some(message);
                }
                if let Some(due) = queue.due().filter(|_| !self.shared.shutdown.is_cancelled()) {
                    (due, queue.arrival())
                } else {
                    entry.remove();
                    return None;
                }
            };
            self.shared.remove_busy();
            // Boxed, because the future of every message would have room for it.
            let wait = Box::pin(async {
                tokio::select! {
                    () = tokio::time::sleep_until(due) => {}
                    () = arrival.notified() => {}
                    () = self.shared.shutdown.cancelled() => {}
                }
            });
            wait.await;
            self.shared.busy.fetch_add(1, SeqCst);
        }
    }

    /// Ends everything but running invocations. Messages that arrive later are held.
    fn stop(&self) {
        self.open.store(false, SeqCst);
        self.stop.cancel();
    }

    /// Completes when `condition` holds; it is checked whenever fewer queues are busy.
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

impl<E: Message + Clone, H: EventHandler<E>> CurrentMessages for Queues<E, H> {
    fn shared(&self) -> &SharedQueueState {
        &self.shared
    }

    fn show(&self, key: OrderingKey, phase: Phase, since: Instant, retry: RetryMemory) {
        if let Some(mut queue) = self.by_key.get_mut(&key)
            && let Some(current) = &mut queue.current
        {
            (current.phase, current.since, current.retry) = (phase, since, retry);
        }
    }

    fn next_arrival(&self, key: OrderingKey) -> Option<Arc<Notify>> {
        let mut queue = self.by_key.get_mut(&key)?;
        (!queue.is_superseded(&self.policy)).then(|| queue.arrival())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{HandlerFn, TestMessage};

    fn queues() -> Async<TestMessage, HandlerFn<impl Fn(&TestMessage) -> Result<(), HandlerError>>> {
        let key = |message: &TestMessage| OrderingKey::of(message.uid());
        Async::new(HandlerFn(|_: &TestMessage| Ok(())), QueuePolicy::default(), key)
    }

    #[tokio::test(start_paused = true)]
    async fn the_memory_of_many_keys_is_released_once_they_are_idle() {
        let queues = queues().closed();
        for number in 0..20_000 {
            queues.push(TestMessage::added(&number.to_string()));
        }
        let full = queues.queues.by_key.capacity();
        queues.open();
        queues.until_busy_at_most(0).await;
        assert!(queues.queues.by_key.capacity() < full / 100);
    }

    /// Passes each message on to another key of the same queues, until the version is 0, and then waits for a second.
    struct PassOn(std::sync::OnceLock<Async<TestMessage, Arc<PassOn>>>);

    impl EventHandler<TestMessage> for PassOn {
        async fn handle(&self, message: &TestMessage, context: &Context<'_>) -> Result<(), HandlerError> {
            let Some(next) = message.version.checked_sub(1) else {
                tokio::time::sleep(Duration::from_secs(1)).await;
                return Ok(());
            };
            let queues = self.0.get().expect("it is set before the first message");
            queues.handle(&TestMessage::modified(&next.to_string(), next), context).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_runs_where_its_message_is_delivered_until_it_waits_and_never_within_another_one() {
        let handler = Arc::new(PassOn(std::sync::OnceLock::new()));
        let key = |message: &TestMessage| OrderingKey::of(message.uid());
        let queues = Async::new(Arc::clone(&handler), QueuePolicy::default(), key);
        assert!(handler.0.set(queues.clone()).is_ok());
        let (context, before) = (Context::detached(), Instant::now());
        queues.handle(&TestMessage::modified("first", 10_000), &context).await.expect("it is queued");
        assert_eq!(
            queues.busy(),
            1,
            "the first message was handled, and the next one runs in a task of its own"
        );
        queues.until_busy_at_most(0).await;
        assert_eq!(before.elapsed(), Duration::from_secs(1));

        queues.handle(&TestMessage::modified("waits", 0), &context).await.expect("it is queued");
        assert_eq!(
            (queues.busy(), before.elapsed()),
            (1, Duration::from_secs(1)),
            "the caller does not wait"
        );
        queues.handle(&TestMessage::trigger("waits", 0), &context).await.expect("it is queued");
        queues.until_busy_at_most(0).await;
        assert_eq!(before.elapsed(), Duration::from_secs(3), "one after the other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_trigger_is_never_handled_within_the_call_of_its_sender() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let handler = HandlerFn(move |_: &TestMessage| {
            counter.fetch_add(1, SeqCst);
            Ok(())
        });
        let queues =
            Async::new(handler, QueuePolicy::default(), |_: &TestMessage| OrderingKey::of("one key"));
        let context = Context::detached();
        queues.handle(&TestMessage::added("a"), &context).await.expect("it is queued");
        assert_eq!(calls.load(SeqCst), 1);
        queues.handle(&TestMessage::trigger("a", 1), &context).await.expect("it is queued");
        assert_eq!(calls.load(SeqCst), 1, "its sender may hold locks that the handler takes");
        queues.until_busy_at_most(0).await;
        assert_eq!(calls.load(SeqCst), 2);
    }
}
