//! Guarantees 5, 6 and 7: retries, reports of failures, and requeues.

use std::sync::Arc;
use std::time::Duration;

use crate::message::TestMessage;
use staffetta_handler::testing::{Fault, NoMetrics};
use staffetta_handler::{Async, OrderingKey};

use crate::support::{Answer, Scribe, run_until_idle};

fn failing_until(uid: &'static str, version: u64) -> Scribe {
    Scribe::new(move |message| {
        let fails = message.to_string().starts_with(uid) && message.version < version;
        if fails { Answer::Fail(Fault::transient("busy")) } else { Answer::Succeed }
    })
}

#[tokio::test(start_paused = true)]
async fn a_retry_ends_for_a_newer_message_which_becomes_an_added() {
    let scribe = failing_until("a", 1);
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("a"));
    run_until_idle().await;
    chain.push(TestMessage::modified("a", 1));
    run_until_idle().await;
    assert_eq!(
        scribe.attempts(),
        ["a added 0", "a added 1"],
        "at once, and as Added: none was handled before"
    );
    assert_eq!(chain.queues(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_newer_message_continues_the_back_off() {
    let scribe = failing_until("a", u64::MAX);
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("a"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = scribe.attempts().len();
    chain.push(TestMessage::modified("a", 1));
    run_until_idle().await;
    assert_eq!(scribe.attempts().len(), before + 1, "the newer one is tried at once");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(scribe.attempts().len(), before + 1, "and then waits as long as the older one would have");
}

#[tokio::test(start_paused = true)]
async fn a_message_of_another_object_ends_a_retry_only_if_superseded_by_key() {
    for (superseded_by_key, retries) in [(false, true), (true, false)] {
        let scribe = failing_until("service", u64::MAX);
        let policy = superseded_by_key;
        let key = |_: &TestMessage| OrderingKey::of("one key");
        let chain = Async::new(scribe.wrapped(), policy, key, Arc::new(NoMetrics));
        chain.push(TestMessage::added("service"));
        run_until_idle().await;
        chain.push(TestMessage::added("slice"));
        run_until_idle().await;
        assert_eq!(
            scribe.attempts(),
            ["service added 0", "slice added 0"],
            "the retry delays no other object"
        );
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(scribe.attempts().len() > 2, retries, "{superseded_by_key}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_success_or_the_time_limit_ends_the_retries_of_a_deletion() {
    let scribe = failing_until("a", u64::MAX);
    let chain = scribe.chain(true);
    chain.push(TestMessage::deleted("a"));
    run_until_idle().await;
    chain.push(TestMessage::modified("a", 9));
    tokio::time::sleep(Duration::from_secs(100)).await;
    let attempts = scribe.attempts();
    assert!(attempts.len() > 3 && attempts.iter().all(|attempt| attempt == "a deleted 0"), "{attempts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_object_is_requeued_with_growing_delays() {
    let scribe = Scribe::new(|_| Answer::Fail(Fault::permanent("refused")));
    let chain = scribe.chain(false);
    let start = tokio::time::Instant::now();
    chain.push(TestMessage::added("a"));
    // 60, 120 and 240 s, each up to a tenth more or less.
    for (second, attempts) in [(1, 1), (53, 1), (67, 2), (161, 2), (199, 3), (377, 3), (463, 4)] {
        tokio::time::sleep_until(start + Duration::from_secs(second)).await;
        run_until_idle().await;
        assert_eq!(scribe.attempts().len(), attempts, "after {second} s");
    }
    assert_eq!(chain.busy(), 0, "meanwhile nothing of it is busy");
}

#[tokio::test(start_paused = true)]
async fn a_failed_object_is_handled_at_once_when_it_changes() {
    let scribe = Scribe::new(|message| match message.version {
        0 => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Succeed,
    });
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("a"));
    run_until_idle().await;
    chain.push(TestMessage::modified("a", 1));
    run_until_idle().await;
    assert_eq!(scribe.attempts(), ["a added 0", "a added 1"]);
    assert_eq!(chain.queues(), 0, "and then it is forgotten that it failed");
}

#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_are_failures_like_others() {
    let mut calls = 0;
    let scribe = Scribe::new(move |message| {
        calls += 1;
        match (message.to_string().as_str(), calls) {
            ("panics added 0", 1) => Answer::Panic,
            ("hangs added 0", 2) => Answer::Hang,
            _ => Answer::Succeed,
        }
    });
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("panics"));
    run_until_idle().await;
    chain.push(TestMessage::added("hangs"));
    tokio::time::sleep(Duration::from_secs(90)).await;
    let attempts = scribe.attempts();
    let of = |uid: &str| attempts.iter().filter(|attempt| attempt.starts_with(uid)).count();
    assert_eq!((of("panics"), of("hangs")), (2, 2), "both got another chance: {attempts:?}");
    assert_eq!(chain.queues(), 0);
}
