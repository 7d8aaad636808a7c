//! The messages of one ordering key, and the rules by which newer messages make older ones obsolete. A newer message can *replace* an
//! older one in the queue, which is then not handled; *supersede* it, so that its retries end; or *take over* from one that failed, and be
//! handled in its place. This module has no tasks and no I/O.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::Current;
use super::queue_state::{Phase, QueueEntry};
use super::retry_state::{RetryMemory, RetryState, deadline};
use crate::event::{Change, Message};

/// The rules by which newer messages replace or supersede older messages with the same ordering key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    /// `true` if a newer `Modified` replaces a queued `Modified` of the same object.
    pub coalesce: bool,
    /// The maximum length of a queue that does not coalesce. Once so many messages of a key wait, newer messages replace queued ones
    /// anyway, and [`Async::overflowed`](crate::Async::overflowed) counts the replaced ones.
    pub depth: usize,
    /// `true` if all newer messages with the same ordering key end the retries of an older message, because the handler reconciles everything
    /// that belongs to the key together; `false` if only those about the same object do. A trigger supersedes only triggers of its type
    /// and object, and a deletion only messages of its own object.
    pub superseded_by_key: bool,
}

impl Default for QueuePolicy {
    fn default() -> Self {
        Self { coalesce: true, depth: 100, superseded_by_key: false }
    }
}

/// The messages of one ordering key, in all phases: the one being handled, those that wait, and those that
/// failed.
pub(super) struct KeyQueue<E> {
    /// The message that is being handled; `None` if there is none.
    current: Option<CurrentMessage<E>>,
    /// All other messages in order of arrival: those that were not handled yet, and those that failed and wait for their next attempt.
    waiting: VecDeque<QueueEntry<E>>,
    /// Notified when a message arrives or is declined; `None` until a task waits for arrivals.
    arrival: Option<Arc<Notify>>,
    /// `true` if a task handles the messages of this key; `false` while they are held because the queues are [closed](crate::Async::closed).
    pub(super) started: bool,
}

/// A message that is being handled, and its state.
pub(super) type CurrentMessage<E> = (E, Arc<Current>);

impl<E: Message + Clone> QueueEntry<E> {
    /// Returns `true` if the message failed and waits to be handled again.
    fn failed(&self) -> bool {
        matches!(self.phase, Phase::Failed { .. })
    }

    /// Returns the delay that the last error of the message requested (zero if none), if the message waits after a transient failure, whose
    /// cause may be an outage; `None` otherwise.
    fn outage(&self) -> Option<Duration> {
        self.retry.as_ref().filter(|_| self.failed())?.outage
    }

    /// Takes over the failures and the waiting time of `older`, which this message replaces, or in whose place it is handled.
    fn absorb(&mut self, older: &mut Self) {
        self.inherit(older.retry.take());
        if !older.failed() {
            self.since = self.since.min(older.since);
        }
        if replaces(&self.event, &older.event) {
            self.event = self.event.clone().replacing(&older.event);
        }
    }

    /// Takes over the failures of a message that this one replaces or supersedes. Where both messages have failures, those of the older one
    /// are kept, with the higher of both numbers of requeues.
    fn inherit(&mut self, older: RetryMemory) {
        let Some(mut retry) = older else { return };
        if let Some(own) = self.retry.take() {
            retry.failures = retry.failures.max(own.failures);
            retry.last_error = retry.last_error.or(own.last_error);
            retry.pending = retry.pending.or(own.pending);
            retry.reported_on = retry.reported_on.or(own.reported_on);
            retry.attachment = retry.attachment.or(own.attachment);
        }
        self.retry = Some(retry);
    }
}

impl<E: Message + Clone> KeyQueue<E> {
    /// Creates an empty queue.
    pub(super) fn new(started: bool) -> Self {
        Self { current: None, waiting: VecDeque::new(), arrival: None, started }
    }

    /// Makes `event` the current message of an empty queue.
    pub(super) fn begin(&mut self, event: E, since: Instant) -> CurrentMessage<E> {
        self.current.insert((event, Arc::new(Current::new(since, None, false)))).clone()
    }

    /// Adds a message. Returns the number of queued messages that it replaced because the queue is full;
    /// always 0 with coalescing. `since` is the time of its arrival.
    pub(super) fn push(&mut self, event: E, since: Instant, policy: &QueuePolicy) -> usize {
        let mut message = QueueEntry { event, phase: Phase::Queued, since, retry: None };
        // An object that failed is handled at once when it changes.
        self.absorb_into(&mut message, |newer, older| {
            older.failed() && takes_over(newer, &older.event, policy)
        });
        if policy.superseded_by_key && message.event.change() == Change::Deleted {
            // What failed may work without the deleted object.
            let failed = self.waiting.iter_mut().filter(|older| older.failed());
            failed.for_each(|older| older.phase = Phase::Failed { at: since });
        }
        let before = self.waiting.len();
        let full = before >= policy.depth && !policy.coalesce;
        match message.event.change() {
            Change::Modified if full || policy.coalesce => {
                let last = self.waiting.iter().rposition(|older| {
                    let modified = !older.failed() && older.event.change() == Change::Modified;
                    modified && replaces(&message.event, &older.event)
                });
                if let Some(mut older) = last.and_then(|last| self.waiting.remove(last)) {
                    message.absorb(&mut older);
                }
            }
            Change::Added | Change::Modified => {}
            // Garbage collection may report a deletion again, so the last one is enough even without coalescing.
            Change::Deleted => self.absorb_into(&mut message, |newer, older| {
                let coalesce = full || policy.coalesce || older.event.change() == Change::Deleted;
                coalesce && replaces(newer, &older.event)
            }),
        }
        let overflowed = if full { before - self.waiting.len() } else { 0 };
        self.waiting.push_back(message);
        self.superseded(policy).inspect(|current| current.superseded.notify_one());
        self.arrival.iter().for_each(|arrival| arrival.notify_one());
        overflowed
    }

    /// Removes the waiting messages of the object of `event`, which the handler declines, and ends the retries of that object's current
    /// message. Messages of other types stay, and so do those of an object whose deletion was requested.
    pub(super) fn decline(&mut self, event: &E) {
        let is_outdated =
            |older: &E| (older.uid(), older.route()) == (event.uid(), event.route()) && !older.finalizing();
        let before = self.waiting.len();
        self.waiting.retain(|older| !is_outdated(&older.event));
        if self.waiting.len() < before {
            self.arrival.iter().for_each(|arrival| arrival.notify_one());
        }
        if let Some((_, current)) = self.current.as_ref().filter(|(older, _)| is_outdated(older)) {
            current.progress().declined = true;
            current.superseded.notify_one();
        }
    }

    /// Removes the next message from the waiting ones and makes it the current one. A failed message whose time has come goes first, then
    /// the oldest message that was not handled yet. Returns `None` if there is neither.
    pub(super) fn pop(&mut self, policy: &QueuePolicy) -> Option<CurrentMessage<E>> {
        // Most queues are empty here.
        self.waiting.front()?;
        let due = self.due().filter(|due| *due <= Instant::now());
        let next = self.waiting.iter().position(|message| match due {
            Some(at) => message.phase == Phase::Failed { at },
            None => !message.failed(),
        })?;
        let QueueEntry { event, since, retry, .. } = self.waiting.remove(next)?;
        let others_fail = self.failing(event.uid()).is_some();
        let current = Arc::new(Current::new(due.unwrap_or(since), retry, others_fail));
        let running = self.current.insert((event, current)).clone();
        self.superseded(policy).inspect(|current| current.superseded.notify_one());
        Some(running)
    }

    /// Returns the earliest time at which a failed message is handled again; `None` if no message has failed.
    fn due(&self) -> Option<Instant> {
        let times = self.waiting.iter().filter_map(|message| match message.phase {
            Phase::Failed { at } => Some(at),
            _ => None,
        });
        times.min()
    }

    /// Returns the arguments of [`wait_until`](super::context::SharedQueueState::wait_until) for the wait for the next attempt: its time,
    /// the longest delay that the errors of transient failures requested (zero if none; `None` without such failures), and the notification
    /// of the next arrival. Returns `None` if no message has failed.
    pub(super) fn next_attempt(&mut self) -> Option<(Instant, Option<Duration>, Arc<Notify>)> {
        let due = self.waiting.front().and_then(|_| self.due())?;
        let outage = self.waiting.iter().filter_map(QueueEntry::outage).max();
        Some((due, outage, Arc::clone(self.arrival.get_or_insert_default())))
    }

    /// Lets the messages that wait after a transient failure be handled now, because an outage that caused the failure may be over.
    pub(super) fn retry_now(&mut self) {
        let at = Instant::now();
        let failed = self.waiting.iter_mut().filter(|message| message.outage().is_some());
        failed.for_each(|message| message.phase = Phase::Failed { at });
    }

    /// Ends the current message, if there is one. If it has to be handled again, its failures pass to the queued message that replaces
    /// or supersedes it; without such a message, it waits for its next attempt, unless its object was declined. Returns `true`
    /// if the current message succeeded after a transient failure, so that an outage may be over.
    pub(super) fn end(&mut self, policy: &QueuePolicy) -> bool {
        let Some((event, current)) = self.current.take() else { return false };
        let (retry, again, declined) = {
            let mut progress = current.progress();
            (progress.retry.take(), progress.again, progress.declined)
        };
        let Some(delay) = again else {
            let Some(retry) = retry else { return false };
            if let Some(failing) = self.failing(event.uid()).filter(|_| retry.reported_on.is_some()) {
                failing.reported_on = retry.reported_on;
            }
            return retry.outage.is_some();
        };
        if let Some(newer) = self.queued().find(|newer| replaces(&newer.event, &event)) {
            newer.event = newer.event.clone().replacing(&event);
        }
        if let Some(newer) = self.queued().find(|newer| takes_over(&newer.event, &event, policy)) {
            newer.inherit(retry);
        } else if !declined {
            // Also for a superseded message, if the newer one was removed in the meantime.
            let since = Instant::now();
            let phase = Phase::Failed { at: deadline(since, delay) };
            self.waiting.push_back(QueueEntry { event, phase, since, retry });
        }
        false
    }

    /// Returns the recorded failures of a waiting message of the object with this UID; `None` if no such message has failed.
    fn failing(&mut self, uid: &str) -> Option<&mut RetryState> {
        let others = self.waiting.iter_mut().filter(|message| message.event.uid() == uid);
        others.filter_map(|message| message.retry.as_deref_mut()).find(|retry| retry.last_error.is_some())
    }

    /// Returns the state of the current message if a queued message makes the retries of the current one pointless.
    fn superseded(&self, policy: &QueuePolicy) -> Option<&Current> {
        let (event, current) = self.current.as_ref()?;
        let mut queued = self.waiting.iter().filter(|message| !message.failed());
        queued.any(|newer| supersedes(&newer.event, event, policy)).then_some(&**current)
    }

    /// Returns copies of all messages, the current one first.
    pub(super) fn messages(&self) -> impl Iterator<Item = QueueEntry<E>> {
        let current = self.current.iter().map(|(event, current)| {
            let progress = current.progress();
            let (phase, since, retry) = (progress.phase, progress.since, progress.retry.clone());
            QueueEntry { event: event.clone(), phase, since, retry }
        });
        let waiting = self.waiting.iter().cloned().map(|message| match message.phase {
            Phase::Queued if !self.started => QueueEntry { phase: Phase::Held, ..message },
            _ => message,
        });
        current.chain(waiting)
    }

    /// Returns the messages that were not handled yet, in order of arrival.
    fn queued(&mut self) -> impl Iterator<Item = &mut QueueEntry<E>> {
        self.waiting.iter_mut().filter(|message| !message.failed())
    }

    /// Removes all waiting messages for which `condition` returns `true`, and lets `message` take over their failures.
    fn absorb_into(&mut self, message: &mut QueueEntry<E>, condition: impl Fn(&E, &QueueEntry<E>) -> bool) {
        self.waiting.retain_mut(|older| {
            let replaced = condition(&message.event, older);
            if replaced {
                message.absorb(older);
            }
            !replaced
        });
    }
}

/// Returns `true` if `newer` can replace `older` in the queue. Both must concern the same object. A deletion replaces every message.
/// Any other message replaces only messages of its own type (so a trigger never replaces a watch event), and only a deletion or a
/// requested deletion replaces a requested deletion.
fn replaces<E: Message>(newer: &E, older: &E) -> bool {
    newer.uid() == older.uid()
        && (newer.change() == Change::Deleted
            || newer.route() == older.route() && (newer.finalizing() || !older.finalizing()))
}

/// Returns `true` if `newer` makes the retries of `older` pointless. Nothing supersedes a deletion or a requested deletion. A deletion
/// does not supersede another object, which may have been created under the same name since.
fn supersedes<E: Message>(newer: &E, older: &E, policy: &QueuePolicy) -> bool {
    let same_key = policy.superseded_by_key && !newer.is_trigger() && newer.change() != Change::Deleted;
    !older.finalizing() && (same_key || replaces(newer, older))
}

/// Returns `true` if `newer` is handled instead of the failed or superseded `older`: it replaces or supersedes `older`, or shows that
/// an object whose deletion failed exists again.
fn takes_over<E: Message>(newer: &E, older: &E, policy: &QueuePolicy) -> bool {
    let exists_again = newer.change() == Change::Added
        && older.change() == Change::Deleted
        && (newer.uid(), newer.route()) == (older.uid(), older.route());
    exists_again || replaces(newer, older) || supersedes(newer, older, policy)
}

#[cfg(test)]
mod laws_tests;
#[cfg(test)]
mod tests;
