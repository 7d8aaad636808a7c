//! The state of one message while it is handled, shared by its queue and the wrappers.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::backoff::Backoff;
use super::failure::Failure;
use super::queue_state::{LastError, MessageView, Phase, QueueMetrics};
use crate::event::Identity;

/// One message while it is handled, its retries included.
///
/// [`Async`](crate::Async) makes one for each message. A wrapper that is used alone gets [`Context::detached`].
pub struct Context<'q> {
    queues: Option<&'q SharedQueueState>,
    message: Arc<MessageState>,
}

/// The state of the queues that does not depend on their types.
pub(crate) struct SharedQueueState {
    pub(crate) metrics: Arc<dyn QueueMetrics>,
    /// The number of queues, except those whose messages all wait for a point in time.
    pub(crate) busy: AtomicUsize,
    /// Notified when `busy` falls.
    pub(crate) less_busy: Notify,
    /// Ends retries and the wait of requeued messages; a child of `stop`.
    pub(crate) shutdown: CancellationToken,
    /// Ends everything but running invocations.
    pub(crate) stop: CancellationToken,
}

impl SharedQueueState {
    /// Counts a busy queue less. Returns `true` if none is left.
    pub(crate) fn remove_busy(&self) -> bool {
        let last = self.busy.fetch_sub(1, SeqCst) == 1;
        self.less_busy.notify_waiters();
        last
    }
}

/// The current message of a queue.
pub(crate) struct MessageState {
    state: Mutex<CurrentState>,
    /// Notified when a queued message supersedes this one.
    pub(crate) superseded: Notify,
}

struct CurrentState {
    phase: Phase,
    since: Instant,
    /// The error because of which it was or is delayed.
    shown: Option<Arc<LastError>>,
    memory: RetryMemory,
    outcome: Outcome,
    /// Set once the handler has been invoked.
    started: bool,
}

/// The end of the current message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was handled, or is not to be handled again.
    #[default]
    Done,
    /// Its retries ended early because a queued message supersedes it.
    Superseded,
    /// It failed and is to be handled again after this delay.
    Requeue(Duration),
}

/// The end of a [`Context::sleep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wakeup {
    Elapsed,
    Superseded,
    Shutdown,
}

impl MessageState {
    pub(crate) fn new(since: Instant, memory: RetryMemory) -> Self {
        let shown = memory.as_ref().and_then(|memory| memory.last_error.clone());
        let state = CurrentState {
            phase: Phase::Queued,
            since,
            shown,
            memory,
            outcome: Outcome::Done,
            started: false,
        };
        Self { state: Mutex::new(state), superseded: Notify::new() }
    }

    pub(crate) fn view<'a, E>(&self, event: &'a E) -> MessageView<'a, E> {
        let state = self.lock();
        MessageView { event, phase: state.phase, since: state.since, last_error: state.shown.clone() }
    }

    /// Takes the result after the message was handled.
    pub(crate) fn take_outcome(&self) -> (Outcome, RetryMemory) {
        let mut state = self.lock();
        (state.outcome, state.memory.take())
    }

    #[cfg(test)]
    pub(super) fn set_outcome(&self, outcome: Outcome, memory: RetryMemory) {
        let mut state = self.lock();
        (state.outcome, state.memory) = (outcome, memory);
    }

    fn lock(&self) -> MutexGuard<'_, CurrentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_phase(&self, phase: Phase, since: Instant) {
        let mut state = self.lock();
        (state.phase, state.since) = (phase, since);
    }
}

impl Context<'static> {
    /// The context of a message that is in no queue: nothing supersedes it.
    pub fn detached() -> Self {
        Self { queues: None, message: Arc::new(MessageState::new(Instant::now(), None)) }
    }
}

impl<'q> Context<'q> {
    pub(crate) fn new(queues: &'q SharedQueueState, message: Arc<MessageState>) -> Self {
        Self { queues: Some(queues), message }
    }

    /// Completes when the program stops.
    pub async fn shutdown(&self) {
        match self.queues {
            Some(queues) => queues.shutdown.cancelled().await,
            None => std::future::pending().await,
        }
    }

    /// The number of times this object failed and was requeued since it last succeeded.
    pub fn failures(&self) -> u32 {
        self.message.lock().memory.as_ref().map_or(0, |memory| memory.failures)
    }

    /// The number of attempts that failed since this object last succeeded, the reported one included.
    pub fn attempts(&self) -> u32 {
        self.last_error().map_or(0, |last_error| last_error.attempts)
    }

    /// The last error since this object last succeeded.
    pub fn last_error(&self) -> Option<Arc<LastError>> {
        self.message.lock().memory.as_ref()?.last_error.clone()
    }

    /// Remembers until the next success that the failure was reported on this object. Returns `true` the first time.
    pub fn set_reported_on(&self, object: Identity) -> bool {
        let first = self.reported_on().is_none();
        self.memory(|memory| memory.reported_on.get_or_insert_with(|| Arc::new(object)).clone());
        first
    }

    /// The object on which the failure was reported, if it was.
    pub fn reported_on(&self) -> Option<Arc<Identity>> {
        self.message.lock().memory.as_ref()?.reported_on.clone()
    }

    /// Handles the message again after `delay`, unless the object changes before.
    pub fn requeue_after(&self, delay: Duration) {
        self.message.lock().outcome = Outcome::Requeue(delay);
    }

    /// Returns `true` if success now ends a series of failures. It does not if the message was superseded or the program
    /// stops: then nothing was done.
    pub(crate) fn is_recovery(&self) -> bool {
        let state = self.message.lock();
        state.memory.as_ref().is_some_and(|memory| memory.last_error.is_some())
            && state.outcome == Outcome::Done
            && self.queues.is_none_or(|queues| !queues.shutdown.is_cancelled())
    }

    /// Ends the retries in favour of a queued message, which continues with `backoff`.
    pub(crate) fn set_superseded(&self, backoff: Backoff) {
        self.memory(|memory| memory.backoff = Some(backoff));
        self.message.lock().outcome = Outcome::Superseded;
    }

    /// Takes the back-off that an earlier message of this object left.
    pub(crate) fn take_backoff(&self) -> Option<Backoff> {
        self.message.lock().memory.as_mut()?.backoff.take()
    }

    /// Changes the state that outlives this message.
    pub(crate) fn memory<T>(&self, change: impl FnOnce(&mut RetryState) -> T) -> T {
        change(self.message.lock().memory.get_or_insert_default())
    }

    /// Measures an invocation of the handler until the guard is dropped.
    pub(crate) fn invocation(&self) -> Invocation<'_> {
        let began = Instant::now();
        if let Some(queues) = self.queues {
            let mut state = self.message.lock();
            if !std::mem::replace(&mut state.started, true) {
                queues.metrics.waited(began.saturating_duration_since(state.since));
            }
        }
        Invocation { began, context: self }
    }

    /// Waits for the next attempt, because of `reason`.
    pub(crate) async fn sleep(&self, wait: Duration, reason: Arc<LastError>) -> Wakeup {
        let Some(queues) = self.queues else {
            tokio::time::sleep(wait).await;
            return Wakeup::Elapsed;
        };
        let now = Instant::now();
        self.message.set_phase(Phase::Retrying { at: deadline(now, wait) }, now);
        self.message.lock().shown = Some(reason);
        queues.remove_busy();
        let wakeup = tokio::select! {
            () = self.message.superseded.notified() => Wakeup::Superseded,
            () = queues.shutdown.cancelled() => Wakeup::Shutdown,
            () = tokio::time::sleep(wait) => Wakeup::Elapsed,
        };
        queues.busy.fetch_add(1, SeqCst);
        self.message.set_phase(Phase::Queued, Instant::now());
        wakeup
    }

    /// Counts a retry in the metrics.
    pub(crate) fn count_retry(&self) {
        if let Some(queues) = self.queues {
            queues.metrics.retried();
        }
    }
}

/// One invocation of the handler, until it is dropped.
pub(crate) struct Invocation<'c> {
    pub(crate) began: Instant,
    context: &'c Context<'c>,
}

impl Invocation<'_> {
    /// Shows that the handler runs, once it has not ended at its first poll.
    pub(crate) fn set_running(&self) {
        self.context.message.set_phase(Phase::Running, self.began);
    }
}

impl Drop for Invocation<'_> {
    fn drop(&mut self) {
        if let Some(queues) = self.context.queues {
            queues.metrics.worked(self.began.elapsed());
        }
    }
}

/// The time `delay` after `start`; a year after it if that cannot be represented.
pub(crate) fn deadline(start: Instant, delay: Duration) -> Instant {
    start.checked_add(delay).unwrap_or_else(|| start + Duration::from_secs(86_400 * 365))
}

/// The [`RetryState`] of an object that has failed; `None` for most objects, hence the box.
pub(crate) type RetryMemory = Option<Box<RetryState>>;

/// The state of an object from its first failure until it is handled with success.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetryState {
    /// The back-off of retries that ended early.
    pub(crate) backoff: Option<Backoff>,
    /// The number of times the object was requeued after a failure.
    pub(crate) failures: u32,
    /// The last error.
    pub(crate) last_error: Option<Arc<LastError>>,
    /// The last error that was only [pending](Failure::pending).
    pub(crate) pending: Option<Arc<LastError>>,
    /// The object on which the failure was reported.
    pub(crate) reported_on: Option<Arc<Identity>>,
}

impl RetryState {
    /// Records a failed attempt and returns the resulting error state.
    pub(crate) fn failed(&mut self, error: &dyn Failure) -> Arc<LastError> {
        let last_error = LastError::after(self.last_error.as_deref(), error);
        Arc::clone(self.last_error.insert(Arc::new(last_error)))
    }

    /// Records an attempt whose work is [pending](Failure::pending) and returns the resulting state.
    pub(crate) fn pending(&mut self, error: &dyn Failure) -> Arc<LastError> {
        let pending = LastError::after(self.pending.as_deref(), error);
        Arc::clone(self.pending.insert(Arc::new(pending)))
    }

    /// Records that the pending work counts as a failure from now on.
    pub(crate) fn pending_failed(&mut self) {
        let Some(pending) = &self.pending else { return };
        let since = self.last_error.as_ref().map_or(pending.since, |error| error.since.min(pending.since));
        self.last_error = Some(Arc::new(LastError { since, ..LastError::clone(pending) }));
    }
}

/// Merges `memory` into that of a message that takes over: fields of `memory` win, the failure count is the maximum.
pub(crate) fn merge(memory: RetryMemory, successor: &mut RetryMemory) {
    let Some(mut memory) = memory else { return };
    if let Some(own) = successor.take() {
        memory.failures = memory.failures.max(own.failures);
        memory.last_error = memory.last_error.or(own.last_error);
        memory.pending = memory.pending.or(own.pending);
        memory.reported_on = memory.reported_on.or(own.reported_on);
    }
    *successor = Some(memory);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[expect(clippy::unnecessary_wraps, reason = "it is the memory of a context")]
    fn memory(failures: u32, name: Option<&str>) -> RetryMemory {
        let reported_on =
            name.map(|name| Arc::new(Identity::of::<Pod>(None, name.to_owned(), String::new())));
        Some(Box::new(RetryState { failures, reported_on, ..RetryState::default() }))
    }

    #[test]
    fn a_merge_keeps_the_larger_failure_count_and_the_newer_reported_object() {
        for (newer, older, expected) in
            [(None, Some("b"), "b"), (Some("a"), Some("b"), "a"), (Some("a"), None, "a")]
        {
            let mut successor = memory(3, older);
            merge(memory(2, newer), &mut successor);
            let successor = successor.unwrap();
            assert_eq!((successor.failures, &*successor.reported_on.unwrap().name), (3, expected));
        }
    }
}
