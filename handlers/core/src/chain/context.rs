//! The state of one message while a handler processes it, including all retries.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::outage::Outage;
use super::queue_state::{Phase, QueueMetrics};
use super::retry_state::{LastError, Outcome, RetryMemory, RetryState, deadline};
use crate::event::{Identity, OrderingKey};

/// The state of one message while a handler processes it, including all retries: the failures of its object so far, and the request to
/// handle the object again.
///
/// [`Async`](crate::Async) creates a context for each message. A wrapper that is used without queues gets [`Context::detached`].
pub struct Context<'q> {
    /// The queue of the message; `None` if the message is in no queue.
    place: Option<QueuePlace<'q>>,
    /// The failures of the object, and the action to take when the message has been handled.
    state: Mutex<(RetryMemory, Outcome)>,
    /// Set once the handler has been invoked.
    invoked: AtomicBool,
}

thread_local! {
    /// Set while a message is polled for the first time within the call that delivered it.
    pub(super) static POLLING: Cell<bool> = const { Cell::new(false) };
}

/// The queue in which a message is the current one.
struct QueuePlace<'q> {
    queues: &'q dyn CurrentMessages,
    key: OrderingKey,
    /// The time at which the message started to wait.
    since: Instant,
    /// `true` if the message is handled within the call that delivered it, without waiting.
    at_once: bool,
}

/// The part of the queues that the [`Context`] of a current message uses, independent of the type of the messages.
pub(super) trait CurrentMessages: Sync {
    /// Returns the state that all queues share.
    fn shared(&self) -> &SharedQueueState;

    /// Sets the phase of the current message of a key, for status pages, and saves the failures of its object.
    fn show(&self, key: OrderingKey, phase: Phase, since: Instant, retry: RetryMemory);

    /// Returns a notification of the next message with this key; `None` if a queued message already supersedes the current one.
    fn next_arrival(&self, key: OrderingKey) -> Option<Arc<Notify>>;

    /// Returns `true` if another message of the object of the current message fails.
    fn is_still_failing(&self, key: OrderingKey) -> bool;
}

/// The state that all queues of one handler share, independent of the type of the messages.
pub(super) struct SharedQueueState {
    pub(super) metrics: Arc<dyn QueueMetrics>,
    /// The number of busy queues. A queue is not busy if all its messages failed and only wait for the time of their next attempt.
    pub(super) busy: AtomicUsize,
    /// Notified when `busy` falls.
    pub(super) less_busy: Notify,
    /// Ends the retries, and the delays of requeued messages.
    pub(super) shutdown: CancellationToken,
    /// Ends the delays after transient failures early.
    pub(super) outage: Outage,
}

impl SharedQueueState {
    /// Waits for the next attempt at `at`. After a transient failure, which requested the delay in `outage`, it may come earlier.
    pub(super) async fn sleep_until(&self, at: Instant, outage: Option<Duration>) {
        match outage {
            Some(delay) => self.outage.wait_until(at, delay).await,
            None => tokio::time::sleep_until(at).await,
        }
    }

    /// Decrements the number of busy queues. Returns `true` if none is left.
    pub(super) fn remove_busy(&self) -> bool {
        let last = self.busy.fetch_sub(1, SeqCst) == 1;
        self.less_busy.notify_waiters();
        last
    }
}

impl Context<'static> {
    /// Returns the context of a message that is in no queue: no other message supersedes it.
    pub fn detached() -> Self {
        Self { place: None, state: Mutex::default(), invoked: AtomicBool::new(false) }
    }
}

impl<'q> Context<'q> {
    /// Creates the context of the current message of a key. `since` is the time at which the message started to wait; `at_once` is set
    /// if the message is handled within the call that delivered it.
    pub(super) fn new(
        queues: &'q dyn CurrentMessages,
        key: OrderingKey,
        (since, at_once): (Instant, bool),
        retry: RetryMemory,
    ) -> Self {
        let place = Some(QueuePlace { queues, key, since, at_once });
        Self { place, state: Mutex::new((retry, Outcome::Done)), invoked: AtomicBool::new(false) }
    }

    /// Returns the failures of the object, and the action to take, after the message was handled.
    pub(super) fn into_end(self) -> (RetryMemory, Outcome) {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, (RetryMemory, Outcome)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when the queues shut down; never for a [detached](Self::detached) context.
    pub async fn shutdown(&self) {
        match &self.place {
            Some(place) => place.queues.shared().shutdown.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the number of times that this object was requeued after a failure since it was last handled successfully.
    pub fn failures(&self) -> u32 {
        self.state().0.as_ref().map_or(0, |retry| retry.failures)
    }

    /// Returns the number of failed attempts since this object was last handled successfully. It includes the failure that is being
    /// reported.
    pub fn attempts(&self) -> u32 {
        self.last_error().map_or(0, |last_error| last_error.attempts)
    }

    /// Returns the last error since this object was last handled successfully; `None` if there was none.
    pub fn last_error(&self) -> Option<LastError> {
        self.state().0.as_ref()?.last_error.clone()
    }

    /// Records that the failure was reported as a Kubernetes Event on `object`. Returns `true` at the first call since the object was
    /// last handled successfully; later calls change nothing.
    pub fn set_reported_on(&self, object: Identity) -> bool {
        let first = self.reported_on().is_none();
        self.update_retry_state(|retry| retry.reported_on.get_or_insert_with(|| Arc::new(object)).clone());
        first
    }

    /// Returns the object on which the failure was reported; `None` if it was not reported.
    pub fn reported_on(&self) -> Option<Arc<Identity>> {
        self.state().0.as_ref()?.reported_on.clone()
    }

    /// Requests that the object is handled again after `delay`, or earlier if the object changes.
    pub fn requeue_after(&self, delay: Duration) {
        self.state().1 = Outcome::Requeue(delay);
    }

    /// Updates the recorded failures of the object, which are kept after this message.
    pub(super) fn update_retry_state<T>(&self, change: impl FnOnce(&mut RetryState) -> T) -> T {
        let mut state = self.state();
        let retry = state.0.get_or_insert_default();
        let was_outage = retry.outage.is_some();
        let result = change(retry);
        if let Some(place) = self.place.as_ref().filter(|_| was_outage && retry.outage.is_none()) {
            place.queues.shared().outage.end();
        }
        result
    }

    /// Returns `true` if a success now would end a series of failures. Returns `false` if the message was superseded or the program is
    /// stopping, because then the handler has not finished its work, or if another message of the object fails.
    pub(super) fn is_recovery(&self) -> bool {
        let state = self.state();
        let (Some(retry), Outcome::Done) = &*state else { return false };
        let unfinished = |QueuePlace { queues, key, .. }: &QueuePlace<'_>| {
            queues.shared().shutdown.is_cancelled() || queues.is_still_failing(*key)
        };
        retry.last_error.is_some() && !self.place.as_ref().is_some_and(unfinished)
    }

    /// Records that the handler is invoked, and returns the time. The first invocation also reports the time in the queue to the
    /// metrics. For a message that is handled within the call that delivered it, the clock is not read again.
    pub(super) fn set_invoked(&self) -> Instant {
        let Some(QueuePlace { queues, since, at_once, .. }) = &self.place else { return Instant::now() };
        if self.invoked.swap(true, Relaxed) {
            return Instant::now();
        }
        let now = if *at_once && POLLING.get() { *since } else { Instant::now() };
        queues.shared().metrics.waited(now.saturating_duration_since(*since));
        now
    }

    /// Sets the phase of the message, and the time at which that phase began, for status pages.
    pub(super) fn show(&self, phase: Phase, since: Instant) {
        if let Some(QueuePlace { queues, key, .. }) = &self.place {
            queues.show(*key, phase, since, self.state().0.clone());
        }
    }

    /// Returns the metrics of the queues; `None` for a detached context.
    pub(super) fn metrics(&self) -> Option<&dyn QueueMetrics> {
        self.place.as_ref().map(|place| &*place.queues.shared().metrics)
    }

    /// Waits until the next attempt. Returns `false` if there is no next attempt, because a queued message supersedes this one or the
    /// program stops.
    pub(super) async fn sleep(&self, wait: Duration) -> bool {
        let now = Instant::now();
        let at = deadline(now, wait);
        let Some(QueuePlace { queues, key, .. }) = &self.place else {
            tokio::time::sleep_until(at).await;
            return true;
        };
        self.show(Phase::Retrying { at }, now);
        let shared = queues.shared();
        let superseded = async {
            while let Some(arrival) = queues.next_arrival(*key) {
                arrival.notified().await;
            }
        };
        let outage = self.state().0.as_ref().and_then(|retry| retry.outage);
        shared.remove_busy();
        let again = tokio::select! {
            () = superseded => {
                self.state().1 = Outcome::Superseded;
                false
            }
            () = shared.shutdown.cancelled() => false,
            () = shared.sleep_until(at, outage) => true,
        };
        shared.busy.fetch_add(1, SeqCst);
        self.show(Phase::Queued, Instant::now());
        again
    }
}
