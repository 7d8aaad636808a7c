//! The times at which the status of resources is polled: pure, with the time as an argument.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The longest interval between two polls of a resource.
pub(crate) const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// The time after which an entry that no caller asks for is dropped.
const EXPIRY: Duration = Duration::from_secs(20 * 60);

/// The parameters of a schedule, and delays that depend on all of its entries.
pub(crate) trait Pacing: Debug + Default {
    /// A status that ends the wait for a resource.
    type Status: Copy + Debug + PartialEq;
    /// Further state of an entry.
    type Context: Debug + Default;
    /// The status of a resource that a poll does not find.
    const MISSING: Self::Status;
    /// The shortest interval between two polls of a resource, and the delay before the first one.
    const MIN_INTERVAL: Duration;
    /// The time for which polls include a resource after a caller asked for it.
    const INTEREST: Duration;

    /// Called when entries were added, or asked for.
    fn update<'a>(&mut self, entries: impl Iterator<Item = &'a PollEntry<Self>>, now: Instant)
    where
        Self: 'a,
    {
        let _ = (entries, now);
    }

    /// Called after a poll of so many resources.
    fn polled(&mut self, count: usize, started: Instant, ended: Instant);

    /// The earliest next poll of an entry, in addition to its own interval.
    fn not_before(&self, entry: &PollEntry<Self>, now: Instant) -> Option<Instant>;

    /// Returns `true` if any poll includes the entry, even if it is not due soon.
    fn joins(&self, entry: &PollEntry<Self>, now: Instant) -> bool {
        let _ = (entry, now);
        false
    }
}

/// The resources of which callers wait for a final status.
///
/// A resource is polled again after a quarter of the time that it has been waited for, at least [`Pacing::MIN_INTERVAL`] and at most
/// [`MAX_INTERVAL`]. All callers share the result of a poll until the next one is due.
#[derive(Debug)]
pub(crate) struct PollSchedule<K, P: Pacing> {
    pub(crate) pacing: P,
    entries: HashMap<K, PollEntry<P>>,
}

/// One resource of a schedule.
#[derive(Debug)]
pub(crate) struct PollEntry<P: Pacing> {
    /// The start of the wait.
    pub(crate) since: Instant,
    first_due: Instant,
    last_asked: Instant,
    /// The start of the last poll and its result; `None` while pending.
    last_poll: Option<(Instant, Option<P::Status>)>,
    pub(crate) context: P::Context,
}

/// The status of a resource as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollState<S> {
    /// The wait is over.
    Final(S),
    /// The resource was pending at the last poll.
    Pending {
        /// The time until the next poll.
        poll_after: Duration,
        /// The time since the start of the wait.
        waited: Duration,
    },
}

impl<K, P: Pacing> Default for PollSchedule<K, P> {
    fn default() -> Self {
        Self { pacing: P::default(), entries: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash + Ord, P: Pacing> PollSchedule<K, P> {
    /// Starts the wait for a resource that was just created or changed.
    pub(crate) fn start(&mut self, key: &K, context: P::Context, now: Instant) {
        let entry = PollEntry { first_due: now + P::MIN_INTERVAL, context, ..PollEntry::new(now) };
        self.entries.insert(key.clone(), entry);
        self.update(now);
    }

    /// Ends the wait for a resource.
    pub(crate) fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }

    pub(crate) fn get(&self, key: &K) -> Option<&PollEntry<P>> {
        self.entries.get(key)
    }

    pub(crate) fn context_mut(&mut self, key: &K) -> Option<&mut P::Context> {
        self.entries.get_mut(key).map(|entry| &mut entry.context)
    }

    /// Informs the pacing of a change.
    pub(crate) fn update(&mut self, now: Instant) {
        self.pacing.update(self.entries.values(), now);
    }

    /// Returns the state of a resource, or `None` if a poll is due. A final state ends the wait.
    pub(crate) fn state(&mut self, key: &K, now: Instant) -> Option<PollState<P::Status>> {
        self.entries.entry(key.clone()).or_insert_with(|| PollEntry::new(now)).last_asked = now;
        self.update(now);
        let entry = &self.entries[key];
        if let Some((_, Some(status))) = entry.last_poll {
            self.forget(key);
            return Some(PollState::Final(status));
        }
        let poll_after = self.due(entry, now).saturating_duration_since(now);
        let waited = now.saturating_duration_since(entry.since);
        (!poll_after.is_zero()).then_some(PollState::Pending { poll_after, waited })
    }

    /// Returns the state right after a poll; the next one is not due at once, however long that poll took.
    pub(crate) fn state_after_poll(&mut self, key: &K, now: Instant) -> PollState<P::Status> {
        let since = self.entries.get(key).map_or(now, |entry| entry.since);
        let waited = now.saturating_duration_since(since);
        self.state(key, now).unwrap_or(PollState::Pending { poll_after: P::MIN_INTERVAL, waited })
    }

    /// The next poll of an entry.
    fn due(&self, entry: &PollEntry<P>, now: Instant) -> Instant {
        self.pacing.not_before(entry, now).map_or(entry.due(), |earliest| earliest.max(entry.due()))
    }

    /// Returns the resources of the next poll: those of `keys` that are due, and if there is one, also those that are due before half
    /// of their interval has passed, and those that [join](Pacing::joins) any poll.
    pub(crate) fn batch(&mut self, keys: &[K], now: Instant) -> Vec<K> {
        self.entries.retain(|_, entry| now.saturating_duration_since(entry.last_asked) <= EXPIRY);
        for key in keys {
            // One that was forgotten while its caller was queued: its result is to be recorded.
            self.entries.entry(key.clone()).or_insert_with(|| PollEntry::new(now));
        }
        let is_due = |key: &&K| !self.entries[*key].has_ended() && self.due(&self.entries[*key], now) <= now;
        let keys: Vec<&K> = keys.iter().filter(is_due).collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let joins = |entry: &PollEntry<P>| {
            entry.is_open(now) && (entry.is_due_soon(now) || self.pacing.joins(entry, now))
        };
        let others = self.entries.iter().filter(|(_, entry)| joins(entry)).map(|(key, _)| key);
        let batch: BTreeSet<&K> = keys.into_iter().chain(others).collect();
        batch.into_iter().cloned().collect()
    }

    /// Records the results of a poll.
    pub(crate) fn record(
        &mut self,
        results: impl IntoIterator<Item = (K, Option<P::Status>)>,
        started: Instant,
        ended: Instant,
    ) {
        let mut count = 0;
        for (key, status) in results {
            count += 1;
            // A poll that began before a change does not show its result.
            if let Some(entry) = self.entries.get_mut(&key).filter(|entry| entry.since <= started) {
                entry.last_poll = Some((started, status));
            }
        }
        self.pacing.polled(count, started, ended);
    }
}

impl<P: Pacing> PollEntry<P> {
    /// The entry of a resource whose wait began at an unknown time: the first poll is due now.
    fn new(now: Instant) -> Self {
        Self { since: now, first_due: now, last_asked: now, last_poll: None, context: P::Context::default() }
    }

    /// The next poll according to the entry's own interval.
    fn due(&self) -> Instant {
        self.last_poll.map_or(self.first_due, |(at, _)| at + self.interval(at))
    }

    /// The next poll if the interval is that of a poll at `at`.
    pub(crate) fn due_at(&self, at: Instant) -> Instant {
        self.last_poll.map_or(self.first_due, |(last, _)| last + self.interval(at))
    }

    /// The interval after a poll at `at`.
    fn interval(&self, at: Instant) -> Duration {
        (at.saturating_duration_since(self.since) / 4).clamp(P::MIN_INTERVAL, MAX_INTERVAL)
    }

    /// Returns `true` if a caller asked within [`Pacing::INTEREST`] and the final status is not known.
    pub(crate) fn is_open(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_asked) <= P::INTEREST && !self.has_ended()
    }

    /// Returns `true` if the final status is known.
    fn has_ended(&self) -> bool {
        self.last_poll.is_some_and(|(_, status)| status.is_some())
    }

    fn is_due_soon(&self, now: Instant) -> bool {
        let interval = self.last_poll.map_or(P::MIN_INTERVAL, |(at, _)| self.interval(at));
        now + interval / 2 >= self.due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default)]
    struct Unpaced;

    impl Pacing for Unpaced {
        type Status = bool;
        type Context = ();
        const MISSING: bool = false;
        const MIN_INTERVAL: Duration = Duration::from_millis(50);
        const INTEREST: Duration = Duration::from_secs(30);

        fn polled(&mut self, _: usize, _: Instant, _: Instant) {}

        fn not_before(&self, _: &PollEntry<Self>, _: Instant) -> Option<Instant> {
            None
        }
    }

    type Schedule = PollSchedule<&'static str, Unpaced>;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn schedule(keys: &[&'static str], now: Instant) -> Schedule {
        let mut schedule = Schedule::default();
        for key in keys {
            schedule.start(key, (), now);
        }
        schedule
    }

    fn poll_after(state: Option<PollState<bool>>) -> Option<Duration> {
        match state {
            Some(PollState::Pending { poll_after, .. }) => Some(poll_after),
            _ => None,
        }
    }

    #[test]
    fn a_new_resource_is_polled_after_the_shortest_interval_and_an_unknown_one_at_once() {
        let now = Instant::now();
        let mut schedule = schedule(&["new"], now);
        let state = PollState::Pending { poll_after: milliseconds(40), waited: milliseconds(10) };
        assert_eq!(schedule.state(&"new", now + milliseconds(10)), Some(state));
        assert_eq!(schedule.state(&"new", now + milliseconds(50)), None);
        assert_eq!(schedule.state(&"old", now), None);
    }

    #[test]
    fn a_pending_resource_is_polled_again_after_a_quarter_of_the_wait() {
        let now = Instant::now();
        let mut schedule = schedule(&["a"], now);
        for (at, interval) in [(50, 50), (400, 100), (4000, 1000), (400_000, 10_000)] {
            let at = now + milliseconds(at);
            schedule.batch(&["a"], at);
            schedule.record([("a", None)], at, at);
            let state = schedule.state(&"a", at + milliseconds(1));
            let waited = at + milliseconds(1) - now;
            assert_eq!(state, Some(PollState::Pending { poll_after: milliseconds(interval - 1), waited }));
        }
    }

    #[test]
    fn a_poll_includes_what_is_due_soon_and_a_final_status_is_returned_once() {
        let now = Instant::now();
        let mut schedule = schedule(&["a", "b", "c"], now);
        let later = now + milliseconds(1000);
        schedule.record([("c", None)], later - milliseconds(10), later);
        assert_eq!(schedule.batch(&["a"], later), ["a", "b"], "c was polled a moment ago");
        schedule.record([("a", None), ("b", Some(true))], later, later);
        assert_eq!(schedule.state(&"b", later), Some(PollState::Final(true)));
        assert!(schedule.get(&"b").is_none());
        assert!(poll_after(schedule.state(&"a", later)).is_some());
    }

    #[test]
    fn a_poll_that_began_before_a_change_does_not_show_its_result() {
        let now = Instant::now();
        let mut schedule = schedule(&["a"], now + milliseconds(10));
        schedule.record([("a", Some(true))], now, now + milliseconds(20));
        assert!(poll_after(schedule.state(&"a", now + milliseconds(20))).is_some());
    }

    #[test]
    fn a_resource_that_no_caller_asks_for_is_not_polled_and_finally_dropped() {
        let now = Instant::now();
        let mut schedule = schedule(&["a", "b"], now);
        let later = now + Unpaced::INTEREST + milliseconds(1);
        assert_eq!(schedule.batch(&["b"], later), ["b"]);
        assert_eq!(schedule.entries.len(), 2);
        schedule.batch(&[], now + EXPIRY + milliseconds(1));
        assert!(schedule.entries.is_empty());
    }

    #[test]
    fn right_after_a_poll_another_one_is_never_due_at_once() {
        let now = Instant::now();
        let mut schedule = schedule(&["a"], now);
        schedule.record([("a", None)], now + milliseconds(50), now + milliseconds(5000));
        let state = schedule.state_after_poll(&"a", now + milliseconds(5000));
        assert_eq!(poll_after(Some(state)), Some(Unpaced::MIN_INTERVAL));
    }
}
