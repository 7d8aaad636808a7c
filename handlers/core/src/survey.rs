//! What stands in the queues, for people and for figures that are reckoned when somebody asks.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::handler::EventHandler;
use crate::lane::Seen;
use crate::message::Message;
use crate::queues::Async;
use crate::standing::{Phase, Standing, Trouble};

/// How many messages do or wait for what, in the queues of one handler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// How many are [held](Phase::Held).
    pub held: usize,
    /// How many are [queued](Phase::Queued).
    pub queued: usize,
    /// How many are [at work](Phase::Running).
    pub running: usize,
    /// How many failed for a passing reason and [wait](Phase::Retrying) for their next attempt.
    pub retrying: usize,
    /// How many [failed](Phase::Failed) for good and wait for their time.
    pub failed: usize,
    /// When the invocation began that is the longest at work.
    pub oldest_running: Option<Instant>,
    /// How long all invocations at work have been so, together.
    pub unfinished: Duration,
}

impl Tally {
    /// How many messages there are.
    pub fn total(&self) -> usize {
        self.held + self.queued + self.running + self.retrying + self.failed
    }

    fn count(&mut self, phase: Phase, since: Instant, now: Instant) {
        match phase {
            Phase::Held => self.held += 1,
            Phase::Queued => self.queued += 1,
            Phase::Retrying { .. } => self.retrying += 1,
            Phase::Failed { .. } => self.failed += 1,
            Phase::Running => {
                self.running += 1;
                self.oldest_running = Some(self.oldest_running.map_or(since, |oldest| oldest.min(since)));
                self.unfinished += now.saturating_duration_since(since);
            }
        }
    }
}

impl<E: Message, H: EventHandler<E>> Async<E, H> {
    /// How many messages do or wait for what. The queues are looked at part by part, so one that moves meanwhile may be
    /// counted as it was or as it is.
    pub fn tally(&self) -> Tally {
        let (mut tally, now) = (Tally::default(), Instant::now());
        self.visit(|seen| tally.count(seen.phase, seen.since, now));
        tally
    }

    /// At most `limit` messages that are not handled yet: first those in trouble, and of these and the others each time
    /// first those that have been so the longest.
    pub fn standings(&self, limit: usize) -> Vec<Standing> {
        let mut chosen = BinaryHeap::new();
        self.visit(|seen| {
            let rank = rank(&seen);
            let full = chosen.len() >= limit;
            if !full || chosen.peek().is_some_and(|last: &Chosen<E>| rank < last.rank) {
                if full {
                    chosen.pop();
                }
                chosen.push(Chosen::new(rank, &seen));
            }
        });
        chosen.into_sorted_vec().into_iter().map(Chosen::standing).collect()
    }
}

/// What is smaller is told first.
type Rank = (bool, Instant);

fn rank<E>(seen: &Seen<'_, E>) -> Rank {
    match seen.trouble {
        Some(trouble) => (false, trouble.since),
        None => (true, seen.since),
    }
}

/// A message that is to be told of; words are made of it when nothing is locked any more.
struct Chosen<E> {
    rank: Rank,
    event: E,
    phase: Phase,
    since: Instant,
    trouble: Option<Arc<Trouble>>,
}

impl<E: Message> Chosen<E> {
    fn new(rank: Rank, seen: &Seen<'_, E>) -> Self {
        Self {
            rank,
            event: seen.event.clone(),
            phase: seen.phase,
            since: seen.since,
            trouble: seen.trouble.cloned(),
        }
    }

    fn standing(self) -> Standing {
        let trouble = self.trouble.map(|trouble| Trouble::clone(&trouble));
        Standing::of(&self.event, self.phase, self.since, trouble)
    }
}

impl<E> PartialEq for Chosen<E> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl<E> Eq for Chosen<E> {}

impl<E> PartialOrd for Chosen<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Chosen<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank.cmp(&other.rank)
    }
}
