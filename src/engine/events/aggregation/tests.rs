use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use staffetta_handler::Identity;

use super::*;

const LIMITS: Limits = Limits {
    burst: 10,
    write_interval: Duration::from_millis(500),
    min_write_interval: Duration::from_secs(60),
    memory: Duration::from_secs(1800),
    capacity: 64,
};

const REASONS: [&str; 5] = ["QuotaExceeded", "SubnetFull", "TimedOut", "Panicked", "Recovered"];

fn occurrence(object: usize, reason: &'static str, note: &str) -> Occurrence {
    let regarding = Identity::of::<Pod>(None, format!("pod-{object}"), format!("uid-{object}"));
    Occurrence::new(regarding, &"vif".into(), true, reason, (note, ""))
}

/// The number of objects in the property test.
const OBJECTS: usize = 12;

/// A request as the server receives it.
#[derive(Clone, Debug)]
struct Request {
    at: Instant,
    name: String,
    update: bool,
    count: i32,
    note: String,
}

/// An aggregator and a server that responds at once.
struct World {
    aggregator: Aggregator,
    now: Instant,
    requests: Vec<Request>,
    responses: Box<dyn FnMut(&Request) -> EventOutcome>,
}

impl World {
    fn new(limits: Limits) -> Self {
        // The clock of the machine may have begun less than the burst ago.
        let now = Instant::now() + Duration::from_secs(3600);
        let aggregator = Aggregator::new(limits, 0, now);
        Self { aggregator, now, requests: Vec::new(), responses: Box::new(|_| EventOutcome::Done) }
    }

    fn add(&mut self, object: usize, reason: &'static str) -> bool {
        let added = self.aggregator.add(occurrence(object, reason, ""), self.now);
        self.send();
        added
    }

    /// Sends the writes that are due, and returns the time of the next one.
    fn send(&mut self) -> Option<Instant> {
        while let Some(write) = self.aggregator.pop(self.now) {
            let request = Request {
                at: self.now,
                name: write.name.clone(),
                update: write.update,
                count: write.count,
                note: write.occurrence.note.clone(),
            };
            let outcome = (self.responses)(&request);
            self.requests.push(request);
            self.aggregator.finish(write, outcome, self.now);
        }
        self.aggregator.next_due()
    }

    /// Advances the clock by `time`, and sends each write when it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.send().filter(|next| *next <= end) {
            assert!(next > self.now, "it neither sends nor waits");
            self.now = next;
        }
        self.now = end;
    }

    fn last_of(&self, name: &str) -> &Request {
        self.requests.iter().rev().find(|request| request.name == name).unwrap()
    }
}

/// Returns `true` if no interval of any length holds more requests than the rate allows.
fn is_within(times: &[Instant], limits: Limits) -> bool {
    let Limits { burst, write_interval, .. } = limits;
    let allowed =
        |window: Duration| u128::from(burst) + window.as_nanos().div_ceil(write_interval.as_nanos());
    (0..times.len()).all(|first| {
        (first..times.len())
            .all(|last| (last - first + 1) as u128 <= allowed(times[last] - times[first]).max(1))
    })
}

#[test]
fn after_the_burst_there_is_one_write_an_interval_and_after_a_pause_the_whole_burst() {
    let interval = Duration::from_secs(10);
    let mut world = World::new(Limits { burst: 3, write_interval: interval, ..LIMITS });
    for objects in [0..5, 5..10] {
        let before = world.requests.len();
        for object in objects {
            world.add(object, "TimedOut");
        }
        for written in [3, 4, 5] {
            assert_eq!(world.requests.len() - before, written);
            world.pass(interval);
        }
        world.pass(Duration::from_secs(1000));
    }
}

#[test]
fn an_object_that_fails_a_thousand_times_a_second_causes_one_request_a_minute() {
    let mut world = World::new(super::LIMITS);
    for _ in 0..10_000 {
        world.add(1, "QuotaExceeded");
        world.pass(Duration::from_millis(1));
    }
    assert_eq!(world.requests.len(), 1);
    world.pass(Duration::from_secs(600));
    let counts: Vec<_> = world.requests.iter().map(|request| (request.update, request.count)).collect();
    assert_eq!(counts, [(false, 1), (true, 10_000)]);
    assert_eq!(world.requests[0].name, world.requests[1].name);
}

#[test]
fn ten_thousand_failing_objects_are_all_reported_within_the_rate_limit() {
    let mut world = World::new(super::LIMITS);
    for object in 0..10_000 {
        assert!(world.add(object, "QuotaExceeded"));
    }
    assert_eq!(world.requests.len(), 50);
    world.pass(Duration::from_secs(60));
    assert_eq!(world.requests.len(), 50 + 600);
    world.pass(Duration::from_secs(1000));
    assert_eq!(world.requests.len(), 10_000);
    assert_eq!(world.aggregator.pending(), 0);
}

#[test]
fn a_thousand_successes_keep_to_the_rate_limit_and_failures_overtake_them() {
    let mut world = World::new(super::LIMITS);
    let success = |object| Occurrence { warning: false, ..occurrence(object, "Handled", "") };
    for object in 0..1000 {
        assert!(world.aggregator.add(success(object), world.now));
    }
    world.send();
    assert_eq!(world.requests.len(), 50);
    assert!(world.add(5000, "QuotaExceeded"));
    world.pass(Duration::from_millis(100));
    assert!(world.requests[50].name.starts_with("pod-5000."), "{:?}", world.requests[50]);
    world.pass(Duration::from_secs(93));
    assert_eq!((world.requests.len(), world.aggregator.pending()), (50 + 931, 1001 - 981));
    world.pass(Duration::from_secs(2));
    let times: Vec<_> = world.requests.iter().map(|request| request.at).collect();
    assert!(times.len() == 1001 && is_within(&times, super::LIMITS), "{}", times.len());
}

#[test]
fn successes_take_at_most_half_of_the_room_and_none_of_what_failures_have() {
    let mut world = World::new(Limits { capacity: 8, ..LIMITS });
    let success = |object| Occurrence { warning: false, ..occurrence(object, "Handled", "") };
    for object in 0..3 {
        assert!(world.add(object, "TimedOut"));
    }
    // The three failures are written and counted further, so there is room for one success at a time.
    let added = (10..30).filter(|object| world.aggregator.add(success(*object), world.now)).count();
    assert_eq!((added, world.aggregator.series.len()), (1, 4));
    for object in 3..7 {
        assert!(world.add(object, "TimedOut"));
    }
    world.pass(Duration::from_secs(600));
    assert!((0..7).all(|object| world.add(object, "TimedOut")));
    world.pass(Duration::from_secs(60));
    let failures = world.requests.iter().filter(|request| request.count == 2);
    assert_eq!(failures.count(), 7, "their counts go on");
}

#[test]
fn an_update_carries_the_newest_note() {
    let mut world = World::new(LIMITS);
    for note in ["first", "second", "third"] {
        assert!(world.aggregator.add(occurrence(1, "TimedOut", note), world.now));
        world.send();
    }
    world.pass(Duration::from_secs(60));
    let notes: Vec<_> = world.requests.iter().map(|request| (&*request.note, request.count)).collect();
    assert_eq!(notes, [("first", 1), ("third", 3)]);
}

#[test]
fn an_expired_event_is_created_again_and_an_existing_one_is_updated() {
    let mut world = World::new(LIMITS);
    let outcomes =
        [EventOutcome::Done, EventOutcome::NotFound, EventOutcome::Failed(None), EventOutcome::AlreadyExists];
    let mut outcomes = outcomes.into_iter();
    world.responses = Box::new(move |_| outcomes.next().unwrap_or(EventOutcome::Done));
    world.add(1, "TimedOut");
    world.add(1, "TimedOut");
    world.pass(Duration::from_secs(600));
    let requests: Vec<_> = world.requests.iter().map(|request| (request.update, request.count)).collect();
    assert_eq!(requests, [(false, 1), (true, 2), (false, 2), (false, 2), (true, 2)]);
    assert!(world.requests.iter().all(|request| request.name == world.requests[0].name));
}

#[test]
fn a_rejected_write_is_not_repeated() {
    let mut world = World::new(LIMITS);
    world.responses = Box::new(|_| EventOutcome::Rejected);
    world.add(1, "TimedOut");
    world.pass(Duration::from_secs(600));
    assert_eq!((world.requests.len(), world.aggregator.pending()), (1, 0));
}

#[test]
fn an_occurrence_long_after_the_last_one_is_another_event() {
    let mut world = World::new(LIMITS);
    world.add(1, "TimedOut");
    world.pass(Duration::from_secs(1801));
    world.add(1, "TimedOut");
    assert_ne!(world.requests[0].name, world.requests[1].name);
    assert_eq!((world.requests[1].update, world.requests[1].count), (false, 1));
}

#[test]
fn the_number_of_series_is_bounded_and_those_with_a_pending_occurrence_are_kept() {
    let mut world = World::new(Limits { capacity: 8, ..LIMITS });
    let added = (0..30).filter(|object| world.add(*object, "TimedOut")).count();
    // Ten are written at once and can be removed, eight wait, and for the others there is no room.
    assert_eq!((world.requests.len(), added), (10, 18));
    assert_eq!((world.aggregator.series.len(), world.aggregator.pending()), (8, 8));
    world.pass(Duration::from_secs(600));
    assert_eq!(world.requests.len(), 18);
}

#[test]
fn the_outcome_of_a_removed_series_does_not_affect_its_successor() {
    let mut world = World::new(Limits { capacity: 1, ..LIMITS });
    assert!(world.aggregator.add(occurrence(1, "TimedOut", ""), world.now));
    let late = world.aggregator.pop(world.now).expect("it is due");
    assert!(world.add(2, "TimedOut"), "it replaces the first");
    assert!(world.add(1, "TimedOut"), "the first is back under another name");
    world.aggregator.finish(late, EventOutcome::NotFound, world.now);
    assert_eq!(world.aggregator.pending(), 0);
}

#[test]
fn a_paused_namespace_is_tried_again_after_its_delay_and_delays_no_other() {
    let mut world = World::new(LIMITS);
    let hint = Duration::from_secs(300);
    assert_eq!(world.aggregator.pause("default", Some(hint), world.now), (hint, true));
    assert_eq!(world.aggregator.pause("default", Some(hint), world.now), (hint, false));
    world.add(1, "TimedOut");
    let mut other = occurrence(2, "TimedOut", "");
    other.regarding.namespace = Some("shop".into());
    world.aggregator.add(other, world.now);
    world.pass(Duration::from_secs(299));
    assert_eq!(world.requests.len(), 1);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.requests.len(), 2);
    assert!(world.aggregator.resume("default") && !world.aggregator.resume("default"));
}

#[test]
fn an_event_that_keeps_failing_keeps_no_other_of_its_namespace_from_being_written() {
    let World { mut aggregator, mut now, .. } = World::new(LIMITS);
    for object in 0..3 {
        aggregator.add(occurrence(object, "TimedOut", ""), now);
    }
    let (hint, mut written) = (Some(Duration::from_secs(300)), Vec::new());
    for _ in 0..4 {
        while let Some(write) = aggregator.pop(now) {
            if write.occurrence.regarding.name == "pod-0" {
                aggregator.pause("default", hint, now);
                aggregator.finish(write, EventOutcome::Failed(hint), now);
            } else {
                aggregator.resume("default");
                written.push(write.occurrence.regarding.name.clone());
                aggregator.finish(write, EventOutcome::Done, now);
            }
        }
        now += Duration::from_secs(300);
    }
    assert_eq!(written, ["pod-1", "pod-2"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_limits_hold_in_any_interval_and_in_the_end_the_counts_add_up(
        occurrences in prop::collection::vec((0_usize..OBJECTS, 0_usize..5, prop_oneof![9 => 0_u64..20, 1 => 0_u64..120_000]), 1..300),
        outcomes in prop::collection::vec(prop_oneof![
            8 => Just(EventOutcome::Done), 1 => Just(EventOutcome::NotFound), 1 => Just(EventOutcome::Failed(None)),
            1 => Just(EventOutcome::AlreadyExists),
        ], 0..100),
    ) {
        let mut world = World::new(LIMITS);
        let mut outcomes = outcomes.into_iter();
        world.responses = Box::new(move |_| outcomes.next().unwrap_or(EventOutcome::Done));
        let mut added = 0;
        for (object, reason, milliseconds) in occurrences {
            prop_assert!(world.add(object, REASONS[reason]));
            added += 1;
            world.pass(Duration::from_millis(milliseconds));
        }
        world.pass(Duration::from_secs(24 * 3600));
        prop_assert_eq!(world.aggregator.pending(), 0);

        let times: Vec<_> = world.requests.iter().map(|request| request.at).collect();
        prop_assert!(is_within(&times, LIMITS));
        let names: std::collections::HashSet<_> = world.requests.iter().map(|request| &request.name).collect();
        let counted: i32 = names.iter().map(|name| world.last_of(name).count).sum();
        prop_assert_eq!(counted, added);
    }
}
