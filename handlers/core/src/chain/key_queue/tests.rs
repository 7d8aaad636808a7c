use super::*;

use futures_util::FutureExt;

use crate::event::Identity;
use crate::test_message::TestMessage;

const COALESCE: QueuePolicy = QueuePolicy { coalesce: true, depth: 100, superseded_by_key: false };

fn queue(events: &[TestMessage], policy: &QueuePolicy) -> KeyQueue<TestMessage> {
    let mut queue = KeyQueue::new(false);
    for event in events {
        queue.push(event.clone(), Instant::now(), policy);
    }
    queue
}

/// Makes `event` the current message. The messages in `queue` arrive while it is handled.
fn set_current(queue: &mut KeyQueue<TestMessage>, event: TestMessage) {
    queue.begin(event, Instant::now());
}

/// The result of a message whose retries ended because it was superseded.
pub(super) const SUPERSEDED: Option<Duration> = Some(Duration::ZERO);

/// Ends the current message with these failures. It is to be handled again after `again`.
pub(super) fn end(
    queue: &mut KeyQueue<TestMessage>,
    (retry, again): (RetryMemory, Option<Duration>),
    policy: &QueuePolicy,
) {
    let (_, current) = queue.current.as_ref().expect("there is one");
    let mut progress = current.progress();
    (progress.retry, progress.again) = (retry, again);
    if let Some(delay) = again.filter(|delay| !delay.is_zero()) {
        progress.retry.get_or_insert_default().requeued();
        progress.again = Some(delay);
    }
    drop(progress);
    queue.end(policy);
}

#[expect(clippy::unnecessary_wraps, reason = "it is the memory of a context")]
fn memory(failures: u32) -> RetryMemory {
    let mut retry = RetryState::default();
    retry.failures = failures;
    Some(Box::new(retry))
}

fn next(queue: &mut KeyQueue<TestMessage>) -> (String, u32) {
    let (event, current) = queue.pop(&COALESCE).expect("there is one");
    (event.to_string(), current.progress().retry.as_ref().map_or(0, |retry| retry.failures))
}

fn drain(queue: &mut KeyQueue<TestMessage>) -> Vec<String> {
    std::iter::from_fn(|| queue.pop(&COALESCE)).map(|(event, _)| event.to_string()).collect()
}

#[test]
fn a_modified_replaces_the_modified_before_it_and_overtakes_no_other_message() {
    use TestMessage as M;
    let events = [M::modified("a", 1), M::modified("b", 1), M::modified("a", 2)];
    assert_eq!(drain(&mut queue(&events, &COALESCE)), ["b modified 1", "a modified 2"]);
}

#[test]
fn an_added_is_never_replaced_by_a_modified() {
    use TestMessage as M;
    let events = [M::added("a"), M::modified("a", 1), M::modified("a", 2)];
    assert_eq!(drain(&mut queue(&events, &COALESCE)), ["a added 0", "a modified 2"]);
}

#[test]
fn a_deleted_cancels_the_queued_messages_of_its_object_and_is_never_dropped() {
    use TestMessage as M;
    let events = [M::added("a"), M::modified("a", 1), M::added("b"), M::deleted("a"), M::deleted("a")];
    assert_eq!(
        drain(&mut queue(&events, &COALESCE)),
        ["b added 0", "a deleted 0"],
        "and one Deleted is enough"
    );
}

#[test]
fn without_coalescing_every_message_is_queued_until_the_queue_is_full() {
    use TestMessage as M;
    let policy = QueuePolicy { coalesce: false, depth: 3, ..COALESCE };
    let mut queue = queue(&[M::modified("a", 1), M::modified("a", 2), M::modified("a", 3)], &policy);
    assert_eq!(queue.push(M::modified("a", 4), Instant::now(), &policy), 1);
    assert_eq!(drain(&mut queue), ["a modified 1", "a modified 2", "a modified 4"]);
}

#[test]
fn a_superseded_added_makes_the_next_modified_an_added() {
    use TestMessage as M;
    let mut queue = queue(&[M::modified("b", 1), M::modified("a", 1)], &COALESCE);
    set_current(&mut queue, M::added("a"));
    end(&mut queue, (memory(2), SUPERSEDED), &COALESCE);
    assert_eq!(next(&mut queue), ("b modified 1".into(), 0));
    assert_eq!(next(&mut queue), ("a added 1".into(), 2));
}

#[test]
fn only_a_message_of_the_same_object_supersedes_unless_the_policy_names_the_whole_key() {
    use TestMessage as M;
    let whole = QueuePolicy { superseded_by_key: true, ..COALESCE };
    for (first, newer, policy, expected) in [
        (M::added("a"), M::modified("b", 1), &COALESCE, false),
        (M::added("b"), M::modified("b", 1), &COALESCE, true),
        (M::added("a"), M::modified("b", 1), &whole, true),
        (M::deleted("b"), M::modified("b", 1), &whole, false),
        (M::modified("b", 1), M::missed("a"), &whole, false),
    ] {
        let mut running = queue(&[], policy);
        set_current(&mut running, first.clone());
        running.push(newer.clone(), Instant::now(), policy);
        assert_eq!(
            running.superseded(policy).is_some(),
            expected,
            "{newer} arrives while {first} is handled"
        );
        let mut queued = queue(&[first.clone(), newer.clone()], policy);
        queued.pop(policy).expect("there is one");
        assert_eq!(queued.superseded(policy).is_some(), expected, "{newer} is queued when {first} is taken");
    }
}

#[test]
fn a_trigger_replaces_and_supersedes_only_triggers_of_its_type() {
    use TestMessage as M;
    let whole = QueuePolicy { superseded_by_key: true, ..COALESCE };
    let events = [M::modified("a", 1), M::trigger("a", 1), M::trigger("a", 2), M::modified("a", 2)];
    assert_eq!(drain(&mut queue(&events, &COALESCE)), ["a trigger 2", "a modified 2"]);
    let events = [M::trigger("a", 1), M::deleted("a"), M::trigger("a", 2)];
    assert_eq!(drain(&mut queue(&events, &COALESCE)), ["a deleted 0", "a trigger 2"]);
    assert!(!supersedes(&M::trigger("a", 1), &M::added("a"), &whole));
    assert!(supersedes(&M::trigger("a", 2), &M::trigger("a", 1), &COALESCE));
    assert!(supersedes(&M::modified("b", 1), &M::trigger("a", 1), &whole));

    let mut queue = queue(&[], &whole);
    set_current(&mut queue, M::deleted("a"));
    end(&mut queue, (None, Some(Duration::from_secs(60))), &COALESCE);
    queue.push(M::trigger("a", 1), Instant::now(), &whole);
    assert_eq!(drain(&mut queue), ["a trigger 1"]);
    assert!(queue.due().is_some(), "the deletion that failed is still handled again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_for_deletion_is_not_repeated_after_the_deletion() {
    use TestMessage as M;
    let mut queue = queue(&[M::deleted("a")], &COALESCE);
    set_current(&mut queue, M::deleted("a"));
    end(&mut queue, (None, Some(Duration::MAX)), &COALESCE);
    assert!(queue.due().is_none(), "the newer message of the object replaces it");
    assert_eq!(next(&mut queue), ("a deleted 0".into(), 1));
    end(&mut queue, (None, Some(Duration::MAX)), &COALESCE);
    assert!(queue.due().is_some(), "a delay that cannot be represented is a long one");
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_handled_again_after_its_delay_or_replaced_by_a_newer_one() {
    use TestMessage as M;
    let mut queue = queue(&[], &COALESCE);
    for event in [M::added("a"), M::modified("b", 1)] {
        set_current(&mut queue, event);
        end(&mut queue, (None, Some(Duration::from_secs(60))), &COALESCE);
    }
    assert!(queue.pop(&COALESCE).is_none());

    queue.push(M::modified("a", 1), Instant::now(), &COALESCE);
    assert_eq!(next(&mut queue), ("a added 1".into(), 1), "it was never handled as Added");
    end(&mut queue, (memory(1), None), &COALESCE);

    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(next(&mut queue), ("b modified 1".into(), 1));
    assert!(queue.due().is_none());
}

#[test]
fn a_message_that_takes_over_keeps_the_larger_failure_count_and_the_newer_reported_object() {
    use k8s_openapi::api::core::v1::Pod;
    let failed = |failures, name: Option<&str>| {
        let reported_on =
            name.map(|name| Arc::new(Identity::of::<Pod>(None, name.to_owned(), String::new())));
        let mut retry = RetryState::default();
        (retry.failures, retry.reported_on) = (failures, reported_on);
        Some(Box::new(retry))
    };
    for (newer, older, expected) in
        [(None, Some("b"), "b"), (Some("a"), Some("b"), "a"), (Some("a"), None, "a")]
    {
        let (event, phase, since) = (TestMessage::added("x"), Phase::Queued, Instant::now());
        let mut successor = QueueEntry { event, phase, since, retry: failed(3, older) };
        successor.inherit(failed(2, newer));
        let retry = successor.retry.unwrap();
        assert_eq!((retry.failures, &*retry.reported_on.unwrap().name), (3, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_of_another_object_of_the_key_leaves_a_failed_message_and_lets_it_be_handled_at_once() {
    use TestMessage as M;
    let whole = QueuePolicy { superseded_by_key: true, ..COALESCE };
    let mut queue = queue(&[], &whole);
    set_current(&mut queue, M::modified("new", 1));
    end(&mut queue, (memory(0), Some(Duration::from_secs(900))), &whole);
    queue.push(M::missed("old"), Instant::now(), &whole);
    assert_eq!(drain(&mut queue), ["new modified 1", "old deleted 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_superseded_message_whose_successor_is_cancelled_is_handled_again() {
    use TestMessage as M;
    let whole = QueuePolicy { superseded_by_key: true, ..COALESCE };
    let mut queue = queue(&[], &whole);
    set_current(&mut queue, M::modified("a", 1));
    queue.push(M::added("b"), Instant::now(), &whole);
    assert!(queue.superseded(&whole).is_some());
    queue.push(M::deleted("b"), Instant::now(), &whole);
    end(&mut queue, (memory(0), SUPERSEDED), &whole);
    assert_eq!(drain(&mut queue), ["a modified 1", "b deleted 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_not_repeated_once_the_object_exists_again() {
    use TestMessage as M;
    let mut queue = queue(&[], &COALESCE);
    set_current(&mut queue, M::deleted("a"));
    end(&mut queue, (memory(0), Some(Duration::from_secs(60))), &COALESCE);
    queue.push(M::added("a"), Instant::now(), &COALESCE);
    assert_eq!(next(&mut queue), ("a added 0".into(), 1));
    assert!(queue.due().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_accepted_after_a_decline_takes_the_failures_of_the_current_one_over() {
    use TestMessage as M;
    let mut queue = queue(&[], &COALESCE);
    set_current(&mut queue, M::added("a"));
    queue.decline(&M::modified("a", 1));
    queue.push(M::modified("a", 2), Instant::now(), &COALESCE);
    end(&mut queue, (memory(2), SUPERSEDED), &COALESCE);
    assert_eq!(next(&mut queue), ("a added 2".into(), 2));
    end(&mut queue, (memory(2), SUPERSEDED), &COALESCE);
    assert_eq!(drain(&mut queue), ["a added 2"], "the decline is forgotten");
}

#[tokio::test(start_paused = true)]
async fn a_decline_wakes_the_queue_only_if_it_removes_a_message() {
    use TestMessage as M;
    let mut queue = queue(&[], &COALESCE);
    set_current(&mut queue, M::added("a"));
    end(&mut queue, (None, Some(Duration::from_secs(60))), &COALESCE);
    let (.., arrival) = queue.next_attempt().expect("it failed");
    for other in [M::modified("b", 1), M::trigger("a", 1)] {
        queue.decline(&other);
        assert!(arrival.notified().now_or_never().is_none(), "{other}");
    }
    queue.decline(&M::modified("a", 1));
    assert!(arrival.notified().now_or_never().is_some() && queue.next_attempt().is_none());
}
