use std::time::Duration;

use super::*;

use crate::chain::action::Delay;
use crate::chain::relation::relation;
use crate::event::Identity;
use crate::test_message::TestMessage;
use crate::testing::Fault;

use TestMessage as M;

/// Returns what follows an attempt that did not finish, with a wait of `delay`.
pub(super) fn waits(kind: WaitKind, delay: Duration) -> Next {
    let mut failures = Failures::default();
    if kind.is_failure() {
        failures.failed(&Fault::transient("busy"), kind == WaitKind::Retrying);
        failures.requeues += u32::from(kind == WaitKind::Failed);
    }
    Next::Wait(Wait { kind, delay: Delay { wait: delay, least: delay }, failures })
}

const MINUTE: Duration = Duration::from_secs(60);

/// A queue that handles its messages one after the other.
struct World(KeyQueue<TestMessage>);

impl World {
    /// Returns a queue in which these messages arrived before it handled any.
    fn queued(by_key: bool, events: &[TestMessage]) -> Self {
        let mut queue = KeyQueue::new(false, by_key);
        for event in events {
            queue.push(event.clone(), Instant::now());
        }
        queue.started = true;
        Self(queue)
    }

    /// Returns a queue in which these messages failed one after the other, and wait for a minute.
    fn failed(by_key: bool, events: &[TestMessage]) -> Self {
        let mut world = Self::queued(by_key, &[]);
        for event in events {
            world.arrive(event.clone());
            world.next();
            world.fail(MINUTE);
        }
        world
    }

    fn arrive(&mut self, event: TestMessage) -> Option<String> {
        let idle = self.0.started && self.0.is_empty();
        self.0.push(event, Instant::now());
        idle.then(|| self.next()).flatten().map(|(event, _)| event)
    }

    /// Returns the next message and its number of requeues, if none is running.
    fn next(&mut self) -> Option<(String, u32)> {
        let attempt = self.0.next(Instant::now())?;
        Some((attempt.event.to_string(), attempt.failures.map_or(0, |failures| failures.requeues)))
    }

    fn fail(&mut self, delay: Duration) {
        self.0.end(Some(waits(WaitKind::Failed, delay)), Instant::now());
    }

    fn succeed(&mut self) {
        self.0.end(None, Instant::now());
    }

    /// Handles all messages that can be handled now.
    fn drain(&mut self) -> Vec<String> {
        std::iter::from_fn(|| {
            let (event, _) = self.next()?;
            self.succeed();
            Some(event)
        })
        .collect()
    }

    /// Returns the seconds until the next attempt; `None` if no message waits.
    fn due(&self) -> Option<u64> {
        let due = self.0.items.iter().filter_map(|item| Some(item.waiting()?.due)).min()?;
        Some((due - Instant::now()).as_secs())
    }
}

#[test]
fn a_modified_replaces_the_modified_before_it_and_overtakes_no_other_message() {
    let events = [M::modified("a", 1), M::modified("b", 1), M::modified("a", 2)];
    assert_eq!(World::queued(false, &events).drain(), ["b modified 1", "a modified 2"]);
}

#[test]
fn an_added_is_never_replaced_by_a_modified() {
    let events = [M::added("a"), M::modified("a", 1), M::modified("a", 2)];
    assert_eq!(World::queued(false, &events).drain(), ["a added 0", "a modified 2"]);
}

#[test]
fn a_deleted_cancels_the_queued_messages_of_its_object_and_is_never_dropped() {
    let events = [M::added("a"), M::modified("a", 1), M::added("b"), M::deleted("a"), M::deleted("a")];
    assert_eq!(
        World::queued(false, &events).drain(),
        ["b added 0", "a deleted 0"],
        "and one Deleted is enough"
    );
}

#[test]
fn an_added_that_fails_makes_the_next_modified_an_added() {
    let mut world = World::queued(false, &[]);
    world.arrive(M::added("a"));
    for event in [M::modified("b", 1), M::modified("a", 1)] {
        assert_eq!(world.arrive(event), None, "one at a time");
    }
    world.fail(MINUTE);
    assert_eq!(world.next(), Some(("b modified 1".into(), 0)));
    world.succeed();
    assert_eq!(world.next(), Some(("a added 1".into(), 1)));
}

#[test]
fn each_row_of_the_table_of_relations_holds() {
    use Relation::{Apart, Behind, Replace};
    let all =
        [M::added("a"), M::modified("a", 1), M::terminating("a", 1), M::deleted("a"), M::trigger("a", 1)];
    // The newer messages in this order, for each older one: not attempted, and attempted.
    let expected = [
        (
            M::added("a"),
            [Behind, Behind, Behind, Replace, Apart],
            [Replace, Replace, Replace, Replace, Apart],
        ),
        (
            M::modified("a", 0),
            [Behind, Replace, Replace, Replace, Apart],
            [Replace, Replace, Replace, Replace, Apart],
        ),
        (
            M::terminating("a", 0),
            [Behind, Behind, Replace, Replace, Apart],
            [Behind, Behind, Replace, Replace, Apart],
        ),
        (
            M::deleted("a"),
            [Behind, Behind, Behind, Replace, Apart],
            [Replace, Behind, Behind, Replace, Apart],
        ),
        (
            M::trigger("a", 0),
            [Apart, Apart, Apart, Replace, Replace],
            [Apart, Apart, Apart, Replace, Replace],
        ),
    ];
    for (older, queued, attempted) in expected {
        for (newer, (queued, attempted)) in all.iter().zip(queued.into_iter().zip(attempted)) {
            assert_eq!(relation(newer, &older, false, false), queued, "{newer} after {older}");
            assert_eq!(
                relation(newer, &older, true, false),
                attempted,
                "{newer} after the attempted {older}"
            );
        }
    }
    for newer in &all {
        for older in
            [M::added("b"), M::modified("b", 0), M::terminating("b", 0), M::deleted("b"), M::trigger("b", 0)]
        {
            assert_eq!(relation(newer, &older, true, false), Apart, "{newer} after {older}");
            assert_eq!(
                relation(newer, &older, false, true),
                Apart,
                "{newer} after {older}, which was not attempted"
            );
            let watched = !newer.is_trigger() && newer.change() != Change::Deleted;
            let expected = if watched && !older.finalizing() { Replace } else { Apart };
            assert_eq!(relation(newer, &older, true, true), expected, "by key, {newer} after {older}");
        }
    }
}

#[test]
fn a_trigger_replaces_only_triggers_of_its_type() {
    let events = [M::modified("a", 1), M::trigger("a", 1), M::trigger("a", 2), M::modified("a", 2)];
    assert_eq!(World::queued(false, &events).drain(), ["a trigger 2", "a modified 2"]);
    let events = [M::trigger("a", 1), M::deleted("a"), M::trigger("a", 2)];
    assert_eq!(World::queued(false, &events).drain(), ["a deleted 0", "a trigger 2"]);
    let mut world = World::failed(true, &[M::deleted("a")]);
    assert_eq!(world.arrive(M::trigger("a", 1)), None);
    assert_eq!(world.drain(), ["a trigger 1"]);
    assert!(world.due().is_some(), "the deletion that failed is still handled again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_for_deletion_is_not_repeated_after_the_deletion() {
    let mut world = World::queued(false, &[]);
    world.arrive(M::deleted("a"));
    world.arrive(M::deleted("a"));
    world.fail(Duration::MAX);
    assert!(world.due().is_none(), "the newer message of the object replaces it");
    assert_eq!(world.next(), Some(("a deleted 0".into(), 1)));
    world.fail(Duration::MAX);
    assert!(world.due().is_some(), "a delay that cannot be represented is a long one");
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_handled_again_after_its_delay_or_replaced_by_a_newer_one() {
    let mut world = World::failed(false, &[M::added("a"), M::modified("b", 1)]);
    assert_eq!(world.next(), None);
    world.arrive(M::modified("a", 1));
    assert_eq!(world.next(), Some(("a added 1".into(), 1)), "it was never handled as Added");
    world.succeed();
    tokio::time::advance(MINUTE).await;
    assert_eq!(world.next(), Some(("b modified 1".into(), 1)));
    assert!(world.due().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_event_holds_back_only_later_events_of_its_own_object() {
    let mut world = World::failed(false, &[M::terminating("a", 1)]);
    world.arrive(M::modified("a", 2));
    world.arrive(M::trigger("a", 1));
    world.arrive(M::modified("b", 1));
    assert_eq!(world.drain(), ["a trigger 1", "b modified 1"]);
    tokio::time::advance(MINUTE).await;
    assert_eq!(world.drain(), ["a modified 1", "a modified 2"]);
}

#[test]
fn a_message_that_takes_over_keeps_the_larger_failure_count_and_the_older_reported_object() {
    use k8s_openapi::api::core::v1::Pod;
    let failed = |requeues, name: Option<&str>| {
        let mut failures = Failures::default();
        failures.requeues = requeues;
        if let Some(name) = name {
            failures.set_reported_on(Identity::of::<Pod>(None, name.to_owned(), String::new()));
        }
        failures
    };
    for (newer, older, expected) in
        [(None, Some("b"), "b"), (Some("a"), Some("b"), "b"), (Some("a"), None, "a")]
    {
        let failures = failed(3, newer).after(failed(2, older));
        assert_eq!(failures.requeues, 3);
        assert_eq!(failures.reported_on().map(|object| &*object.name), Some(expected));
    }
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_another_object_of_the_key_goes_first_and_lets_a_failed_message_be_handled_at_once() {
    let mut world = World::failed(true, &[M::modified("new", 1)]);
    world.arrive(M::missed("old"));
    assert_eq!(world.drain(), ["old deleted 0", "new modified 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_ends_well_makes_the_event_of_its_object_due_after_its_back_off() {
    let second = Duration::from_secs(1);
    for (least, expected) in [(Duration::ZERO, 0), (5 * second, 5), (MINUTE, 60)] {
        for succeeds in [true, false] {
            let mut world = World::queued(false, &[]);
            for uid in ["a", "b"] {
                assert!(world.arrive(M::added(uid)).is_some() || world.next().is_some());
                let Next::Wait(wait) = waits(WaitKind::Retrying, MINUTE) else { unreachable!() };
                let delay = Delay { least, ..wait.delay };
                world.0.end(Some(Next::Wait(Wait { delay, ..wait })), Instant::now());
            }
            world.arrive(M::trigger("a", 1));
            assert_eq!(world.next(), Some(("a trigger 1".into(), 0)), "it does not wait for the event");
            if succeeds {
                world.succeed();
            } else {
                world.fail(2 * MINUTE);
            }
            assert_eq!(world.due(), Some(if succeeds { expected } else { 60 }), "{least:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_has_to_be_repeated_moves_the_event_of_its_object_unless_that_is_in_back_off() {
    let second = Duration::from_secs(1);
    for (seconds, least, expected) in [
        (10, Duration::ZERO, &[(10, "a added 0")][..]),
        (10, 5 * second, &[(10, "a added 0")]),
        (10, MINUTE, &[(10, "a trigger 1"), (60, "a added 0")]),
        (100, Duration::ZERO, &[(60, "a added 0")]),
        (100, MINUTE, &[(60, "a added 0")]),
    ] {
        let began = Instant::now();
        let mut world = World::queued(false, &[]);
        world.arrive(M::added("a"));
        let Next::Wait(wait) = waits(WaitKind::Retrying, MINUTE) else { unreachable!() };
        world.0.end(Some(Next::Wait(Wait { delay: Delay { wait: MINUTE, least }, ..wait })), began);
        world.arrive(M::trigger("a", 1));
        world.next();
        world.0.end(Some(waits(WaitKind::Unfinished, Duration::from_secs(seconds))), began);
        for (due, message) in expected {
            tokio::time::sleep_until(began + *due * second).await;
            assert_eq!(world.drain(), [*message], "after {seconds} s, with a back-off of {least:?}");
        }
        assert!(world.0.is_empty(), "nothing is polled twice");
    }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_triggers_that_fail_is_handled_once_a_second() {
    let mut world = World::queued(false, &[]);
    let mut attempts = 0;
    for version in 0..10_000 {
        let arrived = world.arrive(M::trigger("a", version));
        if arrived.is_some() || world.next().is_some() {
            attempts += 1;
            world.fail(MINUTE);
        }
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    assert!((9..=11).contains(&attempts), "{attempts} in ten seconds");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_successor_is_cancelled_is_handled_again() {
    let mut world = World::queued(true, &[]);
    world.arrive(M::modified("a", 1));
    world.arrive(M::added("b"));
    world.arrive(M::deleted("b"));
    world.fail(Duration::ZERO);
    assert_eq!(world.drain(), ["a modified 1", "b deleted 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_not_repeated_once_the_object_exists_again() {
    let mut world = World::failed(false, &[M::deleted("a")]);
    world.arrive(M::added("a"));
    assert_eq!(world.next(), Some(("a added 0".into(), 1)));
    assert!(world.due().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_accepted_after_a_decline_takes_the_failures_of_the_running_one_over() {
    let mut world = World::queued(false, &[]);
    world.arrive(M::added("a"));
    world.0.decline(&M::modified("a", 1));
    world.arrive(M::modified("a", 2));
    world.fail(MINUTE);
    assert_eq!(world.next(), Some(("a added 2".into(), 1)));
    world.fail(Duration::ZERO);
    assert_eq!(world.drain(), ["a added 2"], "the decline is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_decline_removes_what_waits_of_its_object_only() {
    let mut world = World::failed(false, &[M::added("a")]);
    for other in [M::modified("b", 1), M::trigger("a", 1)] {
        world.0.decline(&other);
        assert!(world.due().is_some(), "{other}");
    }
    world.0.decline(&M::modified("a", 1));
    assert!(world.due().is_none() && world.0.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_left_at_the_end_keeps_no_note() {
    let mut world = World::queued(false, &[M::added("a")]);
    world.next();
    let note: Arc<dyn std::any::Any + Send + Sync> = Arc::new("trace");
    let Next::Wait(mut wait) = waits(WaitKind::Retrying, MINUTE) else { panic!("it waits") };
    wait.failures.note = Some(Arc::clone(&note));
    world.0.end(Some(Next::Wait(wait)), Instant::now());
    let left = world.0.take(false);
    assert_eq!((left.len(), Arc::strong_count(&note)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_poll_of_unfinished_work_continues_its_attempts_and_a_call_after_a_success_does_not() {
    let began = Instant::now();
    for (kind, expected) in [(WaitKind::Unfinished, (true, 0)), (WaitKind::Later, (false, 60))] {
        let mut queue = KeyQueue::new(true, false);
        let arrived = Instant::now();
        queue.push(M::added("a"), arrived);
        queue.next(arrived);
        queue.end(Some(waits(kind, MINUTE)), Instant::now());
        tokio::time::advance(MINUTE).await;
        let attempt = queue.next(Instant::now()).expect("it is due");
        assert_eq!((attempt.repeated, (attempt.arrived - arrived).as_secs()), expected, "{kind:?}");
    }
    assert_eq!(began.elapsed(), 2 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_handled_and_waits_to_be_called_again_is_no_failure() {
    let handled = || {
        let mut world = World::queued(false, &[M::added("a")]);
        world.next();
        world.0.end(Some(waits(WaitKind::Later, MINUTE)), Instant::now());
        world
    };
    let mut world = handled();
    world.arrive(M::modified("a", 1));
    assert_eq!(world.drain(), ["a modified 1"], "it was added already");
    assert!(handled().0.take(true).is_empty(), "it is not unhandled");

    let mut world = World::failed(false, &[M::added("a")]);
    world.arrive(M::trigger("a", 1));
    world.next();
    world.0.end(Some(waits(WaitKind::Later, 2 * MINUTE)), Instant::now());
    assert_eq!((world.due(), world.0.items.len()), (Some(60), 1), "the event does the work of the trigger");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_succeeds_and_asks_to_be_called_again_wakes_no_other() {
    let later = |world: &mut World, wait| world.0.end(Some(waits(WaitKind::Later, wait)), Instant::now());
    let mut world = World::queued(true, &[M::deleted("a"), M::deleted("b")]);
    for _ in 0..2 {
        assert!(world.next().is_some());
        later(&mut world, MINUTE);
    }
    assert_eq!((world.next(), world.due()), (None, Some(60)), "two deletions do not wake each other");

    let mut world = World::queued(false, &[M::modified("a", 1)]);
    world.next();
    world.0.end(Some(Next::Again(MINUTE, Some(crate::Why::new("not yet")))), Instant::now());
    tokio::time::advance(Duration::from_secs(10)).await;
    world.arrive(M::trigger("a", 1));
    world.next();
    later(&mut world, Duration::from_secs(20));
    assert_eq!(
        (world.due(), world.0.items.len()),
        (Some(20), 1),
        "the event is called when the trigger asked"
    );
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_replaces_a_handled_one_is_unhandled() {
    let mut world = World::queued(false, &[M::trigger("a", 1)]);
    world.next();
    world.0.end(Some(waits(WaitKind::Later, MINUTE)), Instant::now());
    world.arrive(M::trigger("a", 2));
    assert_eq!(world.0.take(true).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_trigger_is_not_left_to_the_deletion_of_another_object_of_its_key() {
    let mut world = World::failed(true, &[M::deleted("old")]);
    world.arrive(M::trigger("new", 1));
    world.next();
    world.0.end(Some(waits(WaitKind::Unfinished, Duration::from_secs(10))), Instant::now());
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(world.drain(), ["new trigger 1"]);
}

#[tokio::test(start_paused = true)]
async fn queues_without_further_wrappers_apply_what_a_handler_asks_for() {
    let second = Duration::from_secs(1);
    let delay = Delay { wait: second, least: second };
    let asked = [
        Next::Again(second, None),
        Next::Again(second, Some(crate::Why::new("not yet"))),
        Next::Retry(Fault::transient("busy").into(), delay),
    ];
    for next in asked {
        let mut world = World::queued(false, &[M::added("a")]);
        world.next();
        assert!(world.0.end(Some(next), Instant::now()).unhandled.is_none());
        assert_eq!(world.due(), Some(1));
    }
}
