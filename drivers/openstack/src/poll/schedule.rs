//! The times at which the status of resources is polled. Pure functions, which get the current time as an argument.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

/// The longest interval between two polls of a resource.
pub(crate) const MAX_INTERVAL: Duration = Duration::from_secs(10);
/// The time after which an entry is removed if no caller has asked for its resource.
const EXPIRY: Duration = Duration::from_secs(20 * 60);

/// The parameters of the [`PollSchedule`] of one kind of resource, ports or load balancers, and the delays that depend on all entries of
/// that schedule.
pub(crate) trait Pacing: Debug + Default {
    /// The type of the final statuses of a resource. A resource that has one is not polled any more; a pending resource has none.
    type Status: Copy + Debug + PartialEq;
    /// Additional state of an entry, for a [`Pacing`] that needs more than the times of polls.
    type Context: Debug + Default;
    /// The final status of a resource that a poll does not find.
    const MISSING: Self::Status;
    /// The shortest interval between two polls of a resource, and the delay before its first poll.
    const MIN_INTERVAL: Duration;
    /// The time during which a resource counts as awaited after a caller has asked for it: polls that are due for other resources may
    /// include it.
    const INTEREST: Duration;

    /// Adapts the delays to the current entries. Called after an entry was added, a caller asked for one, or a creation request was
    /// admitted, queued or ended. Does nothing by default.
    fn update<'a>(&mut self, entries: impl Iterator<Item = &'a PollEntry<Self>>, now: Instant)
    where
        Self: 'a,
    {
        let _ = (entries, now);
    }

    /// Records the start and the end of a poll of `count` resources.
    fn polled(&mut self, count: usize, started: Instant, ended: Instant);

    /// Returns the earliest time of the next poll of an entry, or `None` if only the entry's own interval counts.
    fn not_before(&self, entry: &PollEntry<Self>, now: Instant) -> Option<Instant>;

    /// Returns `true` if the poll of any other entry includes `entry` too, even if `entry` is not due soon.
    fn joins(&self, entry: &PollEntry<Self>, now: Instant) -> bool {
        let _ = (entry, now);
        false
    }
}

/// The resources for whose final status callers wait, and the times of their polls.
///
/// The interval between two polls of a resource is a quarter of the time between the start of the wait and the first of these polls, at
/// least [`Pacing::MIN_INTERVAL`] and at most [`MAX_INTERVAL`]. All callers get the result of the last poll until the next poll is due.
#[derive(Debug)]
pub(crate) struct PollSchedule<K, P: Pacing> {
    /// The parameters that differ between ports and load balancers.
    pub(crate) pacing: P,
    entries: HashMap<K, PollEntry<P>>,
}

/// A resource in a [`PollSchedule`], with the start of the wait for it and the result of its last poll.
#[derive(Debug)]
pub(crate) struct PollEntry<P: Pacing> {
    /// The time at which the wait for the resource started.
    pub(crate) since: Instant,
    first_due: Instant,
    last_asked: Instant,
    /// The start of the last poll and its result: the final status, or `None` if the resource was pending.
    last_poll: Option<(Instant, Option<P::Status>)>,
    /// Additional state of the resource, of the type that the [`Pacing`] defines.
    pub(crate) context: P::Context,
}

/// The status of a resource according to its last poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollState<S> {
    /// The resource has reached this final status, and the wait for it has ended.
    Final(S),
    /// The resource was pending at the last poll.
    Pending {
        /// The time until the next poll is due.
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
    /// Adds an entry for a resource that was just created or changed, and for whose final status callers wait from now on. Replaces an
    /// earlier entry of the resource.
    pub(crate) fn start(&mut self, key: &K, context: P::Context, now: Instant) {
        let entry = PollEntry { first_due: now + P::MIN_INTERVAL, context, ..PollEntry::new(now) };
        self.entries.insert(key.clone(), entry);
        self.update(now);
    }

    /// Ends the wait for a resource and removes its entry.
    pub(crate) fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }

    /// Returns the entry of a resource, or `None` if no caller waits for it.
    pub(crate) fn get(&self, key: &K) -> Option<&PollEntry<P>> {
        self.entries.get(key)
    }

    /// Returns the additional state of a resource, to be changed by the caller, or `None` if no caller waits for the resource.
    pub(crate) fn context_mut(&mut self, key: &K) -> Option<&mut P::Context> {
        self.entries.get_mut(key).map(|entry| &mut entry.context)
    }

    /// Lets the pacing adapt its delays to the current entries.
    pub(crate) fn update(&mut self, now: Instant) {
        self.pacing.update(self.entries.values(), now);
    }

    /// Records that a caller asks for a resource, and returns the state of the resource, or `None` if the caller is to poll it now. A final
    /// state is returned once, because it ends the wait and removes the entry.
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

    /// Returns the state of a resource right after a poll. If the poll took so long that the next one is due already, the returned delay is
    /// the shortest interval instead of zero.
    pub(crate) fn state_after_poll(&mut self, key: &K, now: Instant) -> PollState<P::Status> {
        let since = self.entries.get(key).map_or(now, |entry| entry.since);
        let waited = now.saturating_duration_since(since);
        self.state(key, now).unwrap_or(PollState::Pending { poll_after: P::MIN_INTERVAL, waited })
    }

    /// Returns the time of the next poll of an entry.
    fn due(&self, entry: &PollEntry<P>, now: Instant) -> Instant {
        self.pacing.not_before(entry, now).map_or(entry.due(), |earliest| earliest.max(entry.due()))
    }

    /// Returns the resources that the next poll reads. These are the resources of `keys` that are due and, if there is at least one, also
    /// those for which a caller asked recently and which are due within half of their interval or [join](Pacing::joins) any poll. Removes
    /// entries that have expired.
    pub(crate) fn batch(&mut self, keys: &[K], now: Instant) -> Vec<K> {
        self.entries.retain(|_, entry| now.saturating_duration_since(entry.last_asked) <= EXPIRY);
        for key in keys {
            // One that was forgotten while its caller was queued: its result is to be recorded.
            self.entries.entry(key.clone()).or_insert_with(|| PollEntry::new(now));
        }
        let is_due =
            |key: &&K| !self.entries[*key].has_final_status() && self.due(&self.entries[*key], now) <= now;
        let keys: Vec<&K> = keys.iter().filter(is_due).collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let joins = |entry: &PollEntry<P>| {
            entry.is_awaited(now) && (entry.is_due_soon(now) || self.pacing.joins(entry, now))
        };
        let others = self.entries.iter().filter(|(_, entry)| joins(entry)).map(|(key, _)| key);
        let batch: BTreeSet<&K> = keys.into_iter().chain(others).collect();
        batch.into_iter().cloned().collect()
    }

    /// Records the results of a poll, by resource: the final status, or `None` if the resource is pending. The result of a poll that began
    /// before the wait for its resource started is ignored.
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
    /// Creates the entry of a resource whose wait started at an unknown time. Its first poll is due now.
    fn new(now: Instant) -> Self {
        Self { since: now, first_due: now, last_asked: now, last_poll: None, context: P::Context::default() }
    }

    /// Returns the time of the next poll according to the entry's own interval.
    fn due(&self) -> Instant {
        self.last_poll.map_or(self.first_due, |(at, _)| at + self.interval(at))
    }

    /// Returns the time of the last poll plus the interval that follows a poll at `at`; before the first poll, returns the time at which
    /// the first poll is due.
    pub(crate) fn due_at(&self, at: Instant) -> Instant {
        self.last_poll.map_or(self.first_due, |(last, _)| last + self.interval(at))
    }

    /// Returns the interval after a poll at `at`: a quarter of the time since the start of the wait, within its limits.
    fn interval(&self, at: Instant) -> Duration {
        (at.saturating_duration_since(self.since) / 4).clamp(P::MIN_INTERVAL, MAX_INTERVAL)
    }

    /// Returns `true` if a caller asked for the resource within [`Pacing::INTEREST`] and its final status is not known.
    pub(crate) fn is_awaited(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last_asked) <= P::INTEREST && !self.has_final_status()
    }

    /// Returns `true` if the final status of the resource is known.
    fn has_final_status(&self) -> bool {
        self.last_poll.is_some_and(|(_, status)| status.is_some())
    }

    /// Returns `true` if the next poll of the resource is due within half of its interval, so that the resource can
    /// join another poll now.
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
