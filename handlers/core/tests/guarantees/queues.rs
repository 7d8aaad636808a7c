//! Guarantees 2 and 4: no object delays another, and no message is lost when queues are created and removed.

use std::time::Duration;

use crate::message::TestMessage;
use staffetta_handler::testing::{Fault, NoMetrics};
use staffetta_handler::{Async, Message, OrderingKey};
use std::sync::Arc;

use crate::support::{Answer, Scribe, run_until_idle};

#[test]
fn a_message_that_races_with_the_removal_of_its_queue_is_not_lost() {
    const THREADS: u64 = 4;
    const EACH: u64 = 5_000;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let scribe = Scribe::succeeding();
        // Two keys only, so that queues end and begin all the time while others push.
        let key = |message: &TestMessage| OrderingKey::of(message.version % 2);
        let chain = Async::new(scribe.wrapped(), false, key, Arc::new(NoMetrics));
        let feeders = (0..THREADS).map(|thread| {
            let chain = chain.clone();
            tokio::spawn(async move {
                for version in 0..EACH {
                    chain.push(TestMessage::modified(&format!("{thread}-{version}"), version));
                    tokio::task::yield_now().await;
                }
            })
        });
        for feeder in feeders.collect::<Vec<_>>() {
            feeder.await.unwrap();
        }
        chain.until_busy_at_most(0).await;
        assert_eq!(scribe.attempts().len() as u64, THREADS * EACH);
        assert_eq!((scribe.overlaps(), chain.queues()), (0, 0));
    });
}

#[tokio::test(start_paused = true)]
async fn an_object_that_hangs_or_fails_does_not_delay_others() {
    let scribe = Scribe::new(|message| match message.to_string().as_str() {
        "hangs added 0" => Answer::Hang,
        "fails added 0" => Answer::Fail(Fault::transient("busy")),
        _ => Answer::Succeed,
    });
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("hangs"));
    chain.push(TestMessage::added("fails"));
    chain.push(TestMessage::added("works"));
    run_until_idle().await;
    assert!(scribe.attempts().contains(&"works added 0".to_owned()));
    assert_eq!(
        chain.busy(),
        1,
        "only the one that hangs is busy: a sleeping retry waits for nothing but time"
    );
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_retry_holds_no_permit() {
    let scribe = Scribe::new(|message| match message.to_string() {
        text if text.starts_with("fails") => Answer::Fail(Fault::transient("busy")),
        _ => Answer::Succeed,
    });
    let chain = scribe.chain(false);
    for number in 0..50 {
        chain.push(TestMessage::added(&format!("fails{number}")));
    }
    run_until_idle().await;
    chain.push(TestMessage::added("works"));
    run_until_idle().await;
    assert!(scribe.attempts().contains(&"works added 0".to_owned()), "50 sleep, and there are 8 permits");
}

#[tokio::test(start_paused = true)]
async fn an_idle_key_starts_at_once() {
    let scribe = Scribe::succeeding();
    let chain = scribe.chain(false);
    let before = tokio::time::Instant::now();
    for version in 1..=10 {
        chain.push(TestMessage::modified("a", version));
        chain.until_busy_at_most(0).await;
    }
    assert_eq!(scribe.attempts().len(), 10);
    assert_eq!(before.elapsed(), Duration::ZERO, "no time passed on the paused clock");
}

#[tokio::test(start_paused = true)]
async fn closed_queues_hold_messages_until_they_are_opened() {
    let scribe = Scribe::succeeding();
    let chain = scribe.chain(false).closed();
    chain.push(TestMessage::added("a"));
    chain.push(TestMessage::modified("a", 1));
    chain.push(TestMessage::modified("a", 2));
    chain.push(TestMessage::added("b"));
    run_until_idle().await;
    assert!(scribe.attempts().is_empty());
    chain.open();
    chain.until_busy_at_most(0).await;
    let mut attempts = scribe.attempts();
    attempts.sort();
    assert_eq!(attempts, ["a added 0", "a modified 2", "b added 0"]);
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_running_messages_and_ends_sleeping_ones() {
    let scribe = Scribe::new(|message| match message.uid() {
        "fails" | "fails late" => Answer::Fail(Fault::transient("busy")),
        "broken" => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Succeed,
    });
    let chain = scribe.chain(false);
    for uid in ["works", "fails", "broken"] {
        chain.push(TestMessage::added(uid));
    }
    run_until_idle().await;
    chain.push(TestMessage::added("fails late"));
    assert!(chain.drain(Duration::from_secs(5)).await);
    run_until_idle().await;
    assert_eq!((scribe.attempts().len(), chain.queues()), (4, 0));
    let mut left: Vec<_> = chain.entries().into_iter().map(|entry| entry.event.uid().to_owned()).collect();
    left.sort();
    assert_eq!(left, ["broken", "fails", "fails late"], "what was not handled is shown");

    let stuck = Scribe::new(|_| Answer::Hang).chain(false);
    stuck.push(TestMessage::added("hangs"));
    run_until_idle().await;
    assert!(!stuck.drain(Duration::from_secs(5)).await, "what hangs does not end in time, and that is said");
}

#[tokio::test(start_paused = true)]
async fn a_halt_discards_queued_messages_and_leaves_no_timer() {
    let scribe = Scribe::new(|message| match message.to_string().as_str() {
        "hangs added 0" => Answer::Hang,
        "fails added 0" => Answer::Fail(Fault::transient("busy")),
        "broken added 0" => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Succeed,
    });
    let chain = scribe.chain(false);
    for uid in ["hangs", "fails", "broken"] {
        chain.push(TestMessage::added(uid));
    }
    run_until_idle().await;
    chain.push(TestMessage::deleted("hangs"));
    assert!(chain.halt(Duration::from_secs(70)).await, "what hangs is interrupted after a minute");
    tokio::time::sleep(Duration::from_secs(86_400)).await;
    assert_eq!((scribe.attempts().len(), chain.queues()), (3, 0), "nothing is begun any more");
}
