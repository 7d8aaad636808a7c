//! One message of a queue, with its attempts.

use std::sync::Arc;

use tokio::time::Instant;

use super::action::{LEAST_BY_TRIGGER, WaitKind};
use super::failures::{Failures, Memory};
use super::queue_state::{Phase, QueueEntry};
use super::relation::{Relation, relation};
use crate::event::Message;

/// A message, and what is known of its attempts.
pub(super) struct Item<E> {
    pub(super) event: E,
    /// The time from which its time in the queue counts.
    pub(super) arrived: Instant,
    pub(super) state: State,
    pub(super) failures: Memory,
}

/// The state of a message in its queue.
#[derive(Clone, Copy)]
pub(super) enum State {
    /// The message was not attempted, or replaces another one.
    Queued,
    /// The message was taken for an attempt: its handler runs, or waits for a permit.
    Running {
        /// The time at which the handler was invoked; `None` while the message waits for a permit.
        since: Option<Instant>,
        /// `true` if the handler declined a newer event of the object, so that this one is not attempted again.
        declined: bool,
    },
    /// The message, or the trigger that it replaces, was attempted, and waits for its next attempt.
    Waiting(Waiting),
}

/// The wait of a message for its next attempt.
#[derive(Clone, Copy)]
pub(super) struct Waiting {
    pub(super) kind: WaitKind,
    /// The time at which the last attempt ended.
    pub(super) since: Instant,
    /// The time of the next attempt.
    pub(super) due: Instant,
    /// The earliest time to which a trigger of the object can move the next attempt.
    pub(super) least: Instant,
}

/// The state of a message that waits after a transient failure, whose cause may be an outage. The first one in this order is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct InOutage {
    /// `true` if the error requested the delay, so that the message is not tried earlier to find out whether the outage is over.
    pub(super) hinted: bool,
    /// The number of attempts so far.
    pub(super) attempts: u32,
}

/// A message that is to be handled now.
pub(super) struct Attempt<E> {
    pub(super) event: E,
    /// The time from which its time in the queue counts.
    pub(super) arrived: Instant,
    pub(super) failures: Memory,
    /// `true` if another message of its object waits after a failure.
    pub(super) others_fail: bool,
    /// `true` if its time in the queue was measured at an earlier attempt.
    pub(super) repeated: bool,
}

impl Waiting {
    /// Returns the wait of a trigger that replaces the waiting one at the time `now`.
    fn of_trigger(self, now: Instant) -> Self {
        let due = self.due.min(now.max(self.since + LEAST_BY_TRIGGER));
        // The older one may have been handled; this one is not.
        let kind = if self.kind == WaitKind::Later { WaitKind::Unfinished } else { self.kind };
        Self { kind, due, least: self.least.min(due), ..self }
    }
}

impl<E: Message + Clone> Item<E> {
    pub(super) fn new(event: E, arrived: Instant) -> Self {
        Self { event, arrived, state: State::Queued, failures: None }
    }

    /// Takes the place of `older`: takes over its failures and its time in the queue and, as a trigger, its wait.
    pub(super) fn replace(&mut self, older: Self, now: Instant) {
        let waiting = older.waiting();
        if self.event.uid() == older.event.uid() && !older.is_handled() {
            self.event = self.event.clone().replacing(&older.event);
        }
        match waiting {
            None => self.arrived = self.arrived.min(older.arrived),
            Some(waiting) if self.event.is_trigger() => self.state = State::Waiting(waiting.of_trigger(now)),
            Some(_) => {}
        }
        self.failures = match (self.failures.take(), older.failures) {
            (Some(own), Some(older)) => Some(Arc::new(Failures::clone(&own).after(Failures::clone(&older)))),
            (own, older) => own.or(older),
        };
    }

    /// Returns the relation of this message to an older one of its queue, which does not run.
    pub(super) fn relation(&self, older: &Self, by_key: bool) -> Relation {
        relation(&self.event, &older.event, older.waiting().is_some(), by_key)
    }

    pub(super) fn waiting(&self) -> Option<Waiting> {
        if let State::Waiting(waiting) = self.state { Some(waiting) } else { None }
    }

    pub(super) fn waiting_mut(&mut self) -> Option<&mut Waiting> {
        if let State::Waiting(waiting) = &mut self.state { Some(waiting) } else { None }
    }

    /// Returns `true` if the message was handled successfully, and waits to be handled again.
    pub(super) fn is_handled(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.kind == WaitKind::Later)
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.state, State::Queued)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    /// Returns the state of the message in an outage: `None` if it does not wait after a transient failure.
    pub(super) fn outage(&self) -> Option<InOutage> {
        let failures = self.failures.as_ref().filter(|failures| failures.transient)?;
        let waiting = self.waiting().filter(|waiting| waiting.kind.is_failure())?;
        Some(InOutage { hinted: waiting.least < waiting.due, attempts: failures.attempts() })
    }

    /// Returns the entry of a message that stays unhandled. It has no note, because no further attempt needs it.
    pub(super) fn unhandled(mut self, started: bool) -> QueueEntry<E> {
        if let Some(failures) = &mut self.failures {
            Arc::make_mut(failures).note = None;
        }
        self.entry(started)
    }

    pub(super) fn entry(&self, started: bool) -> QueueEntry<E> {
        let (phase, since) = match self.state {
            State::Queued if !started => (Phase::Held, self.arrived),
            State::Queued | State::Running { since: None, .. } => (Phase::Queued, self.arrived),
            State::Running { since: Some(since), .. } => (Phase::Running, since),
            State::Waiting(Waiting { kind: WaitKind::Failed, due, since, .. }) => {
                (Phase::Failed { at: due }, since)
            }
            State::Waiting(Waiting { due, since, .. }) => (Phase::Retrying { at: due }, since),
        };
        QueueEntry { event: self.event.clone(), phase, since, failures: self.failures.clone() }
    }
}
