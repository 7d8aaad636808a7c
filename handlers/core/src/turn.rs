//! What only the queue knows of the message in hand, and what the wrappers tell the queue.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::backoff::Backoff;
use crate::clock::after;
use crate::failure::Failure;
use crate::meter::Meter;
use crate::object::Identity;
use crate::past::Carry;
use crate::standing::Trouble;

/// One message's turn.
///
/// [`Async`](crate::Async) makes one for each message. A wrapper that is used alone gets [`Turn::alone`].
pub struct Turn<'q> {
    queue: Option<Queue<'q>>,
    state: Mutex<State>,
    /// Whether anything went wrong, so that nobody need look at the state of the many turns in which nothing did.
    troubled: AtomicBool,
}

struct Queue<'q> {
    waiting: &'q dyn Waiting,
    shutdown: &'q CancellationToken,
    /// Since when the message waits for its turn.
    since: Instant,
    /// Whether its handler has been invoked.
    begun: AtomicBool,
}

#[derive(Default)]
struct State {
    past: Carry,
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

/// What [`Async`](crate::Async) answers about the messages that wait behind the one in hand, and learns of that one.
pub(crate) trait Waiting: Send + Sync {
    /// `None` when a message waits that supersedes the one in hand, else a bell that rings at the next arrival.
    fn bell(&self) -> Option<Arc<Notify>>;
    /// The handler of the message in hand is invoked.
    fn works(&self, since: Instant);
    /// The message in hand waits for nothing but time, because of `trouble`.
    fn rests(&self, until: Instant, trouble: Arc<Trouble>);
    /// That rest is over.
    fn wakes(&self);
    /// What counts the messages.
    fn meter(&self) -> &dyn Meter;
}

impl Turn<'static> {
    /// The turn of a message behind which nothing ever waits.
    pub fn alone() -> Self {
        Self { queue: None, state: Mutex::default(), troubled: AtomicBool::new(false) }
    }
}

impl<'q> Turn<'q> {
    pub(crate) fn new(
        waiting: &'q dyn Waiting,
        shutdown: &'q CancellationToken,
        since: Instant,
        past: Carry,
    ) -> Self {
        let queue = Queue { waiting, shutdown, since, begun: AtomicBool::new(false) };
        let troubled = AtomicBool::new(past.is_some());
        Self { queue: Some(queue), state: Mutex::new(State { past, verdict: Verdict::Done }), troubled }
    }

    /// Ends when a message waits that supersedes this one; never for a deletion or the request for one.
    pub(crate) async fn superseded(&self) {
        let Some(queue) = &self.queue else { return pending().await };
        while let Some(bell) = queue.waiting.bell() {
            bell.notified().await;
        }
    }

    /// Ends when the program stops.
    pub async fn shutdown(&self) {
        match &self.queue {
            Some(queue) => queue.shutdown.cancelled().await,
            None => pending().await,
        }
    }

    /// How often this object failed for good since it last succeeded.
    pub fn failures(&self) -> u32 {
        self.state().past.as_ref().map_or(0, |past| past.failures)
    }

    /// How many attempts have failed since this object was last handled with success, the one that is reported included.
    pub fn attempts(&self) -> u32 {
        self.trouble().map_or(0, |trouble| trouble.attempts)
    }

    /// What went wrong since this object was last handled with success, what is reported included.
    pub fn trouble(&self) -> Option<Arc<Trouble>> {
        self.state().past.as_ref()?.trouble.clone()
    }

    /// Notes that a person was told what went wrong, at this object. Answers whether that is news since all was well.
    pub fn tell(&self, at: Identity) -> bool {
        let mut state = self.state();
        let told = &mut state.past.get_or_insert_default().told;
        let first = told.is_none();
        told.get_or_insert_with(|| Arc::new(at));
        first
    }

    /// At which object a person was told what went wrong since all was well.
    pub fn told(&self) -> Option<Arc<Identity>> {
        self.state().past.as_ref()?.told.clone()
    }

    /// Whether success, if this turn ends with it, makes good what went wrong before. It does not when the turn gave way to a
    /// newer message, or when the program stops: then nothing was done.
    pub(crate) fn makes_good(&self) -> bool {
        if !self.troubled.load(Ordering::Relaxed) {
            return false;
        }
        let stops = self.queue.as_ref().is_some_and(|queue| queue.shutdown.is_cancelled());
        let state = self.state();
        let trouble = state.past.as_ref().is_some_and(|past| past.trouble.is_some());
        trouble && state.verdict == Verdict::Done && !stops
    }

    /// Asks the queue to push the message again after `delay`, unless the object changes before.
    pub fn push_again(&self, delay: Duration) {
        self.state().verdict = Verdict::Again(delay);
    }

    /// Tells the queue that this message gave way to a newer one; the back-off stays where it stands.
    pub(crate) fn give_way(&self, backoff: Backoff) {
        let mut state = self.state();
        state.past.get_or_insert_default().backoff = Some(backoff);
        state.verdict = Verdict::Superseded;
    }

    /// Where the back-off stands, if an earlier message of this object left one.
    pub(crate) fn take_backoff(&self) -> Option<Backoff> {
        self.state().past.as_mut()?.backoff.take()
    }

    /// The handler is invoked, until the guard is dropped.
    pub(crate) fn work(&self) -> Work<'_> {
        let began = Instant::now();
        if let Some(queue) = &self.queue {
            if !queue.begun.load(Ordering::Relaxed) {
                queue.begun.store(true, Ordering::Relaxed);
                queue.waiting.meter().waited(began.saturating_duration_since(queue.since));
            }
            queue.waiting.works(began);
        }
        Work { began, queue: self.queue.as_ref() }
    }

    /// An attempt failed with `error`. Answers what went wrong until now.
    pub(crate) fn failed(&self, error: &dyn Failure) -> Arc<Trouble> {
        self.troubled.store(true, Ordering::Relaxed);
        self.state().past.get_or_insert_default().failed(error)
    }

    /// Nothing went wrong, and the rest comes with time, as `error` says. Answers for what it waits, and since when.
    pub(crate) fn waits(&self, error: &dyn Failure) -> Arc<Trouble> {
        self.troubled.store(true, Ordering::Relaxed);
        self.state().past.get_or_insert_default().waits(error)
    }

    /// That lasts for so long by now that it counts as a failure.
    pub(crate) fn waits_too_long(&self) {
        self.state().past.get_or_insert_default().waits_too_long();
    }

    /// After a failed attempt the message waits for nothing but time, at most `wait`, until the guard is dropped.
    pub(crate) fn rest(&self, wait: Duration, trouble: Arc<Trouble>) -> Rest<'q> {
        let queue = self.queue.as_ref().map(|queue| queue.waiting);
        if let Some(queue) = queue {
            queue.rests(after(Instant::now(), wait), trouble);
            queue.meter().retried();
        }
        Rest(queue)
    }

    /// Nothing went wrong, and the message waits for nothing but time, at most `wait`, until the guard is dropped. `shown` tells
    /// whoever looks what it waits for.
    pub(crate) fn wait(&self, wait: Duration, shown: Arc<Trouble>) -> Rest<'q> {
        let queue = self.queue.as_ref().map(|queue| queue.waiting);
        if let Some(queue) = queue {
            queue.rests(after(Instant::now(), wait), shown);
        }
        Rest(queue)
    }

    pub(crate) fn end(self) -> (Verdict, Carry) {
        let State { past, verdict } = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        (verdict, past)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One invocation of the handler, until it is dropped.
pub(crate) struct Work<'t> {
    /// When it began.
    pub(crate) began: Instant,
    queue: Option<&'t Queue<'t>>,
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue {
            queue.waiting.meter().worked(self.began.elapsed());
        }
    }
}

/// The rest before another attempt, until it is dropped.
pub(crate) struct Rest<'q>(Option<&'q dyn Waiting>);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            queue.wakes();
        }
    }
}
