//! The queues of all ordering keys of a handler, and the tasks that run them.

use std::cmp::Ordering;
use std::hash::BuildHasherDefault;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use dashmap::DashMap;
use dashmap::mapref::entry::{Entry, OccupiedEntry};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::EventHandler;
use super::action::{Action, Next};
use super::context::{Context, Queued};
use super::item::Attempt;
use super::key_queue::{Ended, KeyQueue};
use super::queue_state::{QueueEntry, QueueMetrics};
use super::schedule::{SPREAD, Schedule};
use crate::backoff::random_delay;
use crate::event::{KeyHasher, Message, OrderingKey};
use crate::failure::{causes, panic_as_error};

/// The function that returns the ordering key of a message.
type KeyOf<E> = Box<dyn Fn(&E) -> OrderingKey + Send + Sync>;

/// The queues of all ordering keys, which the clones of an [`Async`](crate::Async) and its tasks share.
pub(super) struct QueueMap<E: Message, H> {
    inner: H,
    pub(super) key: KeyOf<E>,
    /// `true` if the handler reconciles everything that belongs to a key together.
    by_key: bool,
    metrics: Arc<dyn QueueMetrics>,
    pub(super) map: DashMap<OrderingKey, KeyQueue<E>, BuildHasherDefault<KeyHasher>>,
    /// The times of the next attempts. Locked while a queue of the map may be locked, never the other way round.
    schedule: Mutex<Schedule>,
    /// Notified when the next time of the schedule becomes earlier.
    earlier: Notify,
    /// `true` while messages are not held back (see [`Async::closed`](crate::Async::closed)); `false` after the queues were stopped.
    pub(super) open: AtomicBool,
    /// `true` while a handler is polled within the call that delivered its message.
    pub(super) polling: AtomicBool,
    /// The number of busy queues. A queue is not busy if its messages only wait for the time of their next attempt.
    pub(super) busy: AtomicUsize,
    /// Notified when `busy` decreases, for the callers that wait until fewer queues are busy or all are empty.
    less_busy: Notify,
    /// The largest number of busy queues since the map of the queues last released unused memory.
    peak: AtomicUsize,
    /// Cancelled when the program stops or the term ends: what waits for its next attempt stays unhandled then.
    pub(super) shutdown: CancellationToken,
    /// Cancelled to end everything except running invocations.
    pub(super) stop: CancellationToken,
    /// `true` once `shutdown` is cancelled. To ask a token takes a lock, and each message asks.
    pub(super) is_shut_down: AtomicBool,
    /// `true` once `stop` is cancelled.
    pub(super) is_stopped: AtomicBool,
    /// The messages that were not handled successfully when the queues shut down, from queues that were removed since.
    pub(super) unhandled: Mutex<Vec<QueueEntry<E>>>,
}

/// The number of shards of the map of the queues, each with its own lock. It is small because the program has one worker thread by default.
const SHARDS: usize = 4;

/// The number of busy queues up to which the map of the queues keeps its memory when none is busy any more.
const KEPT_CAPACITY: usize = 256;

type OccupiedQueue<'q, E> = OccupiedEntry<'q, OrderingKey, KeyQueue<E>>;

impl<E: Message + Clone, H: EventHandler<E>> QueueMap<E, H> {
    /// Creates an empty map, whose queues handle messages from the start.
    pub(super) fn new(inner: H, by_key: bool, key: KeyOf<E>, metrics: Arc<dyn QueueMetrics>) -> Self {
        let stop = CancellationToken::new();
        Self {
            inner,
            key,
            by_key,
            metrics,
            map: DashMap::with_hasher_and_shard_amount(BuildHasherDefault::default(), SHARDS),
            schedule: Mutex::default(),
            earlier: Notify::new(),
            open: AtomicBool::new(true),
            polling: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            less_busy: Notify::new(),
            peak: AtomicUsize::new(0),
            shutdown: stop.child_token(),
            stop,
            is_shut_down: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            unhandled: Mutex::default(),
        }
    }

    /// Adds a message. Returns the attempt that the caller has to [`run`](Self::run), if the key is idle.
    pub(super) fn add(&self, event: E) -> Option<(OrderingKey, Attempt<E>)> {
        self.metrics.added();
        let key = (self.key)(&event);
        let now = Instant::now();
        let mut queue = match self.map.entry(key) {
            Entry::Occupied(queue) => queue,
            Entry::Vacant(vacant) => {
                let open = self.open.load(SeqCst);
                if !open && self.is_stopped.load(SeqCst) {
                    return None;
                }
                vacant.insert_entry(KeyQueue::new(open, self.by_key))
            }
        };
        queue.get_mut().push(event, now);
        self.go_on(queue, now).map(|attempt| (key, attempt))
    }

    /// Handles the messages of one key, beginning with `attempt`, until none can be handled now.
    pub(super) async fn run(self: Arc<Self>, key: OrderingKey, attempt: Attempt<E>) {
        let mut next = Some(attempt);
        while let Some(Attempt { event, arrived, failures, others_fail, repeated }) = next {
            let queue = QueueOf { queues: &*self, key };
            let context = Context {
                queued_since: arrived,
                failures: failures.as_deref(),
                others_fail,
                repeated,
                queue: Some(&queue),
            };
            let handled = async {
                // Between the start of the attempt and the first poll of its task, the queues may have been stopped.
                if self.is_stopped.load(SeqCst) {
                    Ok(Action::interrupted())
                } else {
                    self.inner.handle(&event, &context).await
                }
            };
            let action = panic_as_error(pin!(handled)).await.unwrap_or_else(|error| {
                let (object_ref, error) = (event.object_ref(), causes(&*error));
                error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid, error,
                    "a failure was not handled by any wrapper of the chain; the event is dropped");
                Action::done()
            });
            next = self.end(key, action.next());
            if next.is_some() {
                consume_budget().await;
            }
        }
        // Once no queue is busy, the map gives back the memory of a burst.
        if self.busy.load(SeqCst) == 0 && self.peak.load(SeqCst) > KEPT_CAPACITY {
            self.peak.store(0, SeqCst);
            self.map.shrink_to_fit();
        }
    }

    /// Ends the running message of a key. Returns the next one that can be handled now.
    fn end(self: &Arc<Self>, key: OrderingKey, next: Option<Next>) -> Option<Attempt<E>> {
        let now = Instant::now();
        let Entry::Occupied(mut queue) = self.map.entry(key) else { return None };
        let Ended { answered, unhandled } = queue.get_mut().end(next, now);
        if let Some(unhandled) = unhandled {
            self.unhandled.lock().push(unhandled);
        }
        let next = self.go_on(queue, now);
        if answered {
            let keys = self.schedule.lock().end_outage(now);
            for key in keys {
                self.change(key, |queue| queue.wake(now + random_delay(SPREAD), false));
            }
        }
        next
    }

    /// Takes the next message of a queue, whose messages have changed, that can be handled now. Otherwise schedules the queue for the time
    /// of its next attempt, or removes it if it is empty. After a shutdown, messages that would have to wait are unhandled.
    fn go_on(&self, mut queue: OccupiedQueue<'_, E>, now: Instant) -> Option<Attempt<E>> {
        if self.is_shut_down.load(SeqCst) {
            let all = self.is_stopped.load(SeqCst) || !queue.get().started;
            let unhandled = queue.get_mut().take(all);
            self.unhandled.lock().extend(unhandled);
        }
        let attempt = queue.get_mut().next(now);
        let key = *queue.key();
        if let Some((due, outage)) = queue.get_mut().reschedule()
            && self.schedule.lock().set(key, due, outage, now)
        {
            self.earlier.notify_one();
        }
        let change = queue.get_mut().count_busy();
        match change {
            Ordering::Greater => {
                let busy = self.busy.fetch_add(1, SeqCst) + 1;
                self.peak.fetch_max(busy, SeqCst);
            }
            Ordering::Less => {
                self.busy.fetch_sub(1, SeqCst);
            }
            Ordering::Equal => {}
        }
        let is_empty = queue.get().is_empty();
        if is_empty {
            queue.remove();
        }
        if is_empty || change.is_lt() {
            self.less_busy.notify_waiters();
        }
        attempt
    }

    /// Applies `change` to a queue, and starts a task if a message of it can be handled then.
    pub(super) fn change(self: &Arc<Self>, key: OrderingKey, change: impl FnOnce(&mut KeyQueue<E>)) {
        if let Entry::Occupied(mut queue) = self.map.entry(key) {
            change(queue.get_mut());
            if let Some(attempt) = self.go_on(queue, Instant::now()) {
                tokio::spawn(Arc::clone(self).run(key, attempt));
            }
        }
    }

    /// Starts the attempts whose time has come, until the queues are stopped.
    pub(super) async fn run_schedule(self: Arc<Self>) {
        loop {
            let next = self.schedule.lock().next();
            let due = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = self.earlier.notified() => continue,
                () = due => {}
            }
            let now = Instant::now();
            let (due, probes) = {
                let mut schedule = self.schedule.lock();
                (schedule.due(now), schedule.probes(now))
            };
            for key in probes {
                self.change(key, |queue| queue.wake(now, true));
            }
            for key in due {
                self.change(key, |_| ());
            }
        }
    }

    /// Completes when `condition` returns `true`. The condition is checked whenever the number of busy queues has decreased.
    pub(super) async fn until(&self, condition: impl Fn(&Self) -> bool) {
        loop {
            let less_busy = self.less_busy.notified();
            if condition(self) {
                return;
            }
            less_busy.await;
        }
    }
}

impl<E: Message, H> QueueMap<E, H> {
    /// Ends everything except running invocations. Messages that arrive later are dropped.
    pub(super) fn stop(&self) {
        self.open.store(false, SeqCst);
        self.is_stopped.store(true, SeqCst);
        self.is_shut_down.store(true, SeqCst);
        self.stop.cancel();
    }
}

/// A queue as the context of its running message sees it.
struct QueueOf<'q, E: Message, H> {
    queues: &'q QueueMap<E, H>,
    key: OrderingKey,
}

impl<E: Message + Clone, H: EventHandler<E>> Queued for QueueOf<'_, E, H> {
    fn metrics(&self) -> &dyn QueueMetrics {
        &*self.queues.metrics
    }

    fn shutdown(&self) -> &CancellationToken {
        &self.queues.shutdown
    }

    fn running(&self, at: Instant) {
        if let Some(mut queue) = self.queues.map.get_mut(&self.key) {
            queue.invoked(at);
        }
    }
}
