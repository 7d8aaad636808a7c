//! The observable state of the queues: the phase, start and last error of each message.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::message::TestMessage;
use proptest::prelude::*;
use staffetta_handler::testing::{Fault, NoMetrics};
use staffetta_handler::{Async, EventHandler, LastError, Message, OrderingKey, Phase, QueueEntry};
use tokio::time::Instant;

use crate::support::{Answer, Scribe, run_until_idle};

type Chain<H> = Async<TestMessage, H>;

/// The only message in the queues.
fn only<H: EventHandler<TestMessage>>(chain: &Chain<H>) -> QueueEntry<TestMessage> {
    let mut entries = chain.entries();
    assert_eq!(entries.len(), 1, "{entries:?}");
    entries.remove(0)
}

fn last_error<H: EventHandler<TestMessage>>(chain: &Chain<H>) -> LastError {
    only(chain).last_error().cloned().expect("it has failed")
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    run_until_idle().await;
}

/// Returns `true` if `at` is `seconds` after `since`, within a quarter.
fn about(at: Instant, since: Instant, seconds: f64) -> bool {
    ((at - since).as_secs_f64() - seconds).abs() <= seconds / 4.0
}

#[tokio::test(start_paused = true)]
async fn a_message_is_visible_in_every_phase_until_it_is_handled() {
    let mut answers = [
        Answer::Fail(Fault::transient("busy")),
        Answer::Hang,
        Answer::Fail(Fault::permanent("refused")),
        Answer::Hang,
        Answer::Succeed,
    ]
    .into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap());
    let chain = scribe.chain(false).closed();
    let pushed = Instant::now();
    chain.push(TestMessage::added("a"));
    after(5).await;
    let held = only(&chain);
    assert_eq!((held.phase, held.since, held.last_error()), (Phase::Held, pushed, None));
    assert_eq!(held.event, TestMessage::added("a"));

    chain.open();
    run_until_idle().await;
    let (failed, retrying) = (Instant::now(), only(&chain));
    let Phase::Retrying { at } = retrying.phase else { panic!("{retrying:?}") };
    assert!(about(at, failed, 1.0) && retrying.since == failed, "{retrying:?}");
    let busy = LastError { error: "busy".into(), reason: "HandlingFailed", attempts: 1, since: failed };
    assert_eq!(retrying.last_error(), Some(&busy));

    tokio::time::sleep_until(at).await;
    run_until_idle().await;
    let running = only(&chain);
    assert_eq!((running.phase, running.since), (Phase::Running, Instant::now()));
    assert_eq!(running.last_error(), Some(&busy), "it is not over before it is handled");

    after(60).await;
    let timed_out = last_error(&chain);
    assert_eq!(
        (&*timed_out.error, timed_out.attempts, timed_out.since),
        ("no answer within 60 s", 2, failed)
    );

    after(5).await;
    let (now, parked) = (Instant::now(), only(&chain));
    let Phase::Failed { at } = parked.phase else { panic!("{parked:?}") };
    assert!(about(at, parked.since, 60.0) && parked.since > failed && parked.since < now, "{parked:?}");
    assert_eq!(
        parked.last_error().map(|last_error| (&*last_error.error, last_error.attempts)),
        Some(("refused", 3))
    );

    tokio::time::sleep_until(at).await;
    run_until_idle().await;
    let running = only(&chain);
    assert_eq!((running.phase, running.since), (Phase::Running, Instant::now()));
    assert_eq!(
        running.last_error().map(|last_error| (last_error.attempts, last_error.since)),
        Some((3, failed))
    );
    after(65).await;
    assert!(chain.entries().is_empty(), "it was handled");
}

#[tokio::test(start_paused = true)]
async fn a_message_behind_its_own_key_or_without_a_permit_is_queued() {
    let chain = Scribe::new(|_| Answer::Hang).chain(false);
    for number in 0..9 {
        chain.push(TestMessage::added(&number.to_string()));
    }
    run_until_idle().await;
    let began = Instant::now();
    after(7).await;
    chain.push(TestMessage::modified("0", 1));
    after(2).await;
    let (running, mut queued): (Vec<_>, Vec<_>) =
        chain.entries().into_iter().partition(|entry| entry.phase == Phase::Running);
    assert_eq!(running.len(), 8, "there are 8 permits");
    assert!(running.iter().all(|entry| entry.since == began));
    assert!(queued.iter().all(|entry| entry.phase == Phase::Queued));
    queued.sort_by_key(|entry| entry.since);
    assert_eq!(queued.iter().map(|entry| entry.event.uid()).collect::<Vec<_>>(), ["8", "0"]);
    assert_eq!(queued[1].since, began + Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn an_error_is_forgotten_after_success() {
    let scribe = Scribe::new(|message| match message.version {
        1 => Answer::Succeed,
        _ => Answer::Fail(Fault::transient("busy")),
    });
    let chain = scribe.chain(false);
    chain.push(TestMessage::modified("a", 0));
    after(10).await;
    assert!(last_error(&chain).attempts > 2);
    chain.push(TestMessage::modified("a", 1));
    run_until_idle().await;
    assert!(chain.entries().is_empty());
    chain.push(TestMessage::modified("a", 2));
    run_until_idle().await;
    let last_error = last_error(&chain);
    assert_eq!((last_error.attempts, last_error.since), (1, Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_replaces_another_inherits_its_last_error() {
    for fault in [Fault::transient("busy"), Fault::permanent("busy")] {
        for newer in [TestMessage::modified("a", 1), TestMessage::deleted("a")] {
            let fault = fault.clone();
            let scribe = Scribe::new(move |message| match message.change() {
                staffetta_handler::Change::Added if message.version == 0 => Answer::Fail(fault.clone()),
                _ => Answer::Hang,
            });
            let chain = scribe.chain(false);
            let failed = Instant::now();
            chain.push(TestMessage::added("a"));
            run_until_idle().await;
            tokio::time::advance(Duration::from_millis(10)).await;
            chain.push(newer.clone());
            run_until_idle().await;
            let entry = only(&chain);
            assert_eq!(
                (entry.phase, entry.event.change()),
                (Phase::Running, scribe.last().change()),
                "{newer}"
            );
            let last_error = entry.last_error().expect("it is inherited");
            assert_eq!(
                (&*last_error.error, last_error.attempts, last_error.since),
                ("busy", 1, failed),
                "{newer}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn if_superseded_by_key_the_newest_message_inherits_the_last_error() {
    let scribe = Scribe::new(|message| match message.uid() {
        "service" => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Hang,
    });
    let policy = true;
    let chain = Async::new(
        scribe.wrapped(),
        policy,
        |_: &TestMessage| OrderingKey::of("one key"),
        Arc::new(NoMetrics),
    );
    chain.push(TestMessage::added("service"));
    run_until_idle().await;
    chain.push(TestMessage::added("slice"));
    run_until_idle().await;
    let entry = only(&chain);
    assert_eq!((entry.event.uid(), entry.phase), ("slice", Phase::Running));
    assert_eq!(entry.last_error().map(|last_error| &*last_error.error), Some("refused"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_recorded_like_other_errors() {
    let chain = Scribe::new(|_| Answer::Panic).chain(false);
    chain.push(TestMessage::added("a"));
    run_until_idle().await;
    let entry = only(&chain);
    assert!(matches!(entry.phase, Phase::Failed { .. }), "{entry:?}");
    assert_eq!(
        entry.last_error().map(|last_error| &*last_error.error),
        Some("the handler panicked: as ordered")
    );
}

#[test]
fn reading_the_state_neither_blocks_the_queues_nor_counts_a_message_twice() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let chain = Scribe::succeeding().chain(false);
        let feeder = chain.clone();
        let feeder = tokio::spawn(async move {
            for version in 0..20_000_u32 {
                feeder.push(TestMessage::added(&version.to_string()));
                if version.is_multiple_of(50) {
                    tokio::task::yield_now().await;
                }
            }
        });
        while !feeder.is_finished() {
            let seen = chain.entries().len();
            assert!(seen <= 20_000, "{seen}");
            tokio::task::yield_now().await;
        }
        chain.until_busy_at_most(0).await;
        assert_eq!(chain.entries().len(), 0);
    });
}

/// The results of the attempts of a message; afterwards it succeeds.
fn fates() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(0..4_u8, 0..4)
}

fn answer(fate: Option<u8>) -> Answer {
    match fate {
        None => Answer::Succeed,
        Some(0) => Answer::Fail(Fault::transient("busy")),
        Some(1) => Answer::Fail(Fault::permanent("refused")),
        Some(2) => Answer::Hang,
        Some(_) => Answer::Panic,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn each_unhandled_message_has_exactly_one_entry(
        steps in prop::collection::vec((0..4_u8, fates(), 0..50_u64), 1..60),
        opened in 0..60_usize,
    ) {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let plans: Vec<_> = steps.iter().map(|(_, fates, _)| fates.clone()).collect();
            let mut attempts = vec![0; plans.len()];
            let scribe = Scribe::new(move |message| {
                let place = message.uid().parse::<usize>().unwrap();
                let attempt = attempts[place];
                attempts[place] += 1;
                answer(plans[place].get(attempt).copied())
            });
            let policy = false;
            let keys: Vec<_> = steps.iter().map(|(key, ..)| *key).collect();
            let key = move |message: &TestMessage| OrderingKey::of(keys[message.uid().parse::<usize>().unwrap()]);
            let chain = Async::new(scribe.wrapped(), policy, key, Arc::new(NoMetrics)).closed();
            let mut pushed = BTreeSet::new();
            for (place, (_, _, seconds)) in steps.iter().enumerate() {
                if place == opened {
                    chain.open();
                }
                chain.push(TestMessage::added(&place.to_string()));
                pushed.insert(place.to_string());
                after(*seconds).await;
                let handled = scribe.handled();
                let entry: Vec<_> =
                    chain.entries().into_iter().map(|entry| entry.event.uid().to_owned()).collect();
                let expected: BTreeSet<_> = pushed.difference(&handled).cloned().collect();
                prop_assert_eq!(entry.len(), expected.len());
                prop_assert_eq!(chain.entries().len(), expected.len());
                prop_assert_eq!(entry.into_iter().collect::<BTreeSet<_>>(), expected);
            }
            Ok(())
        })?;
    }
}
