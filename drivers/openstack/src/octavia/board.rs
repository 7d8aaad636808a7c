//! Which load balancers are waited for, and when it is worth asking Octavia about them: pure, told the time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use staffetta_driver::{LoadBalancerId, ProjectId, Uid};
use tokio::time::Instant;

/// The shortest time between two looks at a load balancer, and the time after which a change is looked at first.
pub(super) const FIRST_STEP: Duration = Duration::from_millis(200);
/// The longest time between two looks at a load balancer.
const LAST_STEP: Duration = Duration::from_secs(10);
/// How many are made at a time in a project. Octavia takes those of a project in one after the other, for it locks the project's
/// quota: more would only wait there, some of them longer than a call may take.
const AT_A_TIME: usize = 4;
/// How long one that has to wait until others are made does so for each that waits, in whichever project, so that all of them ask
/// twenty times a second.
const EACH: Duration = Duration::from_millis(50);
/// The shortest time between two looks at a crowd.
const FIRST_CROWD_STEP: Duration = Duration::from_secs(2);
/// The longest time between two looks at a crowd.
const CROWD_STEP: Duration = Duration::from_secs(30);
/// One that is made no sooner is not of the crowd any more: it is stuck.
const STUCK: Duration = Duration::from_secs(10 * 60);
/// A load balancer for which nobody asked for so long is not looked at along with others.
const INTEREST: Duration = Duration::from_secs(60);
/// A load balancer for which nobody asked for so long is forgotten.
const MEMORY: Duration = Duration::from_secs(20 * 60);
/// When so many are being made or to be made, it is a crowd, until there are less than half of that.
const CROWD: usize = 8;

/// The load balancers that are waited for.
///
/// One is looked at again after a quarter of the time that it was waited for so far, but not sooner than after 200 ms and
/// not later than after 10 s. What one look shows is good until the next one is due, so that callers share it. Of those that
/// are being made there may be a crowd: they are looked at together, each time after twice the time for which there has been
/// one, 30 s at most. An Octavia that is slow to make load balancers has better things to do than to tell how far it is; what
/// is changed meanwhile waits no longer for that.
#[derive(Debug, Default)]
pub(super) struct Board {
    watches: HashMap<LoadBalancerId, Watch>,
    /// How many are being made in each project, which have no id yet. Projects without any are not there.
    making: HashMap<ProjectId, usize>,
    /// Who has to wait until others are made, and asked when.
    to_be_made: HashMap<Uid, Instant>,
    /// Since when there is a crowd.
    crowd: Option<Instant>,
    /// When the last look began of which it is known what it showed.
    looked: Option<Instant>,
}

/// One load balancer that is waited for.
#[derive(Debug)]
struct Watch {
    /// When the wait began.
    since: Instant,
    /// When the first look is due.
    first: Instant,
    /// When somebody asked last.
    asked: Instant,
    /// Whether it is being made, and not changed.
    made: bool,
    /// The last look: when it was begun, and what it showed; none when the load balancer was busy.
    last: Option<(Instant, Option<End>)>,
}

/// How the wait for a load balancer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It takes changes.
    Active,
    /// It failed.
    Error,
    /// It does not exist.
    Gone,
}

/// What is known of a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The wait is over.
    Over(End),
    /// It was busy a moment ago: it is being made, changed or deleted.
    Busy {
        /// When the next look is due.
        ask_again: Duration,
    },
}

impl Board {
    /// Octavia is about to be asked to make one more in that project, if there are not too many already: then it is said when to
    /// try again.
    pub(super) fn begins(&mut self, owner: &Uid, project: &ProjectId, now: Instant) -> Result<(), Duration> {
        let making = self.making.get(project).copied().unwrap_or_default();
        let begins = making < AT_A_TIME;
        if begins {
            self.to_be_made.remove(owner);
            self.making.insert(project.clone(), making + 1);
        } else {
            self.to_be_made.insert(owner.clone(), now);
        }
        self.count(now);
        let waiting = u32::try_from(self.to_be_made.len()).unwrap_or(u32::MAX);
        if begins { Ok(()) } else { Err(EACH.saturating_mul(waiting).clamp(FIRST_STEP, LAST_STEP)) }
    }

    /// Octavia has answered, or nobody waits for its answer any more. If it makes one, [`made`](Self::made) was told before.
    pub(super) fn ends(&mut self, project: &ProjectId, now: Instant) {
        if let Some(making) = self.making.get_mut(project) {
            *making -= 1;
        }
        self.making.retain(|_, making| *making > 0);
        self.count(now);
    }

    /// Octavia makes this one from now on: the wait for it begins.
    pub(super) fn made(&mut self, id: &LoadBalancerId, now: Instant) {
        self.watches.insert(id.clone(), Watch { first: now + FIRST_STEP, made: true, ..Watch::new(now) });
        self.count(now);
    }

    /// A change was accepted just now: the wait for its end begins.
    pub(super) fn changed(&mut self, id: &LoadBalancerId, now: Instant) {
        self.watches.insert(id.clone(), Watch { first: now + FIRST_STEP, ..Watch::new(now) });
    }

    /// The wait for a load balancer ends, whatever came of it.
    pub(super) fn forget(&mut self, id: &LoadBalancerId) {
        self.watches.remove(id);
    }

    /// Whether a load balancer is waited for.
    pub(super) fn waits(&self, id: &LoadBalancerId) -> bool {
        self.watches.contains_key(id)
    }

    /// What is known of a load balancer that somebody waits for; none when somebody has to look.
    pub(super) fn ask(&mut self, id: &LoadBalancerId, now: Instant) -> Option<Known> {
        self.watches.entry(id.clone()).or_insert_with(|| Watch::new(now)).asked = now;
        self.count(now);
        let watch = &self.watches[id];
        if let Some((_, Some(end))) = watch.last {
            self.forget(id);
            return Some(Known::Over(end));
        }
        let ask_again = self.due(watch, now).saturating_duration_since(now);
        (!ask_again.is_zero()).then_some(Known::Busy { ask_again })
    }

    /// What a look that has just been made showed; the next one is not due at once, however long it took.
    pub(super) fn answer(&mut self, id: &LoadBalancerId, now: Instant) -> Known {
        self.ask(id, now).unwrap_or(Known::Busy { ask_again: FIRST_STEP })
    }

    /// These, and those that a look at them takes along: the crowd, and those that are due before half of their step has
    /// passed.
    pub(super) fn lot(&mut self, ids: &[LoadBalancerId], now: Instant) -> Vec<LoadBalancerId> {
        self.watches.retain(|_, watch| now.saturating_duration_since(watch.asked) <= MEMORY);
        self.to_be_made.retain(|_, asked| now.saturating_duration_since(*asked) <= INTEREST);
        let crowded = self.crowd.is_some();
        let along = |watch: &Watch| watch.open(now) && (crowded && watch.crowds(now) || watch.ripe(now));
        let along = self.watches.iter().filter(|(_, watch)| along(watch));
        let lot: BTreeSet<&LoadBalancerId> = ids.iter().chain(along.map(|(id, _)| id)).collect();
        lot.into_iter().cloned().collect()
    }

    /// A look that began at `at` showed this of each: its end, or none of one that was busy.
    pub(super) fn saw(
        &mut self,
        sights: impl IntoIterator<Item = (LoadBalancerId, Option<End>)>,
        at: Instant,
    ) {
        self.looked = self.looked.max(Some(at));
        for (id, end) in sights {
            // What was changed after the look began is not what it showed.
            if let Some(watch) = self.watches.get_mut(&id).filter(|watch| watch.since <= at) {
                watch.last = Some((at, end));
            }
        }
    }

    /// When the next look at one is due.
    fn due(&self, watch: &Watch, now: Instant) -> Instant {
        let due = watch.due();
        match (self.crowd, self.looked) {
            (Some(since), Some(looked)) if watch.crowds(now) => {
                let pace = looked.saturating_duration_since(since).clamp(FIRST_CROWD_STEP, CROWD_STEP);
                due.max(looked + pace)
            }
            _ => due,
        }
    }

    fn count(&mut self, now: Instant) {
        let crowding = self.watches.values().filter(|watch| watch.crowds(now) && watch.open(now));
        let enough = if self.crowd.is_some() { CROWD / 2 } else { CROWD };
        let all = self.making.values().sum::<usize>() + self.to_be_made.len() + crowding.count();
        self.crowd = if all >= enough { self.crowd.or(Some(now)) } else { None };
    }
}

impl Watch {
    /// A wait that began nobody knows when: the first look is due now.
    fn new(now: Instant) -> Self {
        Self { since: now, first: now, asked: now, made: false, last: None }
    }

    /// When the next look is due, as far as this one is concerned.
    fn due(&self) -> Instant {
        match self.last {
            None => self.first,
            Some((at, _)) => at + self.step(at),
        }
    }

    /// How long a look that was made `at` is good.
    fn step(&self, at: Instant) -> Duration {
        (at.saturating_duration_since(self.since) / 4).clamp(FIRST_STEP, LAST_STEP)
    }

    /// Whether somebody still waits, and does not know the end yet.
    fn open(&self, now: Instant) -> bool {
        let wanted = now.saturating_duration_since(self.asked) <= INTEREST;
        wanted && self.last.is_none_or(|(_, end)| end.is_none())
    }

    /// Whether it is of those that make a crowd.
    fn crowds(&self, now: Instant) -> bool {
        self.made && now.saturating_duration_since(self.since) <= STUCK
    }

    fn ripe(&self, now: Instant) -> bool {
        let step = self.last.map_or(FIRST_STEP, |(at, _)| self.step(at));
        now + step / 2 >= self.due()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn id(name: &str) -> LoadBalancerId {
        name.into()
    }

    fn ask_again(known: Option<Known>) -> Option<Duration> {
        match known {
            Some(Known::Busy { ask_again }) => Some(ask_again),
            _ => None,
        }
    }

    #[test]
    fn a_change_is_looked_at_after_the_first_step_and_what_is_unknown_at_once() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.changed(&id("changed"), now);
        assert_eq!(ask_again(board.ask(&id("changed"), now + milliseconds(50))), Some(milliseconds(150)));
        assert_eq!(board.ask(&id("changed"), now + FIRST_STEP), None);
        assert_eq!(board.ask(&id("unknown"), now), None);
    }

    #[test]
    fn what_stays_busy_is_looked_at_again_after_a_quarter_of_the_time() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.changed(&id("a"), now);
        for (at, step) in [(200, 200), (1600, 400), (4000, 1000), (400_000, 10_000)] {
            let at = now + milliseconds(at);
            board.lot(&[id("a")], at);
            board.saw([(id("a"), None)], at);
            assert_eq!(ask_again(board.ask(&id("a"), at + milliseconds(1))), Some(milliseconds(step - 1)));
        }
    }

    #[test]
    fn a_look_takes_along_what_is_due_soon_and_its_end_is_told_once() {
        let (mut board, now) = (Board::default(), Instant::now());
        for name in ["a", "b", "c"] {
            board.changed(&id(name), now);
        }
        let later = now + milliseconds(2000);
        board.saw([(id("c"), None)], later - milliseconds(10));
        assert_eq!(board.lot(&[id("a")], later), [id("a"), id("b")], "c was looked at a moment ago");
        board.saw([(id("a"), None), (id("b"), Some(End::Error))], later);
        assert_eq!(board.ask(&id("b"), later), Some(Known::Over(End::Error)));
        assert!(!board.waits(&id("b")) && board.waits(&id("a")));
        assert!(ask_again(board.ask(&id("a"), later)).is_some());
    }

    #[test]
    fn a_look_that_began_before_a_change_says_nothing_of_it() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.changed(&id("a"), now + milliseconds(10));
        board.saw([(id("a"), Some(End::Active))], now);
        assert!(ask_again(board.ask(&id("a"), now + milliseconds(20))).is_some());
    }

    #[test]
    fn what_nobody_asks_for_any_more_is_not_looked_at_and_in_the_end_forgotten() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.changed(&id("a"), now);
        board.changed(&id("b"), now);
        let later = now + INTEREST + milliseconds(1);
        assert_eq!(board.lot(&[id("b")], later), [id("b")]);
        board.lot(&[], now + MEMORY + milliseconds(1));
        assert!(!board.waits(&id("a")) && !board.waits(&id("b")));
    }

    /// One that is made or changed from `at` on, for so long.
    #[derive(Clone, Copy, Debug)]
    struct Work {
        made: bool,
        at: Duration,
        takes: Duration,
    }

    fn made(at: u64, takes: u64) -> Work {
        Work { made: true, at: milliseconds(at), takes: milliseconds(takes) }
    }

    fn changed(at: u64, takes: u64) -> Work {
        Work { made: false, ..made(at, takes) }
    }

    /// What came of it: how many looks there were, and when each end was seen.
    struct Outcome {
        looks: usize,
        seen: Vec<Duration>,
    }

    /// Callers come when they were told to, and look one at a time, as [`Together`](crate::neutron::together::Together) has it;
    /// each look takes so long.
    fn run(works: &[Work], latency: Duration) -> Outcome {
        let (mut board, start) = (Board::default(), Instant::now());
        let name = |number: usize| id(&number.to_string());
        let mut callers: BTreeSet<(Duration, usize)> =
            works.iter().enumerate().map(|(number, work)| (work.at, number)).collect();
        let mut outcome = Outcome { looks: 0, seen: vec![Duration::MAX; works.len()] };
        let mut begun = vec![false; works.len()];
        while let Some((now, number)) = callers.pop_first() {
            if !std::mem::replace(&mut begun[number], true) {
                let begin = if works[number].made { Board::made } else { Board::changed };
                begin(&mut board, &name(number), start + now);
            }
            let mut told = vec![(number, board.ask(&name(number), start + now))];
            let mut end = now;
            if told[0].1.is_none() {
                outcome.looks += 1;
                end += latency;
                let sights: Vec<_> = board
                    .lot(&[name(number)], start + now)
                    .into_iter()
                    .map(|id| {
                        let work = works[id.as_str().parse::<usize>().unwrap()];
                        (id, (work.at + work.takes <= now).then_some(End::Active))
                    })
                    .collect();
                // Those who come meanwhile wait for their turn, if they are not told at once.
                let meanwhile: Vec<_> =
                    callers.iter().copied().filter(|(at, number)| *at <= end && begun[*number]).collect();
                for caller in meanwhile {
                    callers.remove(&caller);
                    let known = board.ask(&name(caller.1), start + caller.0);
                    told.push((caller.1, known));
                }
                board.saw(sights, start + now);
                told[0].1 = Some(board.answer(&name(number), start + end));
            }
            for (number, known) in told {
                match known {
                    None => drop(callers.insert((end, number))),
                    Some(Known::Over(how)) => {
                        assert_eq!(how, End::Active);
                        outcome.seen[number] = end;
                    }
                    Some(Known::Busy { ask_again }) => drop(callers.insert((end + ask_again, number))),
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

    /// So many that there is a crowd are to be made, of which some are being made.
    fn crowd(board: &mut Board, now: Instant) {
        for number in 0..CROWD {
            let _ = board.begins(&owner(number), &project(), now);
        }
    }

    #[test]
    fn few_are_made_at_a_time_and_the_others_come_again_the_later_the_more_they_are() {
        let (mut board, now) = (Board::default(), Instant::now());
        for number in 0..AT_A_TIME {
            assert_eq!(board.begins(&owner(number), &project(), now), Ok(()));
        }
        assert_eq!(board.begins(&owner(4), &project(), now), Err(FIRST_STEP));
        let mut waits = (5..500).map(|number| board.begins(&owner(number), &project(), now).unwrap_err());
        assert!(waits.by_ref().take(99).last() == Some(100 * EACH) && waits.last() == Some(LAST_STEP));
        board.ends(&project(), now);
        assert_eq!(board.begins(&owner(400), &project(), now), Ok(()));
        assert_eq!(board.begins(&owner(4), &project(), now), Err(LAST_STEP));
        // Who does not ask any more is not counted for ever.
        let later = now + INTEREST + milliseconds(1);
        board.lot(&[], later);
        assert_eq!(board.begins(&owner(4), &project(), later), Err(FIRST_STEP));
    }

    #[test]
    fn those_of_one_project_do_not_wait_for_those_of_another() {
        let (mut board, now, other) = (Board::default(), Instant::now(), "other".into());
        crowd(&mut board, now);
        for number in 0..AT_A_TIME {
            assert_eq!(board.begins(&owner(100 + number), &other, now), Ok(()));
        }
        board.ends(&project(), now);
        assert!(board.begins(&owner(200), &other, now).is_err(), "it is not theirs that ended");
        for _ in 0..AT_A_TIME {
            board.ends(&other, now);
        }
        assert_eq!(board.making, [(project(), AT_A_TIME - 1)].into(), "nothing is kept of the others");
    }

    #[test]
    fn a_crowd_is_looked_at_together_and_ever_more_seldom() {
        // One more each 500 ms, of which each takes 10 s: there are twenty at a time.
        let works: Vec<_> = (0..120).map(|number| made(number * 500, 10_000)).collect();
        let outcome = run(&works, milliseconds(300));
        assert!(outcome.looks <= 30, "{} looks at 120 load balancers", outcome.looks);
    }

    #[test]
    fn those_that_are_being_made_are_of_the_crowd_though_each_is_ready_soon() {
        let (mut board, start) = (Board::default(), Instant::now());
        crowd(&mut board, start);
        let at = start + milliseconds(40_000);
        crowd(&mut board, at);
        board.made(&id("a"), at);
        board.saw([(id("a"), None)], at + FIRST_STEP);
        assert_eq!(ask_again(board.ask(&id("a"), at + FIRST_STEP)), Some(CROWD_STEP));
    }

    #[test]
    fn what_is_changed_while_there_is_a_crowd_does_not_wait_for_it() {
        let stuck = (0..20).map(|_| made(0, 300_000));
        let works: Vec<_> = stuck.chain([changed(100_000, 1_000)]).collect();
        let outcome = run(&works, milliseconds(100));
        let seen = outcome.seen[20];
        assert!(seen <= milliseconds(101_500), "seen after {seen:?}");
    }

    #[test]
    fn those_that_are_stuck_are_no_crowd_any_more() {
        let (mut board, start) = (Board::default(), Instant::now());
        (0..CROWD).for_each(|number| board.made(&id(&number.to_string()), start));
        assert!(board.crowd.is_some());
        let later = start + STUCK + milliseconds(1);
        for number in 0..CROWD {
            board.ask(&id(&number.to_string()), later);
        }
        assert_eq!(board.crowd, None);
    }

    #[test]
    fn a_crowd_that_has_gone_paces_nobody() {
        let (mut board, now) = (Board::default(), Instant::now());
        crowd(&mut board, now);
        board.made(&id("a"), now);
        board.lot(&[id("a")], now + FIRST_STEP);
        board.saw([(id("a"), None)], now + FIRST_STEP);
        let at = now + milliseconds(1_000);
        assert!(ask_again(board.ask(&id("a"), at)).is_some(), "a crowd is not looked at so soon again");
        for number in 0..CROWD {
            board.ends(&project(), at);
            board.begins(&owner(number), &project(), at).unwrap();
        }
        (0..AT_A_TIME).for_each(|_| board.ends(&project(), at));
        assert_eq!(board.ask(&id("a"), at), None);
    }

    #[test]
    fn a_look_that_failed_is_none() {
        let (mut board, now) = (Board::default(), Instant::now());
        crowd(&mut board, now);
        board.made(&id("a"), now);
        board.saw([(id("a"), None)], now + FIRST_STEP);
        let at = now + FIRST_STEP + FIRST_CROWD_STEP;
        board.lot(&[id("a")], at);
        assert_eq!(board.ask(&id("a"), at + FIRST_STEP), None);
    }

    // A step, and three looks: the one that was under way at the end, the one that saw it, and one for others who had their turn
    // together with the caller.
    proptest! {
        #[test]
        fn the_end_of_a_change_is_seen_within_a_step(
            ends in prop::collection::vec(1..60_000_u64, 1..40),
            latency in 0..2_000_u64,
        ) {
            let works: Vec<_> = ends.iter().map(|takes| changed(0, *takes)).collect();
            let latency = milliseconds(latency);
            for (work, seen) in works.iter().zip(run(&works, latency).seen) {
                let late = seen.checked_sub(work.takes).expect("no end is seen before it");
                let step = (seen / 4).clamp(FIRST_STEP, LAST_STEP);
                prop_assert!(late <= step + 3 * latency, "{:?} late, after {:?}", late, seen);
            }
        }

        /// Each hears of its end from the look that sees it, however many wait.
        #[test]
        fn the_end_of_each_in_a_crowd_is_seen_within_a_step_of_the_crowd(
            ends in prop::collection::vec(1..400_000_u64, 1..100),
            latency in 0..2_000_u64,
        ) {
            let works: Vec<_> = ends.iter().map(|takes| made(0, *takes)).collect();
            let latency = milliseconds(latency);
            for (work, seen) in works.iter().zip(run(&works, latency).seen) {
                let late = seen.checked_sub(work.takes).expect("no end is seen before it");
                let step = seen.clamp(FIRST_CROWD_STEP, CROWD_STEP);
                prop_assert!(late <= step + 3 * latency, "{:?} late, after {:?}", late, seen);
            }
        }
    }
}
