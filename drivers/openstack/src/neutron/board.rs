//! Which ports are waited for, and when it is worth asking Neutron about them: pure, told the time.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use staffetta_driver::VifId;
use tokio::time::Instant;

/// The shortest time between two looks at a port. It is also the time after which a new port is looked at first: none
/// is wired sooner.
pub(crate) const FIRST_STEP: Duration = Duration::from_millis(50);
/// The longest time between two looks at a port.
const LAST_STEP: Duration = Duration::from_secs(10);
/// A port for which nobody asked for so long is not looked at along with others.
const INTEREST: Duration = Duration::from_secs(30);
/// A port for which nobody asked for so long is forgotten.
const MEMORY: Duration = Duration::from_secs(20 * 60);
/// The rest after a look at several ports lasts so many times as long as the look took, at most.
const REST: u32 = 2;
/// After each such time something should be done for a port that is still down.
const LONG: Duration = Duration::from_secs(90);

/// The ports that are waited for.
///
/// A port is looked at again after a quarter of the time that it was waited for so far, but not sooner than after 50 ms and
/// not later than after 10 s. What one look shows is good until the next one is due, so that callers share it. A look at
/// many ports is followed by a rest, so that those who wait for ports to be made are not held up by those who look. No port
/// waits for its next look longer than a quarter of the time that it was waited for by then, whoever rests.
#[derive(Debug, Default)]
pub(crate) struct Board {
    watches: HashMap<VifId, Watch>,
    rest: Option<Rest>,
}

/// The rest after a look at several ports.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// When the look ended.
    since: Instant,
    /// Nobody looks before, but for those who cannot wait so long.
    until: Instant,
}

/// One port that is waited for.
#[derive(Debug)]
struct Watch {
    /// When the wait began.
    since: Instant,
    /// When the first look is due.
    first: Instant,
    /// When somebody asked last.
    asked: Instant,
    /// The last look: when it was begun, and what it showed; none when the port was down.
    last: Option<(Instant, Option<End>)>,
    /// How often it was tried to help it, and whether this process saw that it was made, or helped, to the end.
    mended: u32,
    witnessed: bool,
}

/// How the wait for a port ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Packets pass.
    Active,
    /// Its binding failed.
    Failed,
    /// It does not exist.
    Gone,
}

/// What may help a port that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mending {
    /// Patience.
    None,
    /// Whoever made it may have been stopped in the middle.
    Finish,
    /// It has been down for another minute and a half.
    Redo,
}

/// What is known of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// The wait is over.
    Over(End),
    /// It was down a moment ago.
    Down {
        /// When the next look is due.
        ask_again: Duration,
        /// How long it was waited for so far.
        waited: Duration,
    },
}

impl Board {
    /// The wait for a port that was made just now begins.
    pub(crate) fn made(&mut self, id: &VifId, now: Instant) {
        let first = now + FIRST_STEP;
        self.watches.insert(id.clone(), Watch { first, witnessed: true, ..Watch::new(now) });
    }

    /// The wait for a port ends, whatever came of it.
    pub(crate) fn forget(&mut self, id: &VifId) {
        self.watches.remove(id);
    }

    /// What is known of a port that somebody waits for; none when somebody has to look.
    pub(crate) fn ask(&mut self, id: &VifId, now: Instant) -> Option<Known> {
        let watch = self.watches.entry(id.clone()).or_insert_with(|| Watch::new(now));
        watch.asked = now;
        let known = watch.known(now, self.rest);
        if let Some(Known::Over(_)) = known {
            self.forget(id);
        }
        known
    }

    /// What a look that has just been made showed of a port; the next one is not due at once, however long it took.
    pub(crate) fn answer(&mut self, id: &VifId, now: Instant) -> Known {
        let since = self.watches.get(id).map_or(now, |watch| watch.since);
        let waited = now.saturating_duration_since(since);
        self.ask(id, now).unwrap_or(Known::Down { ask_again: FIRST_STEP, waited })
    }

    /// These, and the ports that a look at them takes along: those that are due before half of their step has passed.
    pub(crate) fn lot(&mut self, ids: &[VifId], now: Instant) -> Vec<VifId> {
        self.watches.retain(|_, watch| now.saturating_duration_since(watch.asked) <= MEMORY);
        let ripe = self.watches.iter().filter(|(_, watch)| watch.ripe(now)).map(|(id, _)| id);
        let lot: BTreeSet<&VifId> = ids.iter().chain(ripe).collect();
        lot.into_iter().cloned().collect()
    }

    /// Whoever helps a port may be stopped in the middle: until he says that he is done, the next one who asks is told to finish.
    pub(crate) fn mends(&mut self, id: &VifId, done: bool) {
        if let Some(watch) = self.watches.get_mut(id) {
            watch.witnessed = done;
        }
    }

    /// What may help a port that has been down for so long. Each is said once, unless it came to nothing.
    pub(crate) fn mending(&mut self, id: &VifId, waited: Duration) -> Mending {
        let Some(watch) = self.watches.get_mut(id) else { return Mending::None };
        let turns = u32::try_from(waited.as_secs() / LONG.as_secs()).unwrap_or(u32::MAX);
        if turns > watch.mended {
            watch.mended = turns;
            Mending::Redo
        } else if watch.witnessed {
            Mending::None
        } else {
            watch.witnessed = true;
            Mending::Finish
        }
    }

    /// A look at so many ports began at `at` and has just ended.
    pub(crate) fn ended(&mut self, ports: usize, at: Instant, now: Instant) {
        if ports > 1 {
            self.rest = Some(Rest { since: now, until: now + now.saturating_duration_since(at) * REST });
        }
    }

    /// A look that began at `at` showed this of each of the ports: how its wait ends, or that it is down.
    pub(crate) fn saw(&mut self, sights: impl IntoIterator<Item = (VifId, Option<End>)>, at: Instant) {
        for (id, sight) in sights {
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.last = Some((at, sight));
            }
        }
    }
}

impl Watch {
    /// A wait that began nobody knows when: the first look is due now.
    fn new(now: Instant) -> Self {
        Self { since: now, first: now, asked: now, last: None, mended: 0, witnessed: false }
    }

    fn known(&self, now: Instant, rest: Option<Rest>) -> Option<Known> {
        if let Some((_, Some(end))) = self.last {
            return Some(Known::Over(end));
        }
        let waited = now.saturating_duration_since(self.since);
        let next = rest.map_or(self.due(), |rest| rest.until.min(self.latest(rest)).max(self.due()));
        let ask_again = next.saturating_duration_since(now);
        (!ask_again.is_zero()).then_some(Known::Down { ask_again, waited })
    }

    /// When the next look is due.
    fn due(&self) -> Instant {
        match self.last {
            None => self.first,
            Some((at, _)) => at + self.step(at),
        }
    }

    /// When the next look must begin, whoever rests.
    fn latest(&self, rest: Rest) -> Instant {
        self.last.map_or(self.first, |(at, _)| at + self.step(rest.since))
    }

    /// How long a look that was made `at` is good.
    fn step(&self, at: Instant) -> Duration {
        (at.saturating_duration_since(self.since) / 4).clamp(FIRST_STEP, LAST_STEP)
    }

    fn ripe(&self, now: Instant) -> bool {
        let wanted = now.saturating_duration_since(self.asked) <= INTEREST;
        let step = self.last.map_or(FIRST_STEP, |(at, _)| self.step(at));
        let open = self.last.is_none_or(|(_, end)| end.is_none());
        wanted && open && now + step / 2 >= self.due()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn milliseconds(number: u64) -> Duration {
        Duration::from_millis(number)
    }

    fn id(name: &str) -> VifId {
        name.into()
    }

    #[test]
    fn a_new_port_is_looked_at_after_the_first_step_and_an_unknown_one_at_once() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.made(&id("new"), now);
        let known = Known::Down { ask_again: milliseconds(40), waited: milliseconds(10) };
        assert_eq!(board.ask(&id("new"), now + milliseconds(10)), Some(known));
        assert_eq!(board.ask(&id("new"), now + milliseconds(50)), None);
        assert_eq!(board.ask(&id("old"), now), None);
    }

    #[test]
    fn a_port_that_is_down_is_looked_at_again_after_a_quarter_of_the_time() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.made(&id("a"), now);
        for (at, step) in [(50, 50), (400, 100), (4000, 1000), (400_000, 10_000)] {
            let at = now + milliseconds(at);
            board.saw([(id("a"), None)], at);
            let Some(Known::Down { ask_again, waited }) = board.ask(&id("a"), at + milliseconds(1)) else {
                panic!()
            };
            assert_eq!(ask_again, milliseconds(step - 1));
            assert_eq!(waited, at + milliseconds(1) - now);
        }
    }

    #[test]
    fn a_look_takes_along_what_is_due_soon_and_what_it_shows_is_good_for_all() {
        let (mut board, now) = (Board::default(), Instant::now());
        for name in ["a", "b", "c"] {
            board.made(&id(name), now);
        }
        let later = now + milliseconds(1000);
        board.saw([(id("c"), None)], later - milliseconds(10));
        let lot = board.lot(&[id("a")], later);
        assert_eq!(lot, [id("a"), id("b")], "c was looked at a moment ago");
        board.saw([(id("a"), None), (id("b"), Some(End::Active))], later);
        assert_eq!(board.ask(&id("b"), later), Some(Known::Over(End::Active)));
        assert!(matches!(board.ask(&id("a"), later), Some(Known::Down { .. })));
    }

    #[test]
    fn a_port_for_which_nobody_asks_any_more_is_not_looked_at_and_in_the_end_forgotten() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.made(&id("a"), now);
        board.made(&id("b"), now);
        let later = now + INTEREST + milliseconds(1);
        assert_eq!(board.lot(&[id("b")], later), [id("b")]);
        assert_eq!(board.watches.len(), 2);
        board.lot(&[], now + MEMORY + milliseconds(1));
        assert!(board.watches.is_empty());
    }

    #[test]
    fn the_answer_after_a_look_is_never_that_another_is_due_at_once() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.made(&id("a"), now);
        board.saw([(id("a"), None)], now + milliseconds(50));
        let Known::Down { ask_again, .. } = board.answer(&id("a"), now + milliseconds(5000)) else {
            panic!()
        };
        assert_eq!(ask_again, FIRST_STEP);
    }

    #[test]
    fn after_a_look_at_several_ports_nobody_looks_for_twice_its_time_or_a_quarter_of_his_own() {
        let (mut board, now) = (Board::default(), Instant::now());
        for name in ["a", "b"] {
            board.made(&id(name), now);
        }
        let began = now + milliseconds(1000);
        let mut look = |names: &[&str], took| {
            board.saw(names.iter().map(|name| (id(name), None)), began);
            board.ended(names.len(), began, began + milliseconds(took));
            let Known::Down { ask_again, .. } = board.answer(&id("a"), began + milliseconds(took)) else {
                panic!()
            };
            ask_again.as_millis()
        };
        assert_eq!(look(&["a"], 100), 150, "a quarter of a second since it began");
        assert_eq!(look(&["a", "b"], 85), 170, "until 1255, and a quarter of 1085 after it began is 1271");
        assert_eq!(look(&["a", "b"], 10), 240, "a step is not cut short");
        assert_eq!(look(&["a", "b"], 200), 100, "a quarter of 1200 after it began");
        assert_eq!(look(&["a", "b"], 900), 50, "it took longer than that");
    }

    #[test]
    fn what_may_help_a_port_that_stays_down_is_said_once_each_time() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.made(&id("new"), now);
        board.ask(&id("old"), now);
        let mut mending = |name: &str, seconds| board.mending(&id(name), Duration::from_secs(seconds));
        assert_eq!((mending("new", 1), mending("new", 89)), (Mending::None, Mending::None));
        assert_eq!((mending("old", 1), mending("old", 2)), (Mending::Finish, Mending::None));
        for name in ["new", "old"] {
            assert_eq!((mending(name, 90), mending(name, 91)), (Mending::Redo, Mending::None));
            assert_eq!((mending(name, 181), mending(name, 182)), (Mending::Redo, Mending::None));
        }
    }

    #[test]
    fn what_was_to_help_and_came_to_nothing_is_finished_by_the_next_one() {
        let (mut board, now) = (Board::default(), Instant::now());
        board.made(&id("a"), now);
        let waited = Duration::from_secs(90);
        assert_eq!(board.mending(&id("a"), waited), Mending::Redo);
        board.mends(&id("a"), false);
        assert_eq!(board.mending(&id("a"), waited), Mending::Finish);
        board.mends(&id("a"), false);
        assert_eq!(board.mending(&id("a"), waited), Mending::Finish);
        board.mends(&id("a"), true);
        assert_eq!(board.mending(&id("a"), waited), Mending::None);
    }

    proptest! {
        /// Callers come as they were told to; Neutron has the ports ACTIVE at some time, and tells how they stood when it was
        /// asked. One look is under way at a time.
        #[test]
        fn each_port_is_seen_active_within_a_step_and_the_looks_are_shared(
            actives in prop::collection::vec(1..30_000_u64, 1..20),
            took in prop_oneof![Just(0), 1..3_000_u64],
        ) {
            let took = milliseconds(took);
            let (mut board, start) = (Board::default(), Instant::now());
            let name = |number: usize| id(&number.to_string());
            let mut waiting: Vec<(Instant, usize)> = (0..actives.len()).map(|number| (start, number)).collect();
            let (mut looks, mut busy) = (0_u64, start);
            (0..actives.len()).for_each(|number| board.made(&name(number), start));
            while let Some((at, number)) = waiting.iter().min().copied() {
                waiting.retain(|waits| *waits != (at, number));
                let (now, known) = match board.ask(&name(number), at) {
                    Some(known) => (at, known),
                    None if at < busy => {
                        waiting.push((busy, number));
                        continue;
                    }
                    None => {
                        looks += 1;
                        busy = at + took;
                        let lot = board.lot(&[name(number)], at);
                        board.ended(lot.len(), at, busy);
                        let sights = lot.into_iter().map(|id| {
                            let active = start + milliseconds(actives[id.as_str().parse::<usize>().unwrap()]);
                            (id, (active <= at).then_some(End::Active))
                        });
                        board.saw(sights, at);
                        (busy, board.answer(&name(number), busy))
                    }
                };
                match known {
                    Known::Over(End::Active) => {
                        let late = now - (start + milliseconds(actives[number]));
                        let step = ((now - start) / 4).clamp(FIRST_STEP, LAST_STEP);
                        // One call, and what is left of the one that was under way.
                        prop_assert!(late <= step.max(step / 2 + took) + took, "{late:?} late, after {:?}", now - start);
                    }
                    Known::Down { ask_again, .. } => waiting.push((now + ask_again, number)),
                    Known::Over(other) => prop_assert!(false, "{other:?}"),
                }
            }
            // One port alone takes 41 looks in half a minute; half of the steps are cut short by others.
            prop_assert!(looks <= 90, "{looks} looks");
        }
    }
}
