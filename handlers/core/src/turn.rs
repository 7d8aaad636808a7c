//! What only the queue knows of the message in hand, and what the wrappers tell the queue.

use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;

/// One message's turn.
///
/// [`Async`](crate::Async) makes one for each message. A wrapper that is used alone gets [`Turn::alone`].
pub struct Turn<'q> {
    queue: Option<&'q dyn Waiting>,
    shutdown: Option<&'q CancellationToken>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    backoff: Option<Backoff>,
    failures: u32,
    verdict: Verdict,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The message was handled, or its failure is over and done with.
    #[default]
    Done,
    /// Its retries ended early in favour of a newer message.
    Superseded,
    /// It failed for good and is to be pushed again after this time.
    Again(Duration),
}

/// What [`Async`](crate::Async) answers about the messages that wait behind the one in hand.
pub(crate) trait Waiting: Send + Sync {
    /// `None` when a message waits that supersedes the one in hand, else a bell that rings at the next arrival.
    fn bell(&self) -> Option<Arc<Notify>>;
    /// The message in hand starts (`true`) or ends (`false`) to wait for nothing but time.
    fn resting(&self, rests: bool);
}

impl Turn<'static> {
    /// The turn of a message behind which nothing ever waits.
    pub fn alone() -> Self {
        Self { queue: None, shutdown: None, state: Mutex::default() }
    }
}

impl<'q> Turn<'q> {
    pub(crate) fn new(queue: &'q dyn Waiting, shutdown: &'q CancellationToken, carry: Carry) -> Self {
        let state = State { backoff: carry.backoff, failures: carry.failures, verdict: Verdict::Done };
        Self { queue: Some(queue), shutdown: Some(shutdown), state: Mutex::new(state) }
    }

    /// Ends when a message waits that supersedes this one; never for a deletion or the request for one.
    pub(crate) async fn superseded(&self) {
        let Some(queue) = self.queue else { return pending().await };
        while let Some(bell) = queue.bell() {
            bell.notified().await;
        }
    }

    /// Ends when the program stops.
    pub async fn shutdown(&self) {
        match self.shutdown {
            Some(token) => token.cancelled().await,
            None => pending().await,
        }
    }

    /// How often this object failed for good since it last succeeded.
    pub fn failures(&self) -> u32 {
        self.state().failures
    }

    /// Asks the queue to push the message again after `delay`, unless the object changes before.
    pub fn push_again(&self, delay: Duration) {
        self.state().verdict = Verdict::Again(delay);
    }

    /// Tells the queue that this message gave way to a newer one; the back-off stays where it stands.
    pub(crate) fn give_way(&self, backoff: Backoff) {
        let mut state = self.state();
        state.backoff = Some(backoff);
        state.verdict = Verdict::Superseded;
    }

    /// Where the back-off stands, if an earlier message of this object left one.
    pub(crate) fn take_backoff(&self) -> Option<Backoff> {
        self.state().backoff.take()
    }

    /// The message waits for nothing but time until the guard is dropped.
    pub(crate) fn rest(&self) -> Rest<'q> {
        if let Some(queue) = self.queue {
            queue.resting(true);
        }
        Rest(self.queue)
    }

    pub(crate) fn end(self) -> (Verdict, Carry) {
        let State { backoff, failures, verdict } =
            self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (verdict, Carry { backoff, failures })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one turn leaves to the next one of the same object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carry {
    pub(crate) backoff: Option<Backoff>,
    pub(crate) failures: u32,
}

pub(crate) struct Rest<'q>(Option<&'q dyn Waiting>);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            queue.resting(false);
        }
    }
}
