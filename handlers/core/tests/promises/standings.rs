//! What the queues tell of the messages in them: where each stands, since when, and what went wrong with it.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use staffetta_handler::testing::{Fault, TestMessage};
use staffetta_handler::{
    Async, EventHandler, Message, OrderingKey, Phase, QueuePolicy, Standing, Superseded, Tally, Trouble,
};
use tokio::time::Instant;

use crate::support::{Answer, POLICY, Scribe, settle};

type Chain<H> = Async<TestMessage, H>;

/// The one message that the queues hold.
fn only<H: EventHandler<TestMessage>>(chain: &Chain<H>) -> Standing {
    let mut standings = chain.standings(usize::MAX);
    assert_eq!(standings.len(), 1, "{standings:?}");
    standings.remove(0)
}

fn trouble<H: EventHandler<TestMessage>>(chain: &Chain<H>) -> Trouble {
    only(chain).trouble.expect("it is in trouble")
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    settle().await;
}

/// Whether `at` is `seconds` after `since`, give or take a quarter.
fn about(at: Instant, since: Instant, seconds: f64) -> bool {
    ((at - since).as_secs_f64() - seconds).abs() <= seconds / 4.0
}

#[tokio::test(start_paused = true)]
async fn a_message_is_seen_in_every_phase_until_it_is_handled() {
    let mut answers = [
        Answer::Fail(Fault::transient("busy")),
        Answer::Hang,
        Answer::Fail(Fault::permanent("refused")),
        Answer::Hang,
        Answer::Succeed,
    ]
    .into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap());
    let chain = scribe.chain(POLICY).closed();
    let pushed = Instant::now();
    chain.push(TestMessage::added("a"));
    after(5).await;
    let held = only(&chain);
    assert_eq!((held.phase, held.since, held.trouble), (Phase::Held, pushed, None));
    assert_eq!((&*held.kind, &*held.name, &*held.uid), ("Test", "a", "a"));

    chain.open();
    settle().await;
    let (failed, retrying) = (Instant::now(), only(&chain));
    let Phase::Retrying { at } = retrying.phase else { panic!("{retrying:?}") };
    assert!(about(at, failed, 1.0) && retrying.since == failed, "{retrying:?}");
    let busy = Trouble { error: "busy".into(), reason: "HandlingFailed", attempts: 1, since: failed };
    assert_eq!(retrying.trouble.as_ref(), Some(&busy));

    tokio::time::sleep_until(at).await;
    settle().await;
    let running = only(&chain);
    assert_eq!((running.phase, running.since), (Phase::Running, Instant::now()));
    assert_eq!(running.trouble, Some(busy), "it is not over before it is handled");

    after(60).await;
    let timed_out = trouble(&chain);
    assert_eq!(
        (&*timed_out.error, timed_out.attempts, timed_out.since),
        ("no answer within 60 s", 2, failed)
    );

    after(5).await;
    let (now, parked) = (Instant::now(), only(&chain));
    let Phase::Failed { at } = parked.phase else { panic!("{parked:?}") };
    assert!(about(at, parked.since, 60.0) && parked.since > failed && parked.since < now, "{parked:?}");
    assert_eq!(
        parked.trouble.as_ref().map(|trouble| (&*trouble.error, trouble.attempts)),
        Some(("refused", 3))
    );

    tokio::time::sleep_until(at).await;
    settle().await;
    let running = only(&chain);
    assert_eq!((running.phase, running.since), (Phase::Running, Instant::now()));
    assert_eq!(running.trouble.map(|trouble| (trouble.attempts, trouble.since)), Some((3, failed)));
    after(65).await;
    assert!(chain.standings(usize::MAX).is_empty(), "it was handled");
    assert_eq!(chain.tally(), Tally::default());
}

#[tokio::test(start_paused = true)]
async fn what_waits_behind_its_own_key_or_for_a_permit_is_queued() {
    let chain = Scribe::new(|_| Answer::Hang).chain(POLICY);
    for number in 0..9 {
        chain.push(TestMessage::added(&number.to_string()));
    }
    settle().await;
    let began = Instant::now();
    after(7).await;
    chain.push(TestMessage::modified("0", 1));
    after(2).await;
    let tally = chain.tally();
    assert_eq!((tally.running, tally.queued, tally.total()), (8, 2, 10), "there are 8 permits");
    assert_eq!((tally.oldest_running, tally.unfinished), (Some(began), Duration::from_secs(8 * 9)));
    let queued: Vec<_> =
        chain.standings(usize::MAX).into_iter().filter(|standing| standing.phase == Phase::Queued).collect();
    assert_eq!(queued.iter().map(|standing| &*standing.uid).collect::<Vec<_>>(), ["8", "0"]);
    assert_eq!(queued[1].since, began + Duration::from_secs(7));
}

#[tokio::test(start_paused = true)]
async fn a_trouble_that_ends_with_success_is_forgotten() {
    let scribe = Scribe::new(|message| match message.version {
        1 => Answer::Succeed,
        _ => Answer::Fail(Fault::transient("busy")),
    });
    let chain = scribe.chain(POLICY);
    chain.push(TestMessage::modified("a", 0));
    after(10).await;
    assert!(trouble(&chain).attempts > 2);
    chain.push(TestMessage::modified("a", 1));
    settle().await;
    assert!(chain.standings(usize::MAX).is_empty());
    chain.push(TestMessage::modified("a", 2));
    settle().await;
    let trouble = trouble(&chain);
    assert_eq!((trouble.attempts, trouble.since), (1, Instant::now()));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_stands_for_another_inherits_its_trouble() {
    for fault in [Fault::transient("busy"), Fault::permanent("busy")] {
        for newer in [TestMessage::modified("a", 1), TestMessage::deleted("a")] {
            let fault = fault.clone();
            let scribe = Scribe::new(move |message| match message.change() {
                staffetta_handler::Change::Added if message.version == 0 => Answer::Fail(fault.clone()),
                _ => Answer::Hang,
            });
            let chain = scribe.chain(POLICY);
            let failed = Instant::now();
            chain.push(TestMessage::added("a"));
            settle().await;
            tokio::time::advance(Duration::from_millis(10)).await;
            chain.push(newer.clone());
            settle().await;
            let standing = only(&chain);
            assert_eq!(
                (standing.phase, standing.change),
                (Phase::Running, scribe.last().change()),
                "{newer}"
            );
            let trouble = standing.trouble.expect("it is inherited");
            assert_eq!((&*trouble.error, trouble.attempts, trouble.since), ("busy", 1, failed), "{newer}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_key_counts_as_a_whole_its_newest_message_inherits_the_trouble() {
    let scribe = Scribe::new(|message| match message.uid() {
        "service" => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Hang,
    });
    let policy = QueuePolicy { superseded: Superseded::ByAnyOfItsKey, ..POLICY };
    let chain = Async::new(scribe.link(), policy, |_: &TestMessage| OrderingKey::of("one key"));
    chain.push(TestMessage::added("service"));
    settle().await;
    chain.push(TestMessage::added("slice"));
    settle().await;
    let standing = only(&chain);
    assert_eq!((&*standing.uid, standing.phase), ("slice", Phase::Running));
    assert_eq!(standing.trouble.map(|trouble| trouble.error), Some("refused".into()));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_trouble_like_others() {
    let chain = Scribe::new(|_| Answer::Panic).chain(POLICY);
    chain.push(TestMessage::added("a"));
    settle().await;
    let standing = only(&chain);
    assert!(matches!(standing.phase, Phase::Failed { .. }), "{standing:?}");
    assert_eq!(
        standing.trouble.map(|trouble| trouble.error),
        Some("the handler panicked: as ordered".into())
    );
}

#[tokio::test(start_paused = true)]
async fn those_in_trouble_come_first_and_of_all_others_those_that_wait_longest() {
    let scribe = Scribe::new(|message| match message.uid() {
        uid if uid.starts_with("fails") => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Hang,
    });
    let chain = scribe.chain(POLICY);
    for uid in ["b", "c", "fails first", "a", "fails later"] {
        chain.push(TestMessage::added(uid));
        after(1).await;
    }
    let told =
        |limit| -> Vec<_> { chain.standings(limit).into_iter().map(|standing| standing.uid).collect() };
    assert_eq!(told(usize::MAX), ["fails first", "fails later", "b", "c", "a"]);
    assert_eq!(told(3), ["fails first", "fails later", "b"]);
    assert!(told(0).is_empty());
}

#[test]
fn who_looks_holds_up_nobody_and_sees_no_message_twice() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let chain = Scribe::content().chain(QueuePolicy { coalesce: false, depth: usize::MAX, ..POLICY });
        let feeder = chain.clone();
        let feeder = tokio::spawn(async move {
            for version in 0..20_000 {
                feeder.push(TestMessage::modified(&(version % 100).to_string(), version));
                if version.is_multiple_of(50) {
                    tokio::task::yield_now().await;
                }
            }
        });
        while !feeder.is_finished() {
            let seen = chain.tally().total();
            assert!(seen <= 20_000, "{seen}");
            assert!(chain.standings(10).len() <= 10);
            tokio::task::yield_now().await;
        }
        chain.fallen_to(0).await;
        assert_eq!(chain.tally(), Tally::default());
    });
}

/// What a message meets at each attempt; afterwards it is handled.
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
    fn each_message_that_is_not_handled_stands_somewhere_once(
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
            let policy = QueuePolicy { coalesce: false, depth: usize::MAX, ..POLICY };
            let keys: Vec<_> = steps.iter().map(|(key, ..)| *key).collect();
            let key = move |message: &TestMessage| OrderingKey::of(keys[message.uid().parse::<usize>().unwrap()]);
            let chain = Async::new(scribe.link(), policy, key).closed();
            let mut pushed = BTreeSet::new();
            for (place, (_, _, seconds)) in steps.iter().enumerate() {
                if place == opened {
                    chain.open();
                }
                chain.push(TestMessage::added(&place.to_string()));
                pushed.insert(place.to_string());
                after(*seconds).await;
                let handled = scribe.handled();
                let standing: Vec<_> =
                    chain.standings(usize::MAX).into_iter().map(|standing| standing.uid).collect();
                let expected: BTreeSet<_> = pushed.difference(&handled).cloned().collect();
                prop_assert_eq!(standing.len(), expected.len());
                prop_assert_eq!(chain.tally().total(), expected.len());
                prop_assert_eq!(standing.into_iter().collect::<BTreeSet<_>>(), expected);
            }
            Ok(())
        })?;
    }
}
