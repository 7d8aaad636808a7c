//! Guarantee 7: when what failed works again, everything that waits for it is handled within a minute.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::message::TestMessage;
use staffetta_handler::Pending;
use staffetta_handler::testing::Fault;
use tokio::time::Instant;

use crate::support::{Answer, Scribe};

/// A driver that can be down.
#[derive(Clone, Default)]
struct Driver {
    down: Arc<AtomicBool>,
    calls: Arc<AtomicU32>,
}

impl Driver {
    /// Returns a handler that calls the driver for each message. Objects whose UID begins with `broken` fail in any case.
    fn scribe(&self) -> Scribe {
        let driver = self.clone();
        Scribe::new(move |message| {
            driver.calls.fetch_add(1, SeqCst);
            match message.to_string() {
                text if text.starts_with("broken") => Answer::Fail(Fault::transient("not this one")),
                text if text.starts_with("refused") => Answer::Fail(Fault::permanent("refused")),
                _ if driver.down.load(SeqCst) => Answer::Fail(Fault::transient("down")),
                _ => Answer::Succeed,
            }
        })
    }

    /// Returns the number of calls within this time.
    async fn calls_within(&self, time: Duration) -> u32 {
        let before = self.calls.load(SeqCst);
        tokio::time::sleep(time).await;
        self.calls.load(SeqCst) - before
    }
}

/// Handles objects with these UIDs while the driver is down for `outage`. Returns the time from then until nothing waits any more except
/// objects that fail for a reason of their own.
async fn recovery_time(outage: Duration, objects: &[String]) -> Duration {
    let driver = Driver::default();
    driver.down.store(true, SeqCst);
    let scribe = driver.scribe();
    let chain = scribe.chain(false);
    for uid in objects {
        chain.push(TestMessage::added(uid));
    }
    tokio::time::sleep(outage).await;
    driver.down.store(false, SeqCst);
    let end = Instant::now();
    let healthy = objects.iter().filter(|uid| uid.starts_with("pod")).count();
    while scribe.handled().len() < healthy {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    end.elapsed()
}

fn pods(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("pod{number}")).collect()
}

#[tokio::test(start_paused = true)]
async fn everything_that_waits_is_handled_within_a_minute_of_the_end_of_an_outage() {
    for minutes in [1, 12, 30, 300] {
        for count in [1, 2, 100] {
            let time = recovery_time(Duration::from_secs(60 * minutes), &pods(count)).await;
            assert!(time < Duration::from_secs(45), "{count} after {minutes} min: {} s", time.as_secs());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_keeps_failing_does_not_delay_the_others_after_an_outage() {
    for (broken, healthy) in [(1, 20), (2, 20), (50, 950), (500, 500)] {
        let objects = [(0..broken).map(|number| format!("broken{number}")).collect(), pods(healthy)].concat();
        let time = recovery_time(Duration::from_secs(3600), &objects).await;
        assert!(time < Duration::from_secs(60), "{broken}: {} s", time.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_outage_costs_few_calls_and_what_is_refused_is_not_tried_earlier() {
    let driver = Driver::default();
    driver.down.store(true, SeqCst);
    let chain = driver.scribe().chain(false);
    for uid in pods(100) {
        chain.push(TestMessage::added(&uid));
    }
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let calls = driver.calls_within(Duration::from_secs(600)).await;
    // About 1,200 of their own back-off, and ten probes in each 15 s.
    assert!((60..2000).contains(&calls), "{calls} calls of 100 objects in 10 min");

    let driver = Driver::default();
    let scribe = driver.scribe();
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("refused"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    for uid in pods(10) {
        driver.down.store(true, SeqCst);
        chain.push(TestMessage::added(&uid));
        tokio::time::sleep(Duration::from_secs(10)).await;
        driver.down.store(false, SeqCst);
        tokio::time::sleep(Duration::from_secs(30)).await;
    }
    assert_eq!(scribe.handled().len(), 10);
    let refused = scribe.attempts().iter().filter(|attempt| attempt.starts_with("refused")).count();
    assert!(refused < 9, "{refused} attempts, as if nothing else had failed");
}

#[tokio::test(start_paused = true)]
async fn an_error_that_only_waits_ends_no_outage_and_the_success_after_it_does() {
    let mut attempts = 0;
    let scribe = Scribe::new(move |message| {
        let is_down = message.to_string().starts_with("down");
        attempts += u32::from(!is_down);
        match attempts {
            _ if is_down => Answer::Fail(Fault::transient("down").after(Duration::from_secs(300))),
            ..=1 => Answer::Fail(Fault::transient("down")),
            2..=60 => Answer::Fail(
                Fault::transient("not yet").pending(Pending::default()).after(Duration::from_secs(1)),
            ),
            _ => Answer::Succeed,
        }
    });
    let chain = scribe.chain(false);
    for uid in ["down", "waits"] {
        chain.push(TestMessage::added(uid));
    }
    let woken = || scribe.attempts().iter().filter(|attempt| attempt.starts_with("down")).count() - 1;
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert!(scribe.attempts().len() > 20 && scribe.handled().is_empty());
    assert_eq!(woken(), 0, "what waits has not reached the driver");
    tokio::time::sleep(Duration::from_secs(45)).await;
    assert_eq!((scribe.handled().len(), woken()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn triggers_of_the_only_object_that_fails_do_not_postpone_its_probe() {
    let scribe = Scribe::new(|message| {
        if message.to_string().contains("trigger") {
            Answer::Succeed
        } else {
            Answer::Fail(Fault::transient("down"))
        }
    });
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("a"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let before = scribe.attempts().len();
    for version in 0..12 {
        chain.push(TestMessage::trigger("a", version));
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let probes = scribe.attempts().len() - before - 12;
    assert!((3..=5).contains(&probes), "{probes} in a minute");
}
