//! What waits for one ordering key, and the rules of promise 3: which message may stand for another. Pure.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::message::{Change, Message};
use crate::registration::Superseded;
use crate::turn::{Carry, Verdict};

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

/// The messages of one ordering key, except the one in hand.
pub(crate) struct Lane<E> {
    waiting: VecDeque<Waiting<E>>,
    /// Messages that failed for good, until their time comes.
    parked: Vec<Parked<E>>,
    /// Rings at each arrival, once the runner of this lane has asked for it.
    bell: Option<Arc<Notify>>,
    /// Whether a runner takes messages from here; false only while the queues are closed.
    pub(crate) started: bool,
}

struct Waiting<E> {
    event: E,
    carry: Carry,
}

struct Parked<E> {
    event: E,
    due: Instant,
    failures: u32,
}

impl<E: Message> Lane<E> {
    pub(crate) fn new(started: bool) -> Self {
        Self { waiting: VecDeque::new(), parked: Vec::new(), bell: None, started }
    }

    /// A message arrives. Answers how many waiting ones it replaced although coalescing is off: the queue is full.
    pub(crate) fn push(&mut self, event: E, policy: &QueuePolicy) -> usize {
        let mut arrival = Waiting { event, carry: Carry::default() };
        if !self.parked.is_empty() {
            self.replace_parked(&mut arrival, policy);
        }
        let before = self.waiting.len();
        if policy.coalesce || before >= policy.depth {
            self.coalesce(&mut arrival);
        } else if arrival.event.change() == Change::Deleted {
            // A second Deleted of one object, from a sweep, says nothing new.
            let uid = arrival.event.uid();
            let again = |waiting: &Waiting<E>| {
                waiting.event.change() == Change::Deleted && waiting.event.uid() == uid
            };
            self.waiting.retain(|waiting| !again(waiting));
        }
        let full = !policy.coalesce && before >= policy.depth;
        let overflowed = if full { before - self.waiting.len() } else { 0 };
        self.waiting.push_back(arrival);
        if let Some(bell) = &self.bell {
            bell.notify_one();
        }
        overflowed
    }

    /// The next message, in order of arrival.
    pub(crate) fn next(&mut self) -> Option<(E, Carry)> {
        self.waiting.pop_front().map(|Waiting { event, carry }| (event, carry))
    }

    /// The parked message whose time came first, if any has.
    pub(crate) fn next_due(&mut self) -> Option<(E, Carry)> {
        let due = self.due()?;
        if due > Instant::now() {
            return None;
        }
        let first = self.parked.iter().position(|parked| parked.due == due)?;
        let Parked { event, failures, .. } = self.parked.remove(first);
        Some((event, Carry { backoff: None, failures }))
    }

    /// When the next parked message's time comes.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.parked.iter().map(|parked| parked.due).min()
    }

    /// Takes back a message that has had its turn, by what became of it.
    pub(crate) fn end(&mut self, event: E, verdict: Verdict, carry: Carry, policy: &QueuePolicy) {
        match verdict {
            Verdict::Done => {}
            Verdict::Superseded => {
                self.hand_over(&event, carry, policy);
            }
            Verdict::Again(delay) => {
                let failures = carry.failures + 1;
                if !self.hand_over(&event, Carry { backoff: None, failures }, policy) {
                    let due = Instant::now().checked_add(delay).unwrap_or_else(far_away);
                    self.parked.push(Parked { event, due, failures });
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

    /// Leaves what is known of `event` to the first message that stands for it: a newer one of its object, or one that
    /// supersedes it. False when there is none.
    fn hand_over(&mut self, event: &E, carry: Carry, policy: &QueuePolicy) -> bool {
        if event.change() == Change::Added
            && let Some(heir) = self.waiting.iter_mut().find(|waiting| waiting.event.uid() == event.uid())
        {
            heir.event = heir.event.clone().into_added();
        }
        let heir = |newer: &E| newer.uid() == event.uid() || supersedes(newer, event, policy);
        match self.waiting.iter_mut().find(|waiting| heir(&waiting.event)) {
            Some(heir) => {
                heir.carry = carry;
                true
            }
            None => false,
        }
    }

    /// A newer message stands for those that failed: the object is handled at once when it changes.
    fn replace_parked(&mut self, arrival: &mut Waiting<E>, policy: &QueuePolicy) {
        let mut added = false;
        self.parked.retain(|parked| {
            let same = parked.event.uid() == arrival.event.uid();
            if same {
                arrival.carry.failures = arrival.carry.failures.max(parked.failures);
                added |= parked.event.change() == Change::Added;
            }
            !same && !supersedes(&arrival.event, &parked.event, policy)
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
                    arrival.carry = replaced.carry;
                }
            }
            Change::Deleted => self.waiting.retain(|waiting| waiting.event.uid() != uid),
        }
    }
}

/// When a time that cannot be reckoned with comes.
fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}

/// Whether `newer` makes the retries of `older` pointless. Nothing does that of a deletion or the request for one.
fn supersedes<E: Message>(newer: &E, older: &E, policy: &QueuePolicy) -> bool {
    !older.finalizing() && (policy.superseded == Superseded::ByAnyOfItsKey || newer.uid() == older.uid())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestMessage;

    const COALESCE: QueuePolicy =
        QueuePolicy { coalesce: true, depth: 100, superseded: Superseded::BySameObject };

    fn lane(events: &[TestMessage], policy: &QueuePolicy) -> Lane<TestMessage> {
        let mut lane = Lane::new(true);
        for event in events {
            lane.push(event.clone(), policy);
        }
        lane
    }

    fn drain(lane: &mut Lane<TestMessage>) -> Vec<String> {
        std::iter::from_fn(|| lane.next()).map(|(event, _)| event.to_string()).collect()
    }

    #[test]
    fn a_modified_stands_for_the_modified_before_it_and_overtakes_nobody() {
        use TestMessage as M;
        let events = [M::modified("a", 1), M::modified("b", 1), M::modified("a", 2)];
        assert_eq!(drain(&mut lane(&events, &COALESCE)), ["b modified 1", "a modified 2"]);
    }

    #[test]
    fn an_added_is_never_replaced_by_a_modified() {
        use TestMessage as M;
        let events = [M::added("a"), M::modified("a", 1), M::modified("a", 2)];
        assert_eq!(drain(&mut lane(&events, &COALESCE)), ["a added 0", "a modified 2"]);
    }

    #[test]
    fn a_deleted_cancels_what_waits_of_its_object_and_is_never_dropped() {
        use TestMessage as M;
        let events = [M::added("a"), M::modified("a", 1), M::added("b"), M::deleted("a"), M::deleted("a")];
        assert_eq!(
            drain(&mut lane(&events, &COALESCE)),
            ["b added 0", "a deleted 0"],
            "and one Deleted is enough"
        );
    }

    #[test]
    fn without_coalescing_every_message_waits_until_the_queue_is_full() {
        use TestMessage as M;
        let policy = QueuePolicy { coalesce: false, depth: 3, ..COALESCE };
        let mut lane = lane(&[M::modified("a", 1), M::modified("a", 2), M::modified("a", 3)], &policy);
        assert_eq!(lane.push(M::modified("a", 4), &policy), 1);
        assert_eq!(drain(&mut lane), ["a modified 1", "a modified 2", "a modified 4"]);
    }

    #[test]
    fn a_superseded_added_makes_the_next_modified_an_added() {
        use TestMessage as M;
        let mut lane = lane(&[M::modified("b", 1), M::modified("a", 1)], &COALESCE);
        let carry = Carry { backoff: None, failures: 2 };
        lane.end(M::added("a"), Verdict::Superseded, carry, &COALESCE);
        assert_eq!(lane.next().unwrap().1.failures, 0);
        let (event, carry) = lane.next().unwrap();
        assert_eq!((event.to_string().as_str(), carry.failures), ("a added 1", 2));
    }

    #[test]
    fn only_a_message_of_the_same_object_supersedes_unless_the_key_counts_as_a_whole() {
        use TestMessage as M;
        let mut lane = lane(&[M::modified("b", 1)], &COALESCE);
        assert!(lane.bell_for(&M::added("a"), &COALESCE).is_some());
        assert!(lane.bell_for(&M::added("b"), &COALESCE).is_none());
        let whole = QueuePolicy { superseded: Superseded::ByAnyOfItsKey, ..COALESCE };
        assert!(lane.bell_for(&M::added("a"), &whole).is_none());
        assert!(lane.bell_for(&M::deleted("b"), &whole).is_some(), "nothing supersedes a deletion");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_request_for_deletion_is_not_repeated_after_the_deletion() {
        use TestMessage as M;
        let mut lane = lane(&[M::deleted("a")], &COALESCE);
        lane.end(M::deleted("a"), Verdict::Again(Duration::MAX), Carry::default(), &COALESCE);
        assert!(lane.due().is_none(), "the newer message of the object stands for it");
        assert_eq!(lane.next().unwrap().1.failures, 1);
        lane.end(M::deleted("a"), Verdict::Again(Duration::MAX), Carry::default(), &COALESCE);
        assert!(lane.due().is_some(), "a time out of reach is a time far away");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_message_waits_for_its_time_or_for_a_newer_one() {
        use TestMessage as M;
        let mut lane = lane(&[], &COALESCE);
        let again = Verdict::Again(Duration::from_secs(60));
        lane.end(M::added("a"), again, Carry::default(), &COALESCE);
        lane.end(M::modified("b", 1), again, Carry::default(), &COALESCE);
        assert!(lane.next().is_none() && lane.next_due().is_none());

        lane.push(M::modified("a", 1), &COALESCE);
        let (event, carry) = lane.next().unwrap();
        assert_eq!(
            (event.to_string().as_str(), carry.failures),
            ("a added 1", 1),
            "it was never handled as Added"
        );

        tokio::time::advance(Duration::from_secs(60)).await;
        let (event, carry) = lane.next_due().unwrap();
        assert_eq!((event.to_string().as_str(), carry.failures), ("b modified 1", 1));
        assert!(lane.due().is_none());
    }
}
