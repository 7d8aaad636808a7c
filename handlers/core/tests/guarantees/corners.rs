//! Combinations of several guarantees.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::{HandlerFn, TestMessage};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use staffetta_handler::testing::{Fault, LogReport, NoMetrics, pod};
use staffetta_handler::{
    Action, AnyEvent, Async, BackoffPolicy, Change, Context, Event, EventHandler, HandlerError, Message,
    OrderingKey, Tombstone,
};

use crate::support::{Answer, REQUEUE, Scribe, run_until_idle};

fn one_key(_: &TestMessage) -> OrderingKey {
    OrderingKey::of("one key")
}

#[tokio::test(start_paused = true)]
async fn a_failed_request_for_deletion_is_not_delivered_again_after_the_deletion() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let handler = SlowAndThen(move |event: &AnyEvent| {
        let mut seen = seen.lock().unwrap();
        seen.push(event.change());
        if seen.len() == 1 { Err(Fault::permanent("refused").into()) } else { Ok(()) }
    });
    let links = handler.log_exceptions(Arc::new(LogReport::new("handler")), REQUEUE);
    let chain = Async::new(links, false, |_: &AnyEvent| OrderingKey::of("a"), Arc::new(NoMetrics));
    let mut terminating = pod("default", "a");
    terminating.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
    let object = Arc::new(terminating);
    chain.push(Event::<Pod>::Modified(Arc::clone(&object)).erase());
    run_until_idle().await;
    chain.push(Event::<Pod>::Deleted(Tombstone::Last(object)).erase());
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(*log.lock().unwrap(), [Change::Modified, Change::Deleted]);
}

/// A handler that calls the closure and takes a second.
struct SlowAndThen<F>(F);

impl<E: Message, F> EventHandler<E> for SlowAndThen<F>
where
    F: Fn(&E) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, event: &E, _: &Context<'_>) -> Result<Action, HandlerError> {
        let result = (self.0)(event);
        tokio::time::sleep(Duration::from_secs(1)).await;
        result.map(|()| Action::done())
    }
}

#[tokio::test(start_paused = true)]
async fn a_declined_event_ends_the_retries_of_its_object_except_those_of_a_deletion() {
    let (busy, refused) = (Fault::transient("busy"), Fault::permanent("refused"));
    for (message, fault, is_repeated) in [
        (TestMessage::added("a"), busy.clone(), false),
        (TestMessage::added("a"), refused.clone(), false),
        (TestMessage::terminating("a", 0), busy, true),
        (TestMessage::deleted("a"), refused, true),
    ] {
        let scribe = Scribe::new(move |_| Answer::Fail(fault.clone()));
        let chain = Async::new(scribe.wrapped(), false, one_key, Arc::new(NoMetrics));
        chain.push(message.clone());
        run_until_idle().await;
        chain.decline(&TestMessage::modified("b", 1));
        run_until_idle().await;
        assert_eq!(chain.queues(), 1, "{message}: another object was declined");
        chain.decline(&TestMessage::modified("a", 1));
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(
            (scribe.attempts().len() > 1, chain.queues()),
            (is_repeated, is_repeated.into()),
            "{message}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_declined_during_an_attempt_is_not_retried_unless_a_newer_event_is_accepted() {
    for (fault, is_accepted) in [
        (Fault::transient("busy"), false),
        (Fault::permanent("refused"), false),
        (Fault::transient("busy"), true),
        (Fault::permanent("refused"), true),
    ] {
        let text = fault.to_string();
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let links = SlowAndThen(move |_: &TestMessage| {
            counter.fetch_add(1, Ordering::Relaxed);
            Err(fault.clone().into())
        });
        let report = Arc::new(LogReport::new("handler"));
        let links = links.retry(BackoffPolicy::default()).log_exceptions(report, REQUEUE);
        let chain = Async::new(links, false, one_key, Arc::new(NoMetrics));
        chain.push(TestMessage::added("a"));
        run_until_idle().await;
        chain.decline(&TestMessage::modified("a", 1));
        if is_accepted {
            chain.push(TestMessage::modified("a", 2));
        }
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let is_repeated = calls.load(Ordering::Relaxed) > 1;
        assert_eq!((is_repeated, chain.queues()), (is_accepted, is_accepted.into()), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_drain_handles_messages_queued_behind_a_sleeping_retry() {
    let scribe = Scribe::new(|message| match message.to_string().as_str() {
        "a deleted 0" => Answer::Fail(Fault::transient("busy")),
        _ => Answer::Succeed,
    });
    let chain = Async::new(scribe.wrapped(), false, one_key, Arc::new(NoMetrics));
    chain.push(TestMessage::deleted("a"));
    run_until_idle().await;
    chain.push(TestMessage::added("b"));
    assert!(chain.drain(Duration::from_secs(5)).await);
    assert_eq!(scribe.attempts(), ["a deleted 0", "b added 0"]);
    assert_eq!(chain.queues(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropped_queues_handle_nothing_more() {
    let scribe = Scribe::new(|_| Answer::Fail(Fault::permanent("refused")));
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("a"));
    run_until_idle().await;
    chain.push(TestMessage::added("waits"));
    drop(chain);
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!(scribe.attempts(), ["a added 0"]);
}

#[tokio::test(start_paused = true)]
async fn held_messages_do_not_delay_a_drain() {
    let scribe = Scribe::succeeding();
    let chain = scribe.chain(false).closed();
    chain.push(TestMessage::added("a"));
    let before = tokio::time::Instant::now();
    assert!(chain.drain(Duration::from_secs(20)).await);
    assert_eq!((before.elapsed(), chain.queues(), scribe.attempts().len()), (Duration::ZERO, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_panic_that_no_wrapper_ends_does_not_block_its_key() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&calls);
    let panics = HandlerFn(move |_: &TestMessage| {
        assert!(counter.fetch_add(1, Ordering::SeqCst) > 0, "the first call panics");
        Ok(())
    });
    let chain = Async::new(
        panics,
        false,
        |message: &TestMessage| OrderingKey::of(message.uid()),
        Arc::new(NoMetrics),
    );
    chain.push(TestMessage::added("a"));
    run_until_idle().await;
    chain.push(TestMessage::modified("a", 1));
    run_until_idle().await;
    assert_eq!((calls.load(Ordering::SeqCst), chain.queues()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_busy_key_does_not_starve_a_requeued_message() {
    let scribe = Scribe::new(|message| match message.to_string().as_str() {
        "a added 0" => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Succeed,
    });
    let chain = Async::new(scribe.wrapped(), false, one_key, Arc::new(NoMetrics));
    chain.push(TestMessage::added("a"));
    run_until_idle().await;
    for version in 0..10_000 {
        chain.push(TestMessage::modified("b", version));
        tokio::time::advance(Duration::from_millis(10)).await;
        chain.push(TestMessage::modified("c", version));
    }
    let attempts = scribe.attempts().iter().filter(|attempt| attempt.starts_with("a ")).count();
    assert!(attempts >= 2, "{attempts} attempts in 100 s, though it was to be tried again after 60");
}

#[tokio::test(start_paused = true)]
async fn deletions_of_one_object_do_not_pile_up() {
    let scribe = Scribe::new(|_| Answer::Fail(Fault::transient("busy")));
    let chain = scribe.chain(false);
    for _ in 0..100 {
        chain.push(TestMessage::deleted("a"));
        run_until_idle().await;
    }
    let before = scribe.attempts().len();
    assert!(chain.drain(Duration::from_secs(5)).await);
    assert!(scribe.attempts().len() - before <= 1, "one at most waited behind the first");
}

#[tokio::test(start_paused = true)]
async fn a_new_key_starts_at_once_after_the_queues_were_opened() {
    let scribe = Scribe::succeeding();
    let chain = scribe.chain(false).closed();
    chain.open();
    chain.push(TestMessage::added("a"));
    chain.until_busy_at_most(0).await;
    assert_eq!(scribe.attempts(), ["a added 0"]);
}

#[tokio::test(start_paused = true)]
async fn if_superseded_by_key_any_newer_message_of_the_key_replaces_a_failed_one() {
    let scribe = Scribe::new(|message| match message.uid() {
        "service" => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Succeed,
    });
    let policy = true;
    let chain = Async::new(scribe.wrapped(), policy, one_key, Arc::new(NoMetrics));
    chain.push(TestMessage::added("service"));
    run_until_idle().await;
    chain.push(TestMessage::added("slice"));
    run_until_idle().await;
    assert_eq!(chain.queues(), 0, "nothing waits to be pushed again");
}

#[tokio::test(start_paused = true)]
async fn the_back_off_of_a_message_is_not_passed_to_another_object() {
    let scribe = Scribe::new(|_| Answer::Fail(Fault::transient("busy")));
    let chain = Async::new(scribe.wrapped(), false, one_key, Arc::new(NoMetrics));
    chain.push(TestMessage::modified("a", 0));
    tokio::time::sleep(Duration::from_secs(20)).await;
    chain.push(TestMessage::modified("b", 0));
    chain.push(TestMessage::modified("a", 1));
    chain.push(TestMessage::modified("a", 2));
    tokio::time::sleep(Duration::from_secs(4)).await;
    let attempts = scribe.attempts();
    let of = |uid| attempts.iter().filter(|attempt| attempt.starts_with(uid)).count();
    assert!(of("b ") > 2, "b begins with short waits, whatever became of a: {attempts:?}");
    assert_eq!(of("a modified 2"), 1, "which continues with its own: {attempts:?}");
}
