//! The messages of one ordering key, without tasks and timers: it is told the time, and says which message is handled next.

use std::cmp::Ordering;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::action::{Next, Wait, WaitKind};
use super::failures::{Failures, Memory};
use super::item::{Attempt, InOutage, Item, State, Waiting};
use super::queue_state::QueueEntry;
use super::relation::Relation;
use crate::backoff::deadline;
use crate::event::{Change, Message};

/// The messages of one ordering key.
pub(super) struct KeyQueue<E> {
    /// The messages in order of arrival. One of them may run. Most keys have one message at a time, which needs no allocation.
    items: SmallVec<[Item<E>; 1]>,
    /// `false` while the messages are held back because the queues are [closed](crate::Async::closed).
    pub(super) started: bool,
    /// `true` if all newer watch events of the key replace an attempted one, because the handler reconciles the key as a whole.
    by_key: bool,
    /// The time for which the queue is scheduled; see [`reschedule`](Self::reschedule).
    scheduled: Option<(Instant, Option<InOutage>)>,
    /// `true` if the queue is counted as busy.
    counted: bool,
}

/// The end of an attempt, as far as it concerns more than its queue.
pub(super) struct Ended<E> {
    /// `true` if an outage that caused earlier failures may be over.
    pub(super) answered: bool,
    /// The message, if it stays unhandled.
    pub(super) unhandled: Option<QueueEntry<E>>,
}

impl<E: Message + Clone> KeyQueue<E> {
    /// Creates an empty queue.
    pub(super) fn new(started: bool, by_key: bool) -> Self {
        Self { items: SmallVec::new(), started, by_key, scheduled: None, counted: false }
    }

    /// Adds a message, which arrived at the time `now`.
    pub(super) fn push(&mut self, event: E, now: Instant) {
        let mut newer = Item::new(event, now);
        let mut index = 0;
        while let Some(older) = self.items.get(index) {
            if older.is_running() || newer.relation(older, self.by_key) != Relation::Replace {
                index += 1;
            } else {
                newer.replace(self.items.remove(index), now);
            }
        }
        self.items.push(newer);
    }

    /// Makes the next message that can be handled at the time `now` the running one: the one that has been due for the longest time,
    /// otherwise the oldest that is not behind another one. Returns `None` if there is none, or one is running.
    pub(super) fn next(&mut self, now: Instant) -> Option<Attempt<E>> {
        if !self.started || self.running().is_some() {
            return None;
        }
        let due =
            self.items.iter().enumerate().filter_map(|(index, item)| Some((item.waiting()?.due, index)));
        let due = due.filter(|(due, _)| *due <= now).min().map(|(_, index)| index);
        let index = due.or_else(|| {
            let is_free = |index: &usize| {
                let item = &self.items[*index];
                let is_behind = |older: &Item<E>| {
                    older.waiting().is_some() && item.relation(older, self.by_key) == Relation::Behind
                };
                item.is_queued() && !self.items[..*index].iter().any(is_behind)
            };
            (0..self.items.len()).find(is_free)
        })?;
        Some(self.run(index))
    }

    /// Makes the message at `index` the running one.
    fn run(&mut self, index: usize) -> Attempt<E> {
        let item = &mut self.items[index];
        let waiting = item.waiting();
        if let Some(Waiting { kind: WaitKind::Failed | WaitKind::Later, due, .. }) = waiting {
            item.arrived = due;
        }
        item.state = State::Running { since: None, declined: false };
        let Item { event, arrived, failures, .. } = item;
        let (event, arrived, failures) = (event.clone(), *arrived, failures.clone());
        let repeated = waiting.is_some_and(|it| matches!(it.kind, WaitKind::Unfinished | WaitKind::Retrying));
        let others_fail = self.failing(event.uid()).is_some();
        Attempt { event, arrived, failures, others_fail, repeated }
    }

    /// Returns the position of the running message.
    fn running(&self) -> Option<usize> {
        self.items.iter().position(Item::is_running)
    }

    /// Records that the handler of the running message was invoked at `at`.
    pub(super) fn invoked(&mut self, at: Instant) {
        for item in &mut self.items {
            if let State::Running { since, .. } = &mut item.state {
                *since = Some(at);
            }
        }
    }

    /// Ends the running message at the time `now`. A message whose work is not finished waits, unless a queued message replaces it. `next`
    /// is `None` after a success.
    pub(super) fn end(&mut self, next: Option<Next>, now: Instant) -> Ended<E> {
        let mut ended = Ended { answered: false, unhandled: None };
        let Some(index) = self.running() else { return ended };
        let item = &mut self.items[index];
        let was_outage = item.failures.as_ref().is_some_and(|failures| failures.transient);
        let Wait { kind, delay, failures } = match next {
            Some(Next::Wait(wait)) => wait,
            None => {
                ended.answered = was_outage;
                let Item { event, failures, .. } = self.items.remove(index);
                self.pass_report(&event, failures);
                self.wake_others(&event, now);
                return ended;
            }
            Some(Next::Again(after, None)) => Wait::again(WaitKind::Later, after, Failures::default()),
            Some(Next::Again(after, Some(why))) => {
                let mut failures = item.failures.as_deref().cloned().unwrap_or_default();
                failures.unfinished(&why);
                Wait::again(WaitKind::Unfinished, after, failures)
            }
            Some(Next::Retry(error, delay)) => Wait::retry(&*error, delay, item.failures.as_deref()),
            Some(Next::Interrupted) => {
                item.state = State::Queued;
                ended.unhandled = Some(self.items.remove(index).unhandled(true));
                return ended;
            }
        };
        ended.answered = was_outage && !failures.transient;
        let due = deadline(now, delay.wait);
        let declined = matches!(item.state, State::Running { declined: true, .. });
        if kind == WaitKind::Later {
            let (event, before) = (item.event.clone(), item.failures.take());
            self.pass_report(&event, before);
        }
        let item = &mut self.items[index];
        item.state = State::Waiting(Waiting { kind, since: now, due, least: deadline(now, delay.least) });
        item.failures = Some(Arc::new(failures));
        let item = &self.items[index];
        let is_newer =
            |newer: &Item<E>| newer.is_queued() && newer.relation(item, self.by_key) == Relation::Replace;
        let newer = self.items[index + 1..].iter().position(is_newer);
        if !kind.is_failure() && item.event.is_trigger() && self.move_to(index, due) {
            self.items.remove(index);
        } else if let Some(newer) = newer {
            let older = self.items.remove(index);
            self.items[index + newer].replace(older, now);
        } else if declined {
            self.items.remove(index);
        }
        ended
    }

    /// Passes on where the failures of `event`, which succeeded, were reported: if another message of the object still fails, its success
    /// ends that report.
    fn pass_report(&mut self, event: &E, failures: Memory) {
        if let Some(reported_on) = failures.and_then(|failures| failures.reported_on.clone())
            && let Some(failing) = self.failing(event.uid())
        {
            failing.reported_on = Some(reported_on);
        }
    }

    /// Lets the messages go on for which the end of the work of `event` is news.
    fn wake_others(&mut self, event: &E, now: Instant) {
        let frees_key = self.by_key && event.change() == Change::Deleted;
        for item in self.items.iter_mut().filter(|item| !item.event.is_trigger()) {
            let concerned =
                frees_key || event.is_trigger() && (self.by_key || item.event.uid() == event.uid());
            if let Some(waiting) = item.waiting_mut().filter(|_| concerned) {
                waiting.due = waiting.due.min(if frees_key { now } else { waiting.least.max(now) });
            }
        }
    }

    /// Moves the next attempt of a watch event that does the work of the trigger at `index` forward to `due`: an event of its object or, by
    /// key, one of the key that is not final. Returns `false` if none waits, or it is in back-off for longer.
    fn move_to(&mut self, index: usize, due: Instant) -> bool {
        let Item { event: trigger, failures, .. } = &self.items[index];
        let does_the_work = |event: &E| {
            !event.is_trigger() && (event.uid() == trigger.uid() || self.by_key && !event.finalizing())
        };
        let is_waiting = |item: &Item<E>| item.waiting().is_some() && does_the_work(&item.event);
        let Some(index) = self.items.iter().position(is_waiting) else { return false };
        let reported_on = failures.as_ref().and_then(|failures| failures.reported_on.clone());
        let item = &mut self.items[index];
        let Some(waiting) = item.waiting_mut() else { return false };
        if waiting.due > due && waiting.least > due {
            return false;
        }
        waiting.due = waiting.due.min(due);
        if let (Some(reported_on), Some(own)) = (reported_on, &mut item.failures) {
            Arc::make_mut(own).reported_on.get_or_insert(reported_on);
        }
        true
    }

    /// Removes the messages of the object of `event`, which the handler declines, and lets that object's running message not be repeated.
    /// Messages of other types stay, and so do those of an object whose deletion was requested.
    pub(super) fn decline(&mut self, event: &E) {
        self.items.retain(|Item { event: older, state, .. }| {
            let is_outdated =
                (older.uid(), older.route()) == (event.uid(), event.route()) && !older.finalizing();
            match state {
                State::Running { declined, .. } => {
                    *declined |= is_outdated;
                    true
                }
                State::Queued | State::Waiting(_) => !is_outdated,
            }
        });
    }

    /// Makes the messages that wait after a transient failure due at `at`, unless they are due earlier. With `obey`, leaves out those whose
    /// error requested their delay.
    pub(super) fn wake(&mut self, at: Instant, obey: bool) {
        let wakes = |item: &&mut Item<E>| item.outage().is_some_and(|outage| !(obey && outage.hinted));
        for item in self.items.iter_mut().filter(wakes) {
            if let Some(waiting) = item.waiting_mut() {
                waiting.due = waiting.due.min(at);
                waiting.least = waiting.least.min(at);
            }
        }
    }

    /// Returns the time of the earliest next attempt with the first message of the queue in an outage, if they differ from the last call.
    /// The time is `None` if a message is running or none waits.
    pub(super) fn reschedule(&mut self) -> Option<(Option<Instant>, Option<InOutage>)> {
        let due = self.items.iter().filter_map(|item| Some(item.waiting()?.due)).min();
        let scheduled = due.filter(|_| self.running().is_none());
        let scheduled = scheduled.map(|due| (due, self.items.iter().filter_map(Item::outage).min()));
        if scheduled == self.scheduled {
            return None;
        }
        self.scheduled = scheduled;
        Some((scheduled.map(|(due, _)| due), scheduled.and_then(|(_, outage)| outage)))
    }

    /// Compares whether the queue is busy with whether it was at the last call. A queue is not busy if its messages only wait for the time
    /// of their next attempt.
    pub(super) fn count_busy(&mut self) -> Ordering {
        let is_busy = self.running().is_some() || !self.started && !self.items.is_empty();
        is_busy.cmp(&std::mem::replace(&mut self.counted, is_busy))
    }

    /// Returns `true` if there is no message.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Removes the messages that wait for their next attempt, and with `all` those that are queued, too. Returns those that were not
    /// handled successfully.
    pub(super) fn take(&mut self, all: bool) -> Vec<QueueEntry<E>> {
        let is_taken = |item: &Item<E>| item.waiting().is_some() || all && item.is_queued();
        let (taken, kept): (SmallVec<_>, SmallVec<_>) = self.items.drain(..).partition(is_taken);
        self.items = kept;
        let unhandled = taken.into_iter().filter(|item| !item.is_handled());
        unhandled.map(|item| item.unhandled(self.started)).collect()
    }

    /// Returns copies of all messages, in order of arrival.
    pub(super) fn entries(&self) -> impl Iterator<Item = QueueEntry<E>> {
        self.items.iter().map(|item| item.entry(self.started))
    }

    /// Returns the failures of a message of the object with this UID that waits after a failure; `None` if there is none.
    fn failing(&mut self, uid: &str) -> Option<&mut Failures> {
        let others = self.items.iter_mut().filter(|item| !item.is_running() && item.event.uid() == uid);
        let mut failures = others.filter_map(|item| item.failures.as_mut());
        failures.find(|failures| failures.last_error().is_some()).map(Arc::make_mut)
    }
}

#[cfg(test)]
mod laws_tests;
#[cfg(test)]
mod tests;
