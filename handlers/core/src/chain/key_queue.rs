//! The messages of one ordering key, and the rules by which a newer message replaces an older one. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::queue_state::{Phase, Queued};
use super::retry_state::{Outcome, RetryMemory, deadline};
use crate::event::{Change, Message};

/// The rules for queued messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Lets a newer `Modified` replace a queued one of the same object.
    pub coalesce: bool,
    /// Without coalescing: the number of waiting messages of a key from which on the queue coalesces all the same, and counts it.
    pub depth: usize,
    /// The newer messages that end the retries of an older one.
    pub superseded: Superseded,
}

impl Default for QueuePolicy {
    fn default() -> Self {
        Self { coalesce: true, depth: 100, superseded: Superseded::default() }
    }
}

/// The newer messages that make the retries of an older one pointless. A trigger supersedes only triggers of its type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Superseded {
    /// Those of the same object.
    #[default]
    BySameObject,
    /// All of the same ordering key, because the handler looks at the key as a whole.
    BySameKey,
}

/// The messages of one ordering key.
pub(super) struct KeyQueue<E> {
    /// The message that is being handled.
    pub(super) current: Option<Queued<E>>,
    /// All others in order of arrival: those that have not been handled, and those that failed and wait for their time.
    waiting: VecDeque<Queued<E>>,
    /// Notified at each arrival, once something waits for it.
    arrival: Option<Arc<Notify>>,
    /// Set once a task handles the messages; never before the queues are opened.
    pub(super) started: bool,
}

impl<E: Message + Clone> Queued<E> {
    fn failed(&self) -> bool {
        matches!(self.phase, Phase::Failed { .. })
    }

    /// Takes the place of `older`. An `Added` that was not handled makes the message that replaces it an `Added`.
    fn replace(&mut self, older: &mut Self) {
        self.inherit(older.retry.take());
        if !older.failed() {
            self.since = self.since.min(older.since);
        }
        if older.event.change() == Change::Added && replaces(&self.event, &older.event) {
            self.event = self.event.clone().into_added();
        }
    }

    /// Continues the failures of a message that this one replaces or supersedes; they win over its own.
    fn inherit(&mut self, retry: RetryMemory) {
        let Some(mut retry) = retry else { return };
        if let Some(own) = self.retry.take() {
            retry.failures = retry.failures.max(own.failures);
            retry.last_error = retry.last_error.or(own.last_error);
            retry.pending = retry.pending.or(own.pending);
            retry.reported_on = retry.reported_on.or(own.reported_on);
        }
        self.retry = Some(retry);
    }
}

impl<E: Message + Clone> KeyQueue<E> {
    /// An empty queue.
    pub(super) fn new(started: bool) -> Self {
        Self { current: None, waiting: VecDeque::new(), arrival: None, started }
    }

    /// Makes a message the current one of an empty queue.
    pub(super) fn begin(&mut self, event: E, since: Instant) -> Queued<E> {
        let message = Queued { event, phase: Phase::Queued, since, retry: None };
        self.current.insert(message).clone()
    }

    /// Adds a message. Returns the number of queued messages that it replaced because the queue is full; 0 with coalescing.
    pub(super) fn push(&mut self, event: E, since: Instant, policy: &QueuePolicy) -> usize {
        let phase = if self.started { Phase::Queued } else { Phase::Held };
        let mut message = Queued { event, phase, since, retry: None };
        // An object that failed is handled at once when it changes.
        self.replace(&mut message, |newer, older| older.failed() && takes_over(newer, &older.event, policy));
        let before = self.waiting.len();
        let full = before >= policy.depth && !policy.coalesce;
        match message.event.change() {
            Change::Modified if full || policy.coalesce => self.replace_last(&mut message),
            Change::Added | Change::Modified => {}
            // Garbage collection may report a deletion again, so the last one is enough even without coalescing.
            Change::Deleted => self.replace(&mut message, |newer, older| {
                let coalesce = full || policy.coalesce || older.event.change() == Change::Deleted;
                coalesce && replaces(newer, &older.event)
            }),
        }
        let overflowed = if full { before - self.waiting.len() } else { 0 };
        self.waiting.push_back(message);
        if let Some(arrival) = &self.arrival {
            arrival.notify_one();
        }
        overflowed
    }

    /// Takes the next message: one that failed and whose time has come, else the oldest that has not been handled.
    pub(super) fn pop(&mut self) -> Option<Queued<E>> {
        let due = self.due().filter(|due| *due <= Instant::now());
        let next = self.waiting.iter().position(|message| match due {
            Some(at) => message.phase == Phase::Failed { at },
            None => !message.failed(),
        })?;
        let mut message = self.waiting.remove(next)?;
        message.phase = Phase::Queued;
        message.since = due.unwrap_or(message.since);
        Some(self.current.insert(message).clone())
    }

    /// The time at which the next message that failed is handled again.
    pub(super) fn due(&self) -> Option<Instant> {
        let times = self.waiting.iter().filter_map(|message| match message.phase {
            Phase::Failed { at } => Some(at),
            _ => None,
        });
        times.min()
    }

    /// Ends the current message, if there is one. One that was not handled for good passes its failures to the queued message
    /// that replaces or supersedes it; without such a message it waits for its time.
    pub(super) fn end(&mut self, (mut retry, outcome): (RetryMemory, Outcome), policy: &QueuePolicy) {
        let Some(Queued { event, .. }) = self.current.take() else { return };
        match outcome {
            Outcome::Done => return,
            Outcome::Superseded => {}
            Outcome::Requeue(_) => retry.get_or_insert_default().requeued(),
        }
        if event.change() == Change::Added
            && let Some(newer) = self.queued().find(|newer| replaces(&newer.event, &event))
        {
            newer.event = newer.event.clone().into_added();
        }
        if let Some(newer) = self.queued().find(|newer| takes_over(&newer.event, &event, policy)) {
            newer.inherit(retry);
        } else if let Outcome::Requeue(delay) = outcome {
            let since = Instant::now();
            let phase = Phase::Failed { at: deadline(since, delay) };
            self.waiting.push_back(Queued { event, phase, since, retry });
        }
    }

    /// A notification of the next arrival.
    pub(super) fn arrival(&mut self) -> Arc<Notify> {
        Arc::clone(self.arrival.get_or_insert_default())
    }

    /// Returns `true` if a queued message makes the retries of the current one pointless.
    pub(super) fn is_superseded(&mut self, policy: &QueuePolicy) -> bool {
        let Some(current) = self.current.as_ref().map(|current| current.event.clone()) else { return false };
        self.queued().any(|newer| supersedes(&newer.event, &current, policy))
    }

    /// All messages.
    pub(super) fn messages(&self) -> impl Iterator<Item = &Queued<E>> {
        self.current.iter().chain(&self.waiting)
    }

    /// Records that a task handles the messages from now on.
    pub(super) fn start(&mut self) {
        self.started = true;
        self.queued().for_each(|message| message.phase = Phase::Queued);
    }

    /// The messages that have not been handled, in order of arrival.
    fn queued(&mut self) -> impl Iterator<Item = &mut Queued<E>> {
        self.waiting.iter_mut().filter(|message| !message.failed())
    }

    /// Puts `message` in place of all messages for which `condition` holds.
    fn replace(&mut self, message: &mut Queued<E>, condition: impl Fn(&E, &Queued<E>) -> bool) {
        self.waiting.retain_mut(|older| {
            let replaced = condition(&message.event, older);
            if replaced {
                message.replace(older);
            }
            !replaced
        });
    }

    /// Puts a `Modified` in place of the `Modified` before it; it overtakes no other message of its object.
    fn replace_last(&mut self, message: &mut Queued<E>) {
        let (uid, route) = (message.event.uid(), message.event.route());
        let last = self
            .waiting
            .iter()
            .rposition(|older| !older.failed() && older.event.uid() == uid && older.event.route() == route);
        if let Some(last) = last
            && self.waiting[last].event.change() == Change::Modified
            && replaces(&message.event, &self.waiting[last].event)
            && let Some(mut older) = self.waiting.remove(last)
        {
            message.replace(&mut older);
        }
    }
}

/// Returns `true` if `newer` can take the place of `older`: both are about one object, and a deletion replaces everything, but
/// anything else only what has its own type (so a trigger never replaces a watch event) and no deletion or request for one.
fn replaces<E: Message>(newer: &E, older: &E) -> bool {
    newer.uid() == older.uid()
        && (newer.change() == Change::Deleted
            || newer.route() == older.route() && (newer.finalizing() || !older.finalizing()))
}

/// Returns `true` if `newer` makes the retries of `older` pointless; those of a deletion or the request for one never are.
fn supersedes<E: Message>(newer: &E, older: &E, policy: &QueuePolicy) -> bool {
    let same_key = policy.superseded == Superseded::BySameKey && !newer.is_trigger();
    !older.finalizing() && (same_key || replaces(newer, older))
}

/// Returns `true` if `newer` replaces or supersedes `older`.
fn takes_over<E: Message>(newer: &E, older: &E, policy: &QueuePolicy) -> bool {
    replaces(newer, older) || supersedes(newer, older, policy)
}

#[cfg(test)]
mod tests;
