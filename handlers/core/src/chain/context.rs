//! The state of one message while a handler processes it, including all retries.

use std::any::Any;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::outage::Outage;
use super::queue_state::{Phase, QueueMetrics};
use super::retry_state::{LastError, RetryMemory, RetryState, deadline};
use crate::event::Identity;

/// The state of one message while a handler processes it, including all retries: the failures of its object so far, and the request to
/// handle the object again.
///
/// [`Async`](crate::Async) creates a context for each message. A wrapper that is used without queues gets [`Context::detached`].
pub struct Context<'q> {
    /// The state of the message, which its queue shares.
    pub(super) current: Arc<Current>,
    /// The shared state of the handler's queues; `None` if the message is in no queue.
    pub(super) queues: Option<&'q SharedQueueState>,
}

/// The state of a message while a handler processes it, which its queue and its [`Context`] share.
pub(super) struct Current {
    progress: Mutex<Progress>,
    /// The time at which the message began to wait for its handler.
    queued_since: Instant,
    /// `true` once the handler has been invoked for the message.
    invoked: AtomicBool,
    /// Notified when a newer message makes the retries of this one pointless.
    pub(super) superseded: Notify,
    /// `true` if another message of the same object has failed and waits in the queue.
    others_fail: bool,
}

/// The part of the state of a message that changes while a handler processes the message.
pub(super) struct Progress {
    /// The phase for status pages: running, or waiting for the next attempt.
    pub(super) phase: Phase,
    /// The time at which the phase began.
    pub(super) since: Instant,
    /// The recorded failures of the message's object since it was last handled successfully; `None` if nothing is recorded.
    pub(super) retry: RetryMemory,
    /// The delay after which the message is to be handled again, zero if its retries ended because it was superseded, and the longest
    /// possible if they ended because the program stops; `None` if it is not to be handled again.
    pub(super) again: Option<Duration>,
    /// `true` if the handler declined a newer event of the object, so that this one is not to be handled again in any case.
    pub(super) declined: bool,
}

thread_local! {
    /// `true` while a handler is polled for the first time within the call that delivered the message.
    pub(super) static POLLING: Cell<bool> = const { Cell::new(false) };
}

/// The state that all queues of one handler share, independent of the type of the messages.
pub(super) struct SharedQueueState {
    /// The metrics of the handler's queues.
    pub(super) metrics: Arc<dyn QueueMetrics>,
    /// The number of busy queues. A queue is not busy if all its messages failed and only wait for the time of their next attempt.
    pub(super) busy: AtomicUsize,
    /// Notified when `busy` decreases, for the callers that wait until fewer queues are busy or all are empty.
    pub(super) less_busy: Notify,
    /// Cancelled when the program stops or the term ends: ends the retries, and the delays of requeued messages.
    pub(super) shutdown: CancellationToken,
    /// The messages that wait after a transient failure, to be woken when the outage is over.
    pub(super) outage: Outage,
}

impl SharedQueueState {
    /// Waits until `at`, the time of the next attempt. `outage` is `Some` after a transient failure: the wait may then end early, because
    /// the outage is over, or because this message is tried as the probe, at the earliest after the delay in `outage`, which the error
    /// requested. Returns `false` if the queues shut down or `arrival` is notified before. During the wait, the queue does not count as
    /// busy.
    pub(super) async fn wait_until(&self, at: Instant, outage: Option<Duration>, arrival: &Notify) -> bool {
        let due = async {
            match outage {
                Some(delay) => self.outage.wait_until(at, delay).await,
                None => sleep_until(at).await,
            }
        };
        self.remove_busy();
        let is_due = tokio::select! {
            () = arrival.notified() => false,
            () = self.shutdown.cancelled() => false,
            () = due => true,
        };
        self.busy.fetch_add(1, SeqCst);
        is_due
    }

    /// Decrements the number of busy queues, and wakes the callers that wait for that. Returns `true` if the number is now zero.
    pub(super) fn remove_busy(&self) -> bool {
        let last = self.busy.fetch_sub(1, SeqCst) == 1;
        self.less_busy.notify_waiters();
        last
    }
}

impl Current {
    /// Creates the state of a message that has waited since `since`. `retry` holds the failures of its object so far.
    pub(super) fn new(since: Instant, retry: RetryMemory, others_fail: bool) -> Self {
        let progress =
            Mutex::new(Progress { phase: Phase::Queued, since, retry, again: None, declined: false });
        Self { progress, queued_since: since, invoked: false.into(), superseded: Notify::new(), others_fail }
    }

    /// Locks the part of the message's state that changes while a handler processes the message, and returns it.
    pub(super) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Context<'_> {
    /// Returns the context of a message that is in no queue: no other message supersedes it.
    pub fn detached() -> Self {
        Self { current: Arc::new(Current::new(Instant::now(), None, false)), queues: None }
    }

    /// Returns the time at which the message began to wait in its queue.
    pub fn queued_since(&self) -> Instant {
        self.current.queued_since
    }

    /// Completes when the queues of the handler shut down. Never completes if the message is in no queue ([`detached`](Self::detached)).
    pub async fn shutdown(&self) {
        match self.queues {
            Some(queues) => queues.shutdown.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the number of times that this object was requeued after a failure since it was last handled successfully.
    pub fn failures(&self) -> u32 {
        self.current.progress().retry.as_ref().map_or(0, |retry| retry.failures)
    }

    /// Returns the number of failed attempts since this object was last handled successfully. It includes the failure that is being
    /// reported.
    pub fn attempts(&self) -> u32 {
        self.last_error().map_or(0, |last_error| last_error.attempts)
    }

    /// Returns the last error that counted as a failure since this object was last handled successfully; `None` if there was none.
    /// Unfinished work counts once it is reported as a failure.
    pub fn last_error(&self) -> Option<LastError> {
        self.current.progress().retry.as_ref()?.last_error.clone()
    }

    /// Records that a failure of the message's object was reported as a Kubernetes Event on `object`. Returns `true` at the first call
    /// since the message's object was last handled successfully; later calls change nothing and return `false`.
    pub fn set_reported_on(&self, object: Identity) -> bool {
        let first = self.reported_on().is_none();
        self.update_retry_state(|retry| retry.reported_on.get_or_insert_with(|| Arc::new(object)).clone());
        first
    }

    /// Returns the object on which a failure of the message's object was first reported as a Kubernetes Event since the last success;
    /// `None` if none was reported.
    pub fn reported_on(&self) -> Option<Arc<Identity>> {
        self.current.progress().retry.as_ref()?.reported_on.clone()
    }

    /// Keeps details of the last attempt in memory until the object is handled successfully. [`QueueEntry`](crate::QueueEntry) shows them.
    pub fn attach(&self, details: Arc<dyn Any + Send + Sync>) {
        self.update_retry_state(|retry| retry.attachment = Some(details));
    }

    /// Returns the details that an attempt has [attached](Self::attach); `None` if there are none since the object was last handled
    /// successfully.
    pub fn attachment(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.current.progress().retry.as_ref()?.attachment.clone()
    }

    /// Ends the retries, adds one to [`failures`](Self::failures), and requests that the object is handled again after `delay`, or earlier
    /// if the object changes.
    pub fn requeue_after(&self, delay: Duration) {
        let mut progress = self.current.progress();
        progress.retry.get_or_insert_default().requeued();
        progress.again = Some(delay);
    }

    /// Applies `change` to the recorded failures of the object, which outlast this message, and returns its result. If an outage may have
    /// caused the failures so far and `change` rules that out, wakes the messages that wait for the end of the outage.
    pub(super) fn update_retry_state<T>(&self, change: impl FnOnce(&mut RetryState) -> T) -> T {
        let mut progress = self.current.progress();
        let retry = progress.retry.get_or_insert_default();
        let was_outage = retry.outage.is_some();
        let result = change(retry);
        if let Some(queues) = self.queues.filter(|_| was_outage && retry.outage.is_none()) {
            queues.outage.end();
        }
        result
    }

    /// Returns `true` if a success now would end a series of failures. Returns `false` if the message was superseded or the program is
    /// stopping, because then the handler has not finished its work, or if another message of the object fails.
    pub(super) fn is_recovery(&self) -> bool {
        let Progress { retry: Some(retry), again: None, .. } = &*self.current.progress() else {
            return false;
        };
        let stopping = self.queues.is_some_and(|queues| queues.shutdown.is_cancelled());
        retry.last_error.is_some() && !stopping && !self.current.others_fail
    }

    /// Records that the handler is invoked for the message, and returns the time of the invocation. If the message is in a queue,
    /// the first invocation also reports its time in the queue to the metrics. Within the call that delivered the message, that time is
    /// zero, and the clock is not read again.
    pub(super) fn set_invoked(&self) -> Instant {
        let (invoked, since) = (&self.current.invoked, self.current.queued_since);
        let Some(queues) = self.queues.filter(|_| !invoked.load(Relaxed)) else { return Instant::now() };
        invoked.store(true, Relaxed);
        let now = if POLLING.get() { since } else { Instant::now() };
        queues.metrics.waited(now.saturating_duration_since(since));
        now
    }

    /// Sets the phase of the message, and the time at which that phase began, for status pages.
    pub(super) fn set_phase(&self, phase: Phase, since: Instant) {
        let mut progress = self.current.progress();
        (progress.phase, progress.since) = (phase, since);
    }

    /// Returns the metrics of the queues; `None` for a detached context.
    pub(super) fn metrics(&self) -> Option<&dyn QueueMetrics> {
        self.queues.map(|queues| &*queues.metrics)
    }

    /// Waits for the back-off delay `wait`, or less if an outage ends or is probed. Returns `false` if there is no next attempt, because a
    /// queued message supersedes this one or the program stops.
    pub(super) async fn sleep(&self, wait: Duration) -> bool {
        let now = Instant::now();
        let at = deadline(now, wait);
        let Some(queues) = self.queues else {
            sleep_until(at).await;
            return true;
        };
        self.set_phase(Phase::Retrying { at }, now);
        let outage = self.current.progress().retry.as_ref().and_then(|retry| retry.outage);
        let again = queues.wait_until(at, outage, &self.current.superseded).await;
        if !again {
            let stopping = queues.shutdown.is_cancelled();
            self.current.progress().again = Some(if stopping { Duration::MAX } else { Duration::ZERO });
        }
        self.set_phase(Phase::Queued, Instant::now());
        again
    }
}
