//! The times at which load balancers are polled and created. Pure functions, which get the current time as an argument.

use std::collections::HashMap;
use std::time::Duration;

use staffetta_driver::{ProjectId, Uid};
use tokio::time::Instant;

use crate::poll::{MAX_INTERVAL, Pacing, PollEntry};

/// The maximum number of creation requests in flight in one project. Octavia locks the quota of the project during each request. Further
/// requests would only wait for the lock, some of them longer than the timeout of a call.
const MAX_CREATIONS: usize = 4;
/// The retry delay of a queued creation is this time multiplied by the number of queued creations in all projects, from 200 ms to 10 s. So
/// up to 200 queued creations retry at most twenty times a second together.
const QUEUE_DELAY: Duration = Duration::from_millis(50);
/// A bulk creation begins when at least this number of load balancers are being created or queued for creation, and ends when fewer than
/// half of this number are left.
const BULK: usize = 8;
/// The shortest interval between two polls of a load balancer during a bulk creation.
const MIN_BULK_INTERVAL: Duration = Duration::from_secs(2);
/// The longest interval between two polls of a load balancer during a bulk creation.
const MAX_BULK_INTERVAL: Duration = Duration::from_secs(30);
/// A creation that takes longer than this does not count as part of a bulk creation any more.
const MAX_BULK_CREATION_TIME: Duration = Duration::from_secs(10 * 60);

/// A final provisioning status, which ends the wait for a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProvisioningOutcome {
    /// The load balancer accepts changes.
    Active,
    /// The load balancer is in the state ERROR.
    Error,
    /// The load balancer does not exist.
    Deleted,
}

/// The operation that keeps a load balancer busy, and whose end is awaited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ProvisioningOperation {
    /// The creation of the load balancer.
    Create,
    /// A change of the load balancer, its listeners, pools or members.
    #[default]
    Update,
    /// The deletion of the load balancer.
    Delete,
}

/// The limit of the creation requests in each project, and the lower frequency of polls during a bulk creation, when Octavia is busy. The
/// load balancers of a bulk creation are polled together. The time between two of their polls is as long as the bulk creation had lasted at
/// the first of the two, from 2 s to 30 s. Updates and deletions are not delayed.
#[derive(Debug, Default)]
pub(super) struct LoadBalancerPacing {
    /// The number of creation requests in flight for each project that has any.
    in_flight: HashMap<ProjectId, usize>,
    /// The owners of queued creations, each with the time of its last attempt.
    queued: HashMap<Uid, Instant>,
    /// The start of the present bulk creation, if there is one.
    bulk_since: Option<Instant>,
    /// The start of the last successful poll, if there was one.
    last_poll: Option<Instant>,
}

impl LoadBalancerPacing {
    /// Admits a creation request for `owner`. If too many are in flight in the project, queues it and returns the retry delay as the error.
    pub(super) fn admit(&mut self, owner: &Uid, project: &ProjectId, now: Instant) -> Result<(), Duration> {
        let in_flight = self.in_flight.get(project).copied().unwrap_or_default();
        if in_flight < MAX_CREATIONS {
            self.queued.remove(owner);
            self.in_flight.insert(project.clone(), in_flight + 1);
            return Ok(());
        }
        self.queued.insert(owner.clone(), now);
        let queued = u32::try_from(self.queued.len()).unwrap_or(u32::MAX);
        Err(QUEUE_DELAY.saturating_mul(queued).clamp(Self::MIN_INTERVAL, MAX_INTERVAL))
    }

    /// Records the end of a creation request that [`admit`](Self::admit) admitted in this project.
    pub(super) fn finish(&mut self, project: &ProjectId) {
        if let Some(in_flight) = self.in_flight.get_mut(project) {
            *in_flight -= 1;
        }
        self.in_flight.retain(|_, in_flight| *in_flight > 0);
    }

    /// Returns `true` if the load balancer counts as part of a bulk creation: it has been in creation for ten minutes at most.
    fn is_in_bulk(entry: &PollEntry<Self>, now: Instant) -> bool {
        entry.context == ProvisioningOperation::Create
            && now.saturating_duration_since(entry.since) <= MAX_BULK_CREATION_TIME
    }
}

impl Pacing for LoadBalancerPacing {
    type Status = ProvisioningOutcome;
    type Context = ProvisioningOperation;
    const MISSING: ProvisioningOutcome = ProvisioningOutcome::Deleted;
    const MIN_INTERVAL: Duration = Duration::from_millis(200);
    const INTEREST: Duration = Duration::from_secs(60);

    fn update<'a>(&mut self, entries: impl Iterator<Item = &'a PollEntry<Self>>, now: Instant) {
        self.queued.retain(|_, asked| now.saturating_duration_since(*asked) <= Self::INTEREST);
        let created = entries.filter(|entry| Self::is_in_bulk(entry, now) && entry.is_awaited(now)).count();
        let count = self.in_flight.values().sum::<usize>() + self.queued.len() + created;
        let threshold = if self.bulk_since.is_some() { BULK / 2 } else { BULK };
        self.bulk_since = if count >= threshold { self.bulk_since.or(Some(now)) } else { None };
    }

    fn polled(&mut self, _: usize, started: Instant, _: Instant) {
        self.last_poll = self.last_poll.max(Some(started));
    }

    fn not_before(&self, entry: &PollEntry<Self>, now: Instant) -> Option<Instant> {
        let (since, last) = self.bulk_since.zip(self.last_poll).filter(|_| Self::is_in_bulk(entry, now))?;
        Some(last + last.saturating_duration_since(since).clamp(MIN_BULK_INTERVAL, MAX_BULK_INTERVAL))
    }

    fn joins(&self, entry: &PollEntry<Self>, now: Instant) -> bool {
        self.bulk_since.is_some() && Self::is_in_bulk(entry, now)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use staffetta_driver::LoadBalancerId;

    use super::*;
    use crate::poll::{PollSchedule, PollState};

    type Schedule = PollSchedule<LoadBalancerId, LoadBalancerPacing>;

    const MIN_INTERVAL: Duration = LoadBalancerPacing::MIN_INTERVAL;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn id(name: &str) -> LoadBalancerId {
        name.into()
    }

    fn poll_after(state: Option<PollState<ProvisioningOutcome>>) -> Option<Duration> {
        match state {
            Some(PollState::Pending { poll_after, .. }) => Some(poll_after),
            _ => None,
        }
    }

    /// An operation that starts at `at`, and takes the time `takes`.
    #[derive(Clone, Copy, Debug)]
    struct Work {
        operation: ProvisioningOperation,
        at: Duration,
        takes: Duration,
    }

    fn creation(at: u64, takes: u64) -> Work {
        Work { operation: ProvisioningOperation::Create, at: milliseconds(at), takes: milliseconds(takes) }
    }

    fn update(at: u64, takes: u64) -> Work {
        Work { operation: ProvisioningOperation::Update, ..creation(at, takes) }
    }

    /// The number of polls, and for each operation the time at which a poll showed its end.
    struct Outcome {
        polls: usize,
        seen: Vec<Duration>,
    }

    /// Simulates one caller for each operation. A caller asks again after the returned delay, and at most one poll is in flight, as with
    /// a [`Poller`](crate::poll::Poller). Each poll takes the time `latency`.
    fn run(works: &[Work], latency: Duration) -> Outcome {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let name = |number: usize| id(&number.to_string());
        let mut callers: BTreeSet<(Duration, usize)> =
            works.iter().enumerate().map(|(number, work)| (work.at, number)).collect();
        let mut outcome = Outcome { polls: 0, seen: vec![Duration::MAX; works.len()] };
        let mut begun = vec![false; works.len()];
        while let Some((now, number)) = callers.pop_first() {
            if !std::mem::replace(&mut begun[number], true) {
                schedule.start(&name(number), works[number].operation, start + now);
            }
            let mut states = vec![(number, schedule.state(&name(number), start + now))];
            let mut end = now;
            if states[0].1.is_none() {
                outcome.polls += 1;
                end += latency;
                let results: Vec<_> = schedule
                    .batch(&[name(number)], start + now)
                    .into_iter()
                    .map(|id| {
                        let work = works[id.as_str().parse::<usize>().unwrap()];
                        (id, (work.at + work.takes <= now).then_some(ProvisioningOutcome::Active))
                    })
                    .collect();
                // Callers that arrive meanwhile wait, if they get no answer at once.
                let meanwhile: Vec<_> =
                    callers.iter().copied().filter(|(at, number)| *at <= end && begun[*number]).collect();
                for caller in meanwhile {
                    callers.remove(&caller);
                    let state = schedule.state(&name(caller.1), start + caller.0);
                    states.push((caller.1, state));
                }
                schedule.record(results, start + now, start + end);
                states[0].1 = Some(schedule.state_after_poll(&name(number), start + end));
            }
            for (number, state) in states {
                match state {
                    None => drop(callers.insert((end, number))),
                    Some(PollState::Final(status)) => {
                        assert_eq!(status, ProvisioningOutcome::Active);
                        outcome.seen[number] = end;
                    }
                    Some(PollState::Pending { poll_after, .. }) => {
                        callers.insert((end + poll_after, number));
                    }
                }
            }
        }
        outcome
    }

    fn owner(number: usize) -> Uid {
        number.to_string().as_str().into()
    }

    fn project() -> ProjectId {
        "shop".into()
    }

    fn admit(
        schedule: &mut Schedule,
        owner: &Uid,
        project: &ProjectId,
        now: Instant,
    ) -> Result<(), Duration> {
        let admitted = schedule.pacing.admit(owner, project, now);
        schedule.update(now);
        admitted
    }

    fn finish(schedule: &mut Schedule, project: &ProjectId, now: Instant) {
        schedule.pacing.finish(project);
        schedule.update(now);
    }

    /// Starts a bulk creation, of which some requests are in flight.
    fn bulk(schedule: &mut Schedule, now: Instant) {
        for number in 0..BULK {
            let _ = admit(schedule, &owner(number), &project(), now);
        }
    }

    #[test]
    fn few_creations_are_in_flight_and_queued_ones_retry_the_later_the_more_they_are() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        let schedule = &mut schedule;
        for number in 0..MAX_CREATIONS {
            assert_eq!(admit(schedule, &owner(number), &project(), now), Ok(()));
        }
        assert_eq!(admit(schedule, &owner(4), &project(), now), Err(MIN_INTERVAL));
        let mut delays = (5..500).map(|number| admit(schedule, &owner(number), &project(), now).unwrap_err());
        assert!(
            delays.by_ref().take(99).last() == Some(100 * QUEUE_DELAY) && delays.last() == Some(MAX_INTERVAL)
        );
        finish(schedule, &project(), now);
        assert_eq!(admit(schedule, &owner(400), &project(), now), Ok(()));
        assert_eq!(admit(schedule, &owner(4), &project(), now), Err(MAX_INTERVAL));
        // Owners that stopped asking are not counted for ever.
        let later = now + LoadBalancerPacing::INTEREST + milliseconds(1);
        schedule.update(later);
        assert_eq!(admit(schedule, &owner(4), &project(), later), Err(MIN_INTERVAL));
    }

    #[test]
    fn creations_of_one_project_do_not_wait_for_those_of_another() {
        let (mut schedule, now, other) = (Schedule::default(), Instant::now(), "other".into());
        bulk(&mut schedule, now);
        for number in 0..MAX_CREATIONS {
            assert_eq!(admit(&mut schedule, &owner(100 + number), &other, now), Ok(()));
        }
        finish(&mut schedule, &project(), now);
        assert!(admit(&mut schedule, &owner(200), &other, now).is_err(), "none of theirs has ended");
        for _ in 0..MAX_CREATIONS {
            finish(&mut schedule, &other, now);
        }
        assert_eq!(schedule.pacing.in_flight, [(project(), MAX_CREATIONS - 1)].into(), "no zeros are kept");
    }

    #[test]
    fn a_bulk_creation_is_polled_together_and_ever_less_often() {
        // One creation every 500 ms, each of which takes 10 s: there are twenty at a time.
        let works: Vec<_> = (0..120).map(|number| creation(number * 500, 10_000)).collect();
        let outcome = run(&works, milliseconds(300));
        assert!(outcome.polls <= 30, "{} polls of 120 load balancers", outcome.polls);
    }

    #[test]
    fn a_new_load_balancer_joins_the_bulk_creation() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        bulk(&mut schedule, start);
        let at = start + milliseconds(40_000);
        bulk(&mut schedule, at);
        schedule.start(&id("a"), ProvisioningOperation::Create, at);
        let polled = at + MIN_INTERVAL;
        schedule.record([(id("a"), None)], polled, polled);
        assert_eq!(poll_after(schedule.state(&id("a"), polled)), Some(MAX_BULK_INTERVAL));
    }

    #[test]
    fn an_update_during_a_bulk_creation_is_not_slowed_down() {
        let stuck = (0..20).map(|_| creation(0, 300_000));
        let works: Vec<_> = stuck.chain([update(100_000, 1_000)]).collect();
        let seen = run(&works, milliseconds(100)).seen[20];
        assert!(seen <= milliseconds(101_500), "seen after {seen:?}");
    }

    #[test]
    fn stuck_creations_are_no_bulk_creation() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        (0..BULK).for_each(|number| {
            schedule.start(&id(&number.to_string()), ProvisioningOperation::Create, start);
        });
        assert!(schedule.pacing.bulk_since.is_some());
        let later = start + MAX_BULK_CREATION_TIME + milliseconds(1);
        for number in 0..BULK {
            schedule.state(&id(&number.to_string()), later);
        }
        assert_eq!(schedule.pacing.bulk_since, None);
    }

    #[test]
    fn the_end_of_a_bulk_creation_ends_its_pace() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        bulk(&mut schedule, now);
        schedule.start(&id("a"), ProvisioningOperation::Create, now);
        schedule.batch(&[id("a")], now + MIN_INTERVAL);
        schedule.record([(id("a"), None)], now + MIN_INTERVAL, now + MIN_INTERVAL);
        let at = now + milliseconds(1_000);
        assert!(poll_after(schedule.state(&id("a"), at)).is_some(), "the bulk interval has not passed");
        for number in 0..BULK {
            finish(&mut schedule, &project(), at);
            admit(&mut schedule, &owner(number), &project(), at).unwrap();
        }
        (0..MAX_CREATIONS).for_each(|_| finish(&mut schedule, &project(), at));
        assert_eq!(schedule.state(&id("a"), at), None);
    }

    #[test]
    fn a_failed_poll_does_not_delay_the_next_one() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        bulk(&mut schedule, now);
        schedule.start(&id("a"), ProvisioningOperation::Create, now);
        schedule.record([(id("a"), None)], now + MIN_INTERVAL, now + MIN_INTERVAL);
        let at = now + MIN_INTERVAL + MIN_BULK_INTERVAL;
        schedule.batch(&[id("a")], at);
        assert_eq!(schedule.state(&id("a"), at + MIN_INTERVAL), None);
    }

    // An interval and three polls: the one in flight at the end, the one that saw it, and one for callers that were served together
    // with this one.
    proptest! {
        #[test]
        fn the_end_of_an_update_is_seen_within_an_interval(
            ends in prop::collection::vec(1..60_000_u64, 1..40),
            latency in 0..2_000_u64,
        ) {
            let works: Vec<_> = ends.iter().map(|takes| update(0, *takes)).collect();
            let latency = milliseconds(latency);
            for (work, seen) in works.iter().zip(run(&works, latency).seen) {
                let late = seen.checked_sub(work.takes).expect("no end is seen before it");
                let interval = (seen / 4).clamp(MIN_INTERVAL, MAX_INTERVAL);
                prop_assert!(late <= interval + 3 * latency, "{:?} late, after {:?}", late, seen);
            }
        }

        /// The poll that shows the end of a creation also informs its caller, however many other callers wait.
        #[test]
        fn the_end_of_each_creation_in_bulk_is_seen_within_a_bulk_interval(
            ends in prop::collection::vec(1..400_000_u64, 1..100),
            latency in 0..2_000_u64,
        ) {
            let works: Vec<_> = ends.iter().map(|takes| creation(0, *takes)).collect();
            let latency = milliseconds(latency);
            for (work, seen) in works.iter().zip(run(&works, latency).seen) {
                let late = seen.checked_sub(work.takes).expect("no end is seen before it");
                let interval = seen.clamp(MIN_BULK_INTERVAL, MAX_BULK_INTERVAL);
                prop_assert!(late <= interval + 3 * latency, "{:?} late, after {:?}", late, seen);
            }
        }
    }
}
