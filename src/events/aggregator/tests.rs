use k8s_openapi::api::core::v1::ObjectReference;
use proptest::prelude::*;

use super::*;
use crate::events::notice::Weight;

const LIMITS: Limits = Limits {
    all: Rate { burst: 10, interval: Duration::from_millis(500) },
    object: Rate { burst: 3, interval: Duration::from_secs(60) },
    spacing: Duration::from_secs(60),
    memory: Duration::from_secs(1800),
    capacity: 64,
};

const REASONS: [&str; 5] = ["QuotaExceeded", "SubnetFull", "TimedOut", "Panicked", "Recovered"];

fn notice(object: usize, reason: &'static str, note: &str) -> Notice {
    let regarding = ObjectReference {
        name: Some(format!("pod-{object}")),
        uid: Some(format!("uid-{object}")),
        ..ObjectReference::default()
    };
    Notice::new(regarding, Weight::Warning, reason, &"vif".into(), (note, ""))
}

/// How many objects the law knows.
const OBJECTS: usize = 12;

/// A request as the server sees it.
#[derive(Clone, Debug)]
struct Seen {
    at: Instant,
    object: String,
    name: String,
    step: Step,
    count: i32,
    note: String,
}

/// An aggregator and a server that answers at once.
struct World {
    aggregator: Aggregator,
    now: Instant,
    seen: Vec<Seen>,
    answers: Box<dyn FnMut(&Seen) -> Answer>,
}

impl World {
    fn new(limits: Limits) -> Self {
        let now = Instant::now();
        let aggregator = Aggregator::new(limits, 0, now);
        Self { aggregator, now, seen: Vec::new(), answers: Box::new(|_| Answer::Done) }
    }

    fn take(&mut self, object: usize, reason: &'static str) -> bool {
        let taken = self.aggregator.take(notice(object, reason, ""), self.now);
        self.send();
        taken
    }

    /// Sends what may be sent now; answers when more may.
    fn send(&mut self) -> Option<Instant> {
        loop {
            let posting = match self.aggregator.next(self.now) {
                Next::Send(posting) => *posting,
                Next::At(time) => return Some(time),
                Next::Nothing => return None,
            };
            let seen = Seen {
                at: self.now,
                object: posting.notice.regarding.uid.clone().unwrap(),
                name: posting.name.clone(),
                step: posting.step,
                count: posting.count,
                note: posting.notice.note.clone(),
            };
            let answer = (self.answers)(&seen);
            self.seen.push(seen);
            self.aggregator.answered(posting, answer, self.now);
        }
    }

    /// Lets time pass, and everything happen at its time.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.send().filter(|next| *next <= end) {
            assert!(next > self.now, "it neither sends nor waits");
            self.now = next;
        }
        self.now = end;
    }

    fn last_of(&self, name: &str) -> &Seen {
        self.seen.iter().rev().find(|seen| seen.name == name).unwrap()
    }
}

/// No window of any length holds more than the rate allows.
fn is_within(times: &[Instant], rate: Rate) -> bool {
    let allowed =
        |window: Duration| u128::from(rate.burst) + window.as_nanos().div_ceil(rate.interval.as_nanos());
    (0..times.len()).all(|first| {
        (first..times.len())
            .all(|last| (last - first + 1) as u128 <= allowed(times[last] - times[first]).max(1))
    })
}

#[test]
fn an_object_that_fails_a_thousand_times_a_second_costs_one_request_and_one_more_each_minute() {
    let mut world = World::new(Limits::default());
    for _ in 0..10_000 {
        world.take(1, "QuotaExceeded");
        world.pass(Duration::from_millis(1));
    }
    assert_eq!(world.seen.len(), 1);
    world.pass(Duration::from_secs(600));
    let counts: Vec<_> = world.seen.iter().map(|seen| (seen.step, seen.count)).collect();
    assert_eq!(counts, [(Step::Create, 1), (Step::Update, 10_000)]);
    assert_eq!(world.seen[0].name, world.seen[1].name);
}

#[test]
fn ten_thousand_failing_objects_are_all_told_of_at_the_rate_for_all() {
    let mut world = World::new(Limits::default());
    for object in 0..10_000 {
        assert!(world.take(object, "QuotaExceeded"));
    }
    assert_eq!(world.seen.len(), 50);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.seen.len(), 50 + 600);
    world.pass(Duration::from_secs(1000));
    assert_eq!(world.seen.len(), 10_000);
    assert_eq!(world.aggregator.waiting(), 0);
}

#[test]
fn an_update_carries_the_newest_note() {
    let mut world = World::new(LIMITS);
    for note in ["first", "second", "third"] {
        assert!(world.aggregator.take(notice(1, "TimedOut", note), world.now));
        world.send();
    }
    world.pass(Duration::from_secs(60));
    let notes: Vec<_> = world.seen.iter().map(|seen| (&*seen.note, seen.count)).collect();
    assert_eq!(notes, [("first", 1), ("third", 3)]);
}

#[test]
fn an_event_the_server_has_forgotten_is_made_anew_and_one_that_it_has_is_brought_up_to_date() {
    let mut world = World::new(LIMITS);
    let mut answers = [Answer::Done, Answer::Vanished, Answer::Failed, Answer::Existed].into_iter();
    world.answers = Box::new(move |_| answers.next().unwrap_or(Answer::Done));
    world.take(1, "TimedOut");
    world.take(1, "TimedOut");
    world.pass(Duration::from_secs(600));
    let steps: Vec<_> = world.seen.iter().map(|seen| (seen.step, seen.count)).collect();
    let expected = [Step::Create, Step::Update, Step::Create, Step::Create, Step::Update];
    assert_eq!(steps, expected.iter().zip([1, 2, 2, 2, 2]).map(|(step, n)| (*step, n)).collect::<Vec<_>>());
    assert!(world.seen.iter().all(|seen| seen.name == world.seen[0].name));
}

#[test]
fn what_the_server_does_not_want_is_not_repeated() {
    let mut world = World::new(LIMITS);
    world.answers = Box::new(|_| Answer::Refused);
    world.take(1, "TimedOut");
    world.pass(Duration::from_secs(600));
    assert_eq!((world.seen.len(), world.aggregator.waiting()), (1, 0));
}

#[test]
fn what_happens_long_after_is_another_event() {
    let mut world = World::new(LIMITS);
    world.take(1, "TimedOut");
    world.pass(Duration::from_secs(1801));
    world.take(1, "TimedOut");
    assert_ne!(world.seen[0].name, world.seen[1].name);
    assert_eq!((world.seen[1].step, world.seen[1].count), (Step::Create, 1));
}

#[test]
fn what_is_remembered_is_bounded_and_what_waits_is_not_forgotten_for_it() {
    let mut world = World::new(Limits { capacity: 8, ..LIMITS });
    let taken = (0..30).filter(|object| world.take(*object, "TimedOut")).count();
    // Ten are sent at once and can be forgotten, eight wait, and for the others there is no room.
    assert_eq!((world.seen.len(), taken), (10, 18));
    assert_eq!((world.aggregator.series.len(), world.aggregator.waiting()), (8, 8));
    world.pass(Duration::from_secs(600));
    assert_eq!(world.seen.len(), 18);
}

#[test]
fn an_answer_that_comes_after_the_event_was_forgotten_says_nothing_of_the_next() {
    let mut world = World::new(Limits { capacity: 1, ..LIMITS });
    assert!(world.aggregator.take(notice(1, "TimedOut", ""), world.now));
    let Next::Send(late) = world.aggregator.next(world.now) else { panic!("it is due") };
    assert!(world.take(2, "TimedOut"), "it takes the place of the first");
    assert!(world.take(1, "TimedOut"), "the first is back under another name");
    world.aggregator.answered(*late, Answer::Vanished, world.now);
    assert_eq!(world.aggregator.waiting(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever happens when, and whatever the server answers.
    #[test]
    fn the_limits_hold_in_any_window_and_in_the_end_the_counts_add_up(
        happenings in prop::collection::vec((0_usize..OBJECTS, 0_usize..5, prop_oneof![9 => 0_u64..20, 1 => 0_u64..120_000]), 1..300),
        answers in prop::collection::vec(prop_oneof![
            8 => Just(Answer::Done), 1 => Just(Answer::Vanished), 1 => Just(Answer::Failed), 1 => Just(Answer::Existed),
        ], 0..100),
    ) {
        let mut world = World::new(LIMITS);
        let mut answers = answers.into_iter();
        world.answers = Box::new(move |_| answers.next().unwrap_or(Answer::Done));
        let mut taken: HashMap<(String, &str), i32> = HashMap::new();
        for (object, reason, milliseconds) in happenings {
            prop_assert!(world.take(object, REASONS[reason]));
            *taken.entry((format!("uid-{object}"), REASONS[reason])).or_default() += 1;
            world.pass(Duration::from_millis(milliseconds));
        }
        world.pass(Duration::from_secs(24 * 3600));
        prop_assert_eq!(world.aggregator.waiting(), 0);

        let times = |object: Option<&str>| -> Vec<Instant> {
            let seen = world.seen.iter().filter(|seen| object.is_none_or(|object| seen.object == object));
            seen.map(|seen| seen.at).collect()
        };
        prop_assert!(is_within(&times(None), LIMITS.all));
        for object in 0..OBJECTS {
            let uid = format!("uid-{object}");
            prop_assert!(is_within(&times(Some(&uid)), LIMITS.object));
        }
        let names: std::collections::HashSet<_> = world.seen.iter().map(|seen| &seen.name).collect();
        let told: i32 = names.iter().map(|name| world.last_of(name).count).sum();
        prop_assert_eq!(told, taken.values().sum::<i32>());
    }
}
