//! The state of one message while it is handled, its retries included.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::queue_state::{Phase, QueueMetrics};
use super::retry_state::{LastError, Outcome, RetryMemory, RetryState, deadline};
use crate::event::{Identity, OrderingKey};

/// One message while it is handled, its retries included.
///
/// [`Async`](crate::Async) makes one for each message. A wrapper that is used alone gets [`Context::detached`].
pub struct Context<'q> {
    place: Option<QueuePlace<'q>>,
    /// The failures of the object, and the end of the message.
    state: Mutex<(RetryMemory, Outcome)>,
    /// Set once the handler has been invoked.
    invoked: AtomicBool,
}

thread_local! {
    /// Set while a message is polled for the first time, where it was delivered.
    pub(super) static POLLING: Cell<bool> = const { Cell::new(false) };
}

/// The place of the current message of a queue.
struct QueuePlace<'q> {
    queues: &'q dyn CurrentMessages,
    key: OrderingKey,
    /// The time since which it waits.
    since: Instant,
    /// `true` if it is handled where it was delivered, at that time.
    at_once: bool,
}

/// The queues as the [`Context`] of a current message uses them, whatever the type of their messages.
pub(super) trait CurrentMessages: Sync {
    fn shared(&self) -> &SharedQueueState;

    /// Shows the state of the current message of a key.
    fn show(&self, key: OrderingKey, phase: Phase, since: Instant, retry: RetryMemory);

    /// A notification of the next arrival; `None` if a queued message supersedes the current one.
    fn next_arrival(&self, key: OrderingKey) -> Option<Arc<Notify>>;
}

/// The state of the queues that does not depend on their types.
pub(super) struct SharedQueueState {
    pub(super) metrics: Arc<dyn QueueMetrics>,
    /// The number of queues, except those whose messages all wait for a point in time.
    pub(super) busy: AtomicUsize,
    /// Notified when `busy` falls.
    pub(super) less_busy: Notify,
    /// Ends retries and the wait of requeued messages.
    pub(super) shutdown: CancellationToken,
}

impl SharedQueueState {
    /// Counts a busy queue less. Returns `true` if none is left.
    pub(super) fn remove_busy(&self) -> bool {
        let last = self.busy.fetch_sub(1, SeqCst) == 1;
        self.less_busy.notify_waiters();
        last
    }
}

impl Context<'static> {
    /// The context of a message that is in no queue: nothing supersedes it.
    pub fn detached() -> Self {
        Self { place: None, state: Mutex::default(), invoked: AtomicBool::new(false) }
    }
}

impl<'q> Context<'q> {
    /// The context of the current message of a key, which has been waiting since `since`, or is handled `at_once`.
    pub(super) fn new(
        queues: &'q dyn CurrentMessages,
        key: OrderingKey,
        (since, at_once): (Instant, bool),
        retry: RetryMemory,
    ) -> Self {
        let place = Some(QueuePlace { queues, key, since, at_once });
        Self { place, state: Mutex::new((retry, Outcome::Done)), invoked: AtomicBool::new(false) }
    }

    /// Returns the state after the message was handled.
    pub(super) fn into_end(self) -> (RetryMemory, Outcome) {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, (RetryMemory, Outcome)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when the program stops.
    pub async fn shutdown(&self) {
        match &self.place {
            Some(place) => place.queues.shared().shutdown.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// The number of times this object failed and was requeued since it last succeeded.
    pub fn failures(&self) -> u32 {
        self.state().0.as_ref().map_or(0, |retry| retry.failures)
    }

    /// The number of attempts that failed since this object last succeeded, the reported one included.
    pub fn attempts(&self) -> u32 {
        self.last_error().map_or(0, |last_error| last_error.attempts)
    }

    /// The last error since this object last succeeded.
    pub fn last_error(&self) -> Option<LastError> {
        self.state().0.as_ref()?.last_error.clone()
    }

    /// Remembers until the next success that the failure was reported on this object. Returns `true` the first time.
    pub fn set_reported_on(&self, object: Identity) -> bool {
        let first = self.reported_on().is_none();
        self.update_retry_state(|retry| retry.reported_on.get_or_insert_with(|| Arc::new(object)).clone());
        first
    }

    /// The object on which the failure was reported, if it was.
    pub fn reported_on(&self) -> Option<Arc<Identity>> {
        self.state().0.as_ref()?.reported_on.clone()
    }

    /// Handles the message again after `delay`, unless the object changes before.
    pub fn requeue_after(&self, delay: Duration) {
        self.state().1 = Outcome::Requeue(delay);
    }

    /// Updates the retry state of the object, which outlives this message.
    pub(super) fn update_retry_state<T>(&self, change: impl FnOnce(&mut RetryState) -> T) -> T {
        change(self.state().0.get_or_insert_default())
    }

    /// Returns `true` if success now ends a series of failures. It does not if the message was superseded or the program
    /// stops: then nothing was done.
    pub(super) fn is_recovery(&self) -> bool {
        let state = self.state();
        let (Some(retry), Outcome::Done) = &*state else { return false };
        let stops = |place: &QueuePlace<'_>| place.queues.shared().shutdown.is_cancelled();
        retry.last_error.is_some() && !self.place.as_ref().is_some_and(stops)
    }

    /// Records that the handler is invoked, for the first time or again, and returns the time. A message that has not waited since its
    /// delivery needs no other clock reading.
    pub(super) fn set_invoked(&self) -> Instant {
        let Some(QueuePlace { queues, since, at_once, .. }) = &self.place else { return Instant::now() };
        if self.invoked.swap(true, Relaxed) {
            return Instant::now();
        }
        let now = if *at_once && POLLING.get() { *since } else { Instant::now() };
        queues.shared().metrics.waited(now.saturating_duration_since(*since));
        now
    }

    /// Shows the phase in which the message has been since `since`.
    pub(super) fn show(&self, phase: Phase, since: Instant) {
        if let Some(QueuePlace { queues, key, .. }) = &self.place {
            queues.show(*key, phase, since, self.state().0.clone());
        }
    }

    /// The metrics of the queues.
    pub(super) fn metrics(&self) -> Option<&dyn QueueMetrics> {
        self.place.as_ref().map(|place| &*place.queues.shared().metrics)
    }

    /// Waits for the next attempt. Returns `false` if there is none: a queued message supersedes this one, or the program stops.
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
        shared.remove_busy();
        let again = tokio::select! {
            () = superseded => {
                self.state().1 = Outcome::Superseded;
                false
            }
            () = shared.shutdown.cancelled() => false,
            () = tokio::time::sleep_until(at) => true,
        };
        shared.busy.fetch_add(1, SeqCst);
        self.show(Phase::Queued, Instant::now());
        again
    }
}
