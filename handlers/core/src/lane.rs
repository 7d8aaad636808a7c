//! What waits for one ordering key, and the rules of promise 3: which message may stand for another. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::after;
use crate::message::{Change, Message};
use crate::past::{Carry, bequeath, trouble_of};
use crate::registration::Superseded;
use crate::standing::{Phase, Trouble};
use crate::turn::Verdict;

/// How the queues treat what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Whether a waiting `Modified` may be replaced by a newer one of the same object.
    pub coalesce: bool,
    /// Without coalescing: how many messages of a key may wait before the queue coalesces all the same, and counts it.
    pub depth: usize,
    /// Which newer message ends the retries of an older one.
    pub superseded: Superseded,
}

impl Default for QueuePolicy {
    fn default() -> Self {
        Self { coalesce: true, depth: 100, superseded: Superseded::default() }
    }
}

/// The messages of one ordering key.
pub(crate) struct Lane<E> {
    /// The one that has its turn; none only while the queues are closed, and while everything waits for its time.
    in_hand: Option<InHand<E>>,
    waiting: VecDeque<Waiting<E>>,
    /// Messages that failed for good, until their time comes.
    parked: Vec<Parked<E>>,
    /// Rings at each arrival, once the runner of this lane has asked for it.
    bell: Option<Arc<Notify>>,
    /// Whether a runner takes messages from here; false only while the queues are closed.
    pub(crate) started: bool,
}

struct InHand<E> {
    event: E,
    phase: Phase,
    since: Instant,
    trouble: Option<Arc<Trouble>>,
}

struct Waiting<E> {
    event: E,
    since: Instant,
    past: Carry,
}

struct Parked<E> {
    event: E,
    since: Instant,
    due: Instant,
    past: Carry,
}

/// A message that gets its turn.
pub(crate) struct Next<E> {
    pub(crate) event: E,
    /// Since when it waits for that.
    pub(crate) since: Instant,
    /// What the turns before it left.
    pub(crate) past: Carry,
}

/// One message as a visitor sees it.
pub(crate) struct Seen<'a, E> {
    pub(crate) event: &'a E,
    pub(crate) phase: Phase,
    pub(crate) since: Instant,
    pub(crate) trouble: Option<&'a Arc<Trouble>>,
}

impl<E: Message> Lane<E> {
    /// A lane from which nobody takes messages yet.
    pub(crate) fn closed() -> Self {
        Self { in_hand: None, waiting: VecDeque::new(), parked: Vec::new(), bell: None, started: false }
    }

    /// A lane whose first message gets its turn at once.
    pub(crate) fn started(event: E, since: Instant) -> Self {
        let in_hand = InHand { event, phase: Phase::Queued, since, trouble: None };
        Self { in_hand: Some(in_hand), started: true, ..Self::closed() }
    }

    /// A message arrives. Answers how many waiting ones it replaced although coalescing is off: the queue is full.
    pub(crate) fn push(&mut self, event: E, since: Instant, policy: &QueuePolicy) -> usize {
        let mut arrival = Waiting { event, since, past: None };
        if !self.parked.is_empty() {
            self.replace_parked(&mut arrival, policy);
        }
        let before = self.waiting.len();
        if policy.coalesce || before >= policy.depth {
            self.coalesce(&mut arrival);
        } else if arrival.event.change() == Change::Deleted {
            // A second Deleted of one object, from a sweep, says nothing new.
            self.replace_waiting(&mut arrival, |waiting| waiting.event.change() == Change::Deleted);
        }
        let full = !policy.coalesce && before >= policy.depth;
        let overflowed = if full { before - self.waiting.len() } else { 0 };
        self.waiting.push_back(arrival);
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
        overflowed
    }

    /// Hands out the message whose turn it is: one that failed and whose time has come, else the next in order of arrival.
    pub(crate) fn next(&mut self) -> Option<Next<E>> {
        let next = self.next_due().or_else(|| self.next_waiting())?;
        let (event, since, trouble) = (next.event.clone(), next.since, trouble_of(&next.past));
        self.in_hand = Some(InHand { event, phase: Phase::Queued, since, trouble });
        Some(next)
    }

    fn next_waiting(&mut self) -> Option<Next<E>> {
        self.waiting.pop_front().map(|Waiting { event, since, past }| Next { event, since, past })
    }

    fn next_due(&mut self) -> Option<Next<E>> {
        let due = self.due()?;
        if due > Instant::now() {
            return None;
        }
        let first = self.parked.iter().position(|parked| parked.due == due)?;
        let Parked { event, due, past, .. } = self.parked.remove(first);
        Some(Next { event, since: due, past })
    }

    /// When the next parked message's time comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.parked.iter().map(|parked| parked.due).min()
    }

    /// The message in hand does or waits for something else from now on.
    pub(crate) fn stands(&mut self, phase: Phase, since: Instant) {
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.phase = phase;
            in_hand.since = since;
        }
    }

    /// The message in hand has failed, and waits for its next attempt.
    pub(crate) fn rests(&mut self, at: Instant, trouble: Arc<Trouble>) {
        self.stands(Phase::Retrying { at }, Instant::now());
        if let Some(in_hand) = &mut self.in_hand {
            in_hand.trouble = Some(trouble);
        }
    }

    /// Takes back the message in hand, by what became of it.
    pub(crate) fn end(&mut self, verdict: Verdict, mut past: Carry, policy: &QueuePolicy) {
        let Some(InHand { event, .. }) = self.in_hand.take() else { return };
        match verdict {
            Verdict::Done => {}
            Verdict::Superseded => {
                self.hand_over(&event, past, policy);
            }
            Verdict::Again(delay) => {
                let failed = past.get_or_insert_default();
                failed.failures += 1;
                failed.backoff = None;
                if let Some(past) = self.hand_over(&event, past, policy) {
                    let since = Instant::now();
                    self.parked.push(Parked { event, since, due: after(since, delay), past: Some(past) });
                }
            }
        }
    }

    /// A bell that rings at the next arrival; none when a message waits that supersedes `event`.
    pub(crate) fn bell_for(&mut self, event: &E, policy: &QueuePolicy) -> Option<Arc<Notify>> {
        if self.waiting.iter().any(|waiting| supersedes(&waiting.event, event, policy)) {
            return None;
        }
        Some(self.bell())
    }

    /// A bell that rings at the next arrival.
    pub(crate) fn bell(&mut self) -> Arc<Notify> {
        Arc::clone(self.bell.get_or_insert_with(Arc::default))
    }

    /// Shows every message to `see`.
    pub(crate) fn visit(&self, mut see: impl FnMut(Seen<'_, E>)) {
        if let Some(InHand { event, phase, since, trouble }) = &self.in_hand {
            see(Seen { event, phase: *phase, since: *since, trouble: trouble.as_ref() });
        }
        let phase = if self.started { Phase::Queued } else { Phase::Held };
        for Waiting { event, since, past } in &self.waiting {
            see(Seen {
                event,
                phase,
                since: *since,
                trouble: past.as_ref().and_then(|past| past.trouble.as_ref()),
            });
        }
        for Parked { event, since, due, past } in &self.parked {
            let trouble = past.as_ref().and_then(|past| past.trouble.as_ref());
            see(Seen { event, phase: Phase::Failed { at: *due }, since: *since, trouble });
        }
    }

    /// Leaves what is known of `event` to the first message that stands for it: a newer one of its object, or one that
    /// supersedes it. Gives it back when there is none.
    fn hand_over(&mut self, event: &E, past: Carry, policy: &QueuePolicy) -> Carry {
        if event.change() == Change::Added
            && let Some(heir) = self.waiting.iter_mut().find(|waiting| waiting.event.uid() == event.uid())
        {
            heir.event = heir.event.clone().into_added();
        }
        let heir = |newer: &E| newer.uid() == event.uid() || supersedes(newer, event, policy);
        match self.waiting.iter_mut().find(|waiting| heir(&waiting.event)) {
            Some(heir) => {
                bequeath(past, &mut heir.past);
                None
            }
            None => past,
        }
    }

    /// A newer message stands for those that failed: the object is handled at once when it changes.
    fn replace_parked(&mut self, arrival: &mut Waiting<E>, policy: &QueuePolicy) {
        let mut added = false;
        self.parked.retain_mut(|parked| {
            let same = parked.event.uid() == arrival.event.uid();
            let replaced = same || supersedes(&arrival.event, &parked.event, policy);
            if replaced {
                bequeath(parked.past.take(), &mut arrival.past);
                added |= same && parked.event.change() == Change::Added;
            }
            !replaced
        });
        if added {
            arrival.event = arrival.event.clone().into_added();
        }
    }

    /// Removes what `arrival` may stand for: a Modified for the Modified before it, a Deleted for all but Deleted.
    fn coalesce(&mut self, arrival: &mut Waiting<E>) {
        let uid = arrival.event.uid();
        match arrival.event.change() {
            Change::Added => {}
            Change::Modified => {
                if let Some(last) = self.waiting.iter().rposition(|waiting| waiting.event.uid() == uid)
                    && self.waiting[last].event.change() == Change::Modified
                    && let Some(replaced) = self.waiting.remove(last)
                {
                    arrival.since = replaced.since;
                    bequeath(replaced.past, &mut arrival.past);
                }
            }
            Change::Deleted => self.replace_waiting(arrival, |_| true),
        }
    }

    /// Removes what waits of the object of `arrival` and is `replaced` by it.
    fn replace_waiting(&mut self, arrival: &mut Waiting<E>, replaced: impl Fn(&Waiting<E>) -> bool) {
        self.waiting.retain_mut(|waiting| {
            let replaced = waiting.event.uid() == arrival.event.uid() && replaced(waiting);
            if replaced {
                bequeath(waiting.past.take(), &mut arrival.past);
            }
            !replaced
        });
    }
}

/// Whether `newer` makes the retries of `older` pointless. Nothing does that of a deletion or the request for one.
fn supersedes<E: Message>(newer: &E, older: &E, policy: &QueuePolicy) -> bool {
    !older.finalizing() && (policy.superseded == Superseded::ByAnyOfItsKey || newer.uid() == older.uid())
}

#[cfg(test)]
mod tests;
