//! The messages of one ordering key, and the rules by which a newer message replaces an older one. Pure.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::context::{MessageState, Outcome, RetryMemory, deadline, merge};
use super::queue_state::{MessageView, Phase};
use crate::event::{Change, Message};

/// The rules for queued messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePolicy {
    /// Lets a newer `Modified` replace a queued one of the same object.
    pub coalesce: bool,
    /// Without coalescing: the number of queued messages of a key from which on the queue coalesces all the same, and counts it.
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
pub(crate) struct KeyQueue<E> {
    /// The message that is being handled.
    current: Option<(E, Arc<MessageState>)>,
    queued: VecDeque<Queued<E>>,
    /// Messages that failed, with the time at which each is handled again.
    requeued: Vec<(Instant, Queued<E>)>,
    /// Notified at each arrival, once something waits for it.
    arrival: Option<Arc<Notify>>,
    /// Set once a task handles the messages; never before the queues are opened.
    pub(crate) started: bool,
}

/// A message in a queue.
struct Queued<E> {
    event: E,
    /// The time since which it waits.
    since: Instant,
    /// The state that earlier messages of the object left.
    memory: RetryMemory,
}

impl<E: Message + Clone> KeyQueue<E> {
    /// An empty queue.
    pub(crate) fn new(started: bool) -> Self {
        Self { current: None, queued: VecDeque::new(), requeued: Vec::new(), arrival: None, started }
    }

    /// A queue whose only message is handled at once, and the state of that message.
    pub(crate) fn of_current(event: E, since: Instant) -> (Self, Arc<MessageState>) {
        let state = Arc::new(MessageState::new(since, None));
        (Self { current: Some((event, Arc::clone(&state))), ..Self::new(true) }, state)
    }

    /// Adds a message. Returns how many queued ones it replaced although coalescing is off: the queue is full.
    pub(crate) fn push(&mut self, event: E, since: Instant, policy: &QueuePolicy) -> usize {
        let mut message = Queued { event, since, memory: None };
        self.replace_requeued(&mut message, policy);
        let before = self.queued.len();
        let full = before >= policy.depth && !policy.coalesce;
        if full || policy.coalesce {
            self.coalesce(&mut message);
        } else if message.event.change() == Change::Deleted {
            // Garbage collection may report a deletion again.
            self.replace_queued(&mut message, |older| older.change() == Change::Deleted);
        }
        let overflowed = if full { before - self.queued.len() } else { 0 };
        if let Some((current, state)) = &self.current
            && supersedes(&message.event, current, policy)
        {
            state.superseded.notify_one();
        }
        self.queued.push_back(message);
        if let Some(arrival) = &self.arrival {
            arrival.notify_one();
        }
        overflowed
    }

    /// Takes the next message: a requeued one whose time has come, else the oldest queued one.
    pub(crate) fn pop(&mut self, policy: &QueuePolicy) -> Option<(E, Arc<MessageState>)> {
        let due = self.due().filter(|due| *due <= Instant::now());
        let Queued { event, since, memory } = match self.requeued.iter().position(|(at, _)| Some(*at) == due)
        {
            Some(first) => {
                let (due, message) = self.requeued.remove(first);
                Queued { since: due, ..message }
            }
            None => self.queued.pop_front()?,
        };
        let state = Arc::new(MessageState::new(since, memory));
        if self.queued.iter().any(|newer| supersedes(&newer.event, &event, policy)) {
            state.superseded.notify_one();
        }
        self.current = Some((event.clone(), Arc::clone(&state)));
        Some((event, state))
    }

    /// The time at which the next requeued message is handled again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.requeued.iter().map(|(due, _)| *due).min()
    }

    /// Ends the current message, if there is one.
    pub(crate) fn end(&mut self, policy: &QueuePolicy) {
        let Some((event, state)) = self.current.take() else { return };
        let (outcome, mut memory) = state.take_outcome();
        match outcome {
            Outcome::Done => {}
            Outcome::Superseded => drop(self.hand_over(&event, memory, policy)),
            Outcome::Requeue(delay) => {
                let state = memory.get_or_insert_default();
                state.failures += 1;
                state.backoff = None;
                let memory = self.hand_over(&event, memory, policy);
                if memory.is_some() {
                    let since = Instant::now();
                    self.requeued.push((deadline(since, delay), Queued { event, since, memory }));
                }
            }
        }
    }

    /// A notification of the next arrival.
    pub(crate) fn arrival(&mut self) -> Arc<Notify> {
        Arc::clone(self.arrival.get_or_insert_with(Arc::default))
    }

    /// Passes every message to `visit`.
    pub(crate) fn visit(&self, mut visit: impl FnMut(MessageView<'_, E>)) {
        if let Some((event, state)) = &self.current {
            visit(state.view(event));
        }
        let queued = if self.started { Phase::Queued } else { Phase::Held };
        let queued = self.queued.iter().map(|message| (queued, message));
        let requeued = self.requeued.iter().map(|(at, message)| (Phase::Failed { at: *at }, message));
        for (phase, Queued { event, since, memory }) in queued.chain(requeued) {
            let last_error = memory.as_ref().and_then(|memory| memory.last_error.clone());
            visit(MessageView { event, phase, since: *since, last_error });
        }
    }

    /// Hands `memory` to the first queued message that replaces or supersedes `event`; returns it if there is none. An
    /// `Added` that was not handled makes the message that replaces it an `Added`.
    fn hand_over(&mut self, event: &E, memory: RetryMemory, policy: &QueuePolicy) -> RetryMemory {
        if event.change() == Change::Added
            && let Some(newer) = self.queued.iter_mut().find(|newer| replaces(&newer.event, event))
        {
            newer.event = newer.event.clone().into_added();
        }
        let takes_over = |newer: &E| replaces(newer, event) || supersedes(newer, event, policy);
        let Some(newer) = self.queued.iter_mut().find(|newer| takes_over(&newer.event)) else {
            return memory;
        };
        merge(memory, &mut newer.memory);
        None
    }

    /// Removes the requeued messages that `message` replaces or supersedes: an object is handled at once when it changes.
    fn replace_requeued(&mut self, message: &mut Queued<E>, policy: &QueuePolicy) {
        let mut added = false;
        self.requeued.retain_mut(|(_, older)| {
            let same = replaces(&message.event, &older.event);
            let replaced = same || supersedes(&message.event, &older.event, policy);
            if replaced {
                merge(older.memory.take(), &mut message.memory);
                added |= same && older.event.change() == Change::Added;
            }
            !replaced
        });
        if added {
            message.event = message.event.clone().into_added();
        }
    }

    /// Removes the queued messages that `message` replaces: a Modified the Modified before it, a Deleted all of its object.
    fn coalesce(&mut self, message: &mut Queued<E>) {
        match message.event.change() {
            Change::Added => {}
            Change::Modified => {
                let same = |older: &Queued<E>| {
                    older.event.uid() == message.event.uid() && older.event.route() == message.event.route()
                };
                if let Some(last) = self.queued.iter().rposition(same)
                    && self.queued[last].event.change() == Change::Modified
                    && replaces(&message.event, &self.queued[last].event)
                    && let Some(replaced) = self.queued.remove(last)
                {
                    message.since = replaced.since;
                    merge(replaced.memory, &mut message.memory);
                }
            }
            Change::Deleted => self.replace_queued(message, |_| true),
        }
    }

    /// Removes the queued messages that `message` replaces and for which `condition` holds.
    fn replace_queued(&mut self, message: &mut Queued<E>, condition: impl Fn(&E) -> bool) {
        self.queued.retain_mut(|older| {
            let replaced = replaces(&message.event, &older.event) && condition(&older.event);
            if replaced {
                merge(older.memory.take(), &mut message.memory);
            }
            !replaced
        });
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

#[cfg(test)]
mod tests;
