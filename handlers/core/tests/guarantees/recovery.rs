//! Reports of recovery, and the object on which a failure was reported.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::TestMessage;
use k8s_openapi::api::core::v1::Pod;
use staffetta_handler::testing::{Fault, NoMetrics};
use staffetta_handler::{Async, EventHandler, Failure, Failures, Identity, Message, OrderingKey, Report};

use crate::support::{Answer, Scribe, run_until_idle};
use tokio::time::Instant;

#[derive(Default)]
struct Reported(Mutex<Vec<String>>);

impl Reported {
    fn note(&self, what: &str, event: &TestMessage, failures: &Failures) {
        let reports =
            failures.reported_on().map(|object| format!(", told at {}", object.name)).unwrap_or_default();
        self.0.lock().unwrap().push(format!("{event} {what} {}{reports}", failures.attempts()));
    }
}

impl Report<TestMessage> for Reported {
    fn failed(&self, event: &TestMessage, _: &dyn Failure, _: Duration, failures: &mut Failures) {
        self.note("failed", event, failures);
    }

    fn will_retry(&self, event: &TestMessage, _: &dyn Failure, _: Duration, failures: &mut Failures) {
        let was_reported = failures.reported_on().is_some();
        self.note("will retry", event, failures);
        let identity = Identity::of::<Pod>(None, format!("attempt {}", failures.attempts()), String::new());
        assert_eq!(failures.set_reported_on(identity), !was_reported, "only the first time is news");
    }

    fn recovered(&self, event: &TestMessage, failures: &Failures) {
        self.note("recovered", event, failures);
    }
}

struct World<H> {
    chain: Async<TestMessage, H>,
    reported: Arc<Reported>,
}

fn world(scribe: &Scribe) -> World<impl EventHandler<TestMessage>> {
    let reported = Arc::<Reported>::default();
    let links = scribe.reported(Arc::clone(&reported) as Arc<dyn Report<TestMessage>>);
    World {
        chain: Async::new(links, false, |message| OrderingKey::of(message.uid()), Arc::new(NoMetrics)),
        reported,
    }
}

impl<H> World<H> {
    fn reports(&self) -> Vec<String> {
        std::mem::take(&mut self.reported.0.lock().unwrap())
    }
}

/// Fails the attempts with `answers`, then succeeds.
fn scribe(answers: impl IntoIterator<Item = Fault>) -> Scribe {
    let mut answers: VecDeque<_> = answers.into_iter().collect();
    Scribe::new(move |_| answers.pop_front().map_or(Answer::Succeed, Answer::Fail))
}

#[tokio::test(start_paused = true)]
async fn recovery_is_reported_once_after_retries_and_after_a_final_failure() {
    let (busy, refused) = (Fault::transient("busy"), Fault::permanent("refused"));
    let world = world(&scribe([busy.clone(), busy, refused]));
    world.chain.push(TestMessage::added("a"));
    tokio::time::sleep(Duration::from_secs(30)).await;
    let reports = [
        "a added 0 will retry 1",
        "a added 0 will retry 2, told at attempt 1",
        "a added 0 failed 3, told at attempt 1",
    ];
    assert_eq!(world.reports(), reports);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.reports(), ["a added 0 recovered 3, told at attempt 1"]);
    world.chain.push(TestMessage::modified("a", 1));
    run_until_idle().await;
    assert!(world.reports().is_empty(), "nothing was wrong");
}

#[tokio::test(start_paused = true)]
async fn a_superseded_message_is_no_recovery() {
    let world = world(&scribe([Fault::transient("busy"), Fault::transient("busy")]));
    world.chain.push(TestMessage::added("a"));
    run_until_idle().await;
    world.chain.push(TestMessage::modified("a", 1));
    run_until_idle().await;
    assert_eq!(world.reports(), ["a added 0 will retry 1", "a added 1 will retry 2, told at attempt 1"]);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(world.reports(), ["a added 1 recovered 2, told at attempt 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_no_recovery() {
    let world = world(&scribe([Fault::transient("busy")]));
    world.chain.push(TestMessage::added("a"));
    run_until_idle().await;
    assert!(world.chain.drain(Duration::from_secs(1)).await);
    assert_eq!(world.reports(), ["a added 0 will retry 1"]);
}

#[tokio::test(start_paused = true)]
async fn the_success_of_a_trigger_is_no_recovery_while_the_event_of_its_object_fails() {
    let mut answers = [Some("trigger"), Some("modified"), None, None].into_iter();
    let world = world(&Scribe::new(move |message| match answers.next().flatten() {
        Some(form) if message.to_string().contains(form) => Answer::Fail(Fault::permanent("refused")),
        _ => Answer::Succeed,
    }));
    let message = |message: TestMessage| async {
        world.chain.push(message);
        run_until_idle().await;
    };
    message(TestMessage::trigger("a", 1)).await;
    message(TestMessage::modified("a", 1)).await;
    assert_eq!(world.reports(), ["a trigger 1 failed 1", "a modified 1 failed 1"]);
    message(TestMessage::trigger("a", 2)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(world.reports().is_empty(), "the event still fails");
    tokio::time::sleep(Duration::from_secs(69)).await;
    assert_eq!(world.reports(), ["a modified 1 recovered 1"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_trigger_finds_ends_the_back_off_of_its_object_and_a_storm_of_triggers_does_not() {
    let up = Arc::new(AtomicBool::new(false));
    let is_up = Arc::clone(&up);
    let scribe = Scribe::new(move |_| {
        if is_up.load(SeqCst) {
            Answer::Succeed
        } else {
            Answer::Fail(Fault::transient("not there").after(Duration::from_secs(300)))
        }
    });
    let chain = scribe.chain(false);
    chain.push(TestMessage::added("a"));
    tokio::time::sleep(Duration::from_secs(60)).await;
    for version in 0..10_000 {
        chain.push(TestMessage::trigger("a", version));
        if version % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    assert!(scribe.attempts().len() < 5, "{:?}", scribe.attempts());

    up.store(true, SeqCst);
    let begin = Instant::now();
    chain.push(TestMessage::trigger("a", 10_000));
    while !chain.entries().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let added = TestMessage::added("a").to_string();
    let attempts = scribe.attempts();
    assert_eq!(attempts.iter().filter(|attempt| **attempt == added).count(), 2, "{attempts:?}");
}
