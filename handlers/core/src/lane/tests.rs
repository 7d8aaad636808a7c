use std::time::Duration;

use super::*;
use crate::past::Past;
use crate::testing::TestMessage;

const COALESCE: QueuePolicy =
    QueuePolicy { coalesce: true, depth: 100, superseded: Superseded::BySameObject };

fn lane(events: &[TestMessage], policy: &QueuePolicy) -> Lane<TestMessage> {
    let mut lane = Lane::closed();
    for event in events {
        lane.push(event.clone(), Instant::now(), policy);
    }
    lane
}

/// The message has its turn, and what waits in `lane` came meanwhile.
fn in_hand(lane: &mut Lane<TestMessage>, event: TestMessage) {
    let mut other = Lane::started(event, Instant::now());
    std::mem::swap(&mut lane.in_hand, &mut other.in_hand);
}

#[expect(clippy::unnecessary_wraps, reason = "it stands for what a turn leaves")]
fn past(failures: u32) -> Carry {
    Some(Box::new(Past { failures, ..Past::default() }))
}

fn next(lane: &mut Lane<TestMessage>) -> (String, u32) {
    let Next { event, past, .. } = lane.next().expect("there is one");
    (event.to_string(), past.map_or(0, |past| past.failures))
}

fn drain(lane: &mut Lane<TestMessage>) -> Vec<String> {
    std::iter::from_fn(|| lane.next()).map(|next| next.event.to_string()).collect()
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
    assert_eq!(lane.push(M::modified("a", 4), Instant::now(), &policy), 1);
    assert_eq!(drain(&mut lane), ["a modified 1", "a modified 2", "a modified 4"]);
}

#[test]
fn a_superseded_added_makes_the_next_modified_an_added() {
    use TestMessage as M;
    let mut lane = lane(&[M::modified("b", 1), M::modified("a", 1)], &COALESCE);
    in_hand(&mut lane, M::added("a"));
    lane.end(Verdict::Superseded, past(2), &COALESCE);
    assert_eq!(next(&mut lane), ("b modified 1".into(), 0));
    assert_eq!(next(&mut lane), ("a added 1".into(), 2));
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
    in_hand(&mut lane, M::deleted("a"));
    lane.end(Verdict::Again(Duration::MAX), None, &COALESCE);
    assert!(lane.due().is_none(), "the newer message of the object stands for it");
    assert_eq!(next(&mut lane), ("a deleted 0".into(), 1));
    lane.end(Verdict::Again(Duration::MAX), None, &COALESCE);
    assert!(lane.due().is_some(), "a time out of reach is a time far away");
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_waits_for_its_time_or_for_a_newer_one() {
    use TestMessage as M;
    let mut lane = lane(&[], &COALESCE);
    let again = Verdict::Again(Duration::from_secs(60));
    for event in [M::added("a"), M::modified("b", 1)] {
        in_hand(&mut lane, event);
        lane.end(again, None, &COALESCE);
    }
    assert!(lane.next().is_none());

    lane.push(M::modified("a", 1), Instant::now(), &COALESCE);
    assert_eq!(next(&mut lane), ("a added 1".into(), 1), "it was never handled as Added");
    lane.end(Verdict::Done, past(1), &COALESCE);

    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(next(&mut lane), ("b modified 1".into(), 1));
    assert!(lane.due().is_none());
}
