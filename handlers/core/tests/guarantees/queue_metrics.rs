//! The metrics of the queues.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::TestMessage;
use staffetta_handler::testing::Fault;
use staffetta_handler::{Async, Context, EventHandler, OrderingKey, QueueMetrics};

use crate::support::{Answer, Scribe, run_until_idle};

/// Records its calls.
#[derive(Default)]
struct Tape(Mutex<Vec<String>>);

impl Tape {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    /// Returns the calls since the last call of this function.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl QueueMetrics for Tape {
    fn added(&self) {
        self.note("added".into());
    }

    fn waited(&self, time: Duration) {
        self.note(format!("waited {} s", time.as_secs()));
    }

    fn worked(&self, time: Duration) {
        self.note(format!("worked {} s", time.as_secs()));
    }

    fn retried(&self) {
        self.note("retried".into());
    }

    fn raised_delay(&self) {
        self.note("raised_delay".into());
    }
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    run_until_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_successful_message_is_counted_once_in_each_metric() {
    let tape = Arc::<Tape>::default();
    let chain = Scribe::succeeding().with_metrics(false, Arc::clone(&tape) as Arc<dyn QueueMetrics>);
    chain.push(TestMessage::added("a"));
    run_until_idle().await;
    assert_eq!(tape.calls(), ["added", "waited 0 s", "worked 0 s"]);
}

#[tokio::test(start_paused = true)]
async fn a_delay_below_the_shortest_one_is_raised_and_counted() {
    let soon = |millis| Fault::transient("busy").after(Duration::from_millis(millis));
    let mut answers = [Answer::Fail(soon(0)), Answer::Fail(soon(10))].into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap_or(Answer::Succeed));
    let tape = Arc::<Tape>::default();
    let chain = scribe.with_metrics(false, Arc::clone(&tape) as Arc<dyn QueueMetrics>);
    chain.push(TestMessage::added("a"));
    after(1).await;
    let calls = [
        "added",
        "waited 0 s",
        "worked 0 s",
        "raised_delay",
        "retried",
        "worked 0 s",
        "retried",
        "worked 0 s",
    ];
    assert_eq!(tape.calls(), calls);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_measured_and_the_delays_between_them_are_not_queue_time() {
    let mut answers = [
        Answer::Fail(Fault::transient("busy").after(Duration::from_secs(7))),
        Answer::Hang,
        Answer::Panic,
        Answer::Fail(Fault::permanent("refused")),
    ]
    .into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap_or(Answer::Succeed));
    let tape = Arc::<Tape>::default();
    let chain = scribe.with_metrics(false, Arc::clone(&tape) as Arc<dyn QueueMetrics>);
    chain.push(TestMessage::added("a"));
    after(6).await;
    assert_eq!(tape.calls(), ["added", "waited 0 s", "worked 0 s", "retried"]);
    after(65).await;
    let calls = ["worked 60 s", "retried", "worked 0 s"];
    assert_eq!(tape.calls(), calls, "it was interrupted; then it panicked, and that is not tried again");
    after(66).await;
    assert_eq!(tape.calls(), ["waited 0 s", "worked 0 s"], "its time had come");
    after(140).await;
    assert_eq!(tape.calls(), ["waited 0 s", "worked 0 s"]);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_the_own_key_or_for_a_permit_is_queue_time() {
    let scribe = Scribe::new(|message| if message.version == 0 { Answer::Hang } else { Answer::Succeed });
    let tape = Arc::<Tape>::default();
    let chain = scribe.with_metrics(false, Arc::clone(&tape) as Arc<dyn QueueMetrics>);
    for number in 0..8 {
        chain.push(TestMessage::deleted(&number.to_string()));
    }
    after(10).await;
    assert_eq!(tape.calls().len(), 16, "eight were added and waited not");
    // As the watch delivers it: its handler is polled at once, and then waits in `Limit`.
    chain.handle(&TestMessage::modified("for a permit", 1), &Context::detached()).await.unwrap();
    after(10).await;
    chain.push(TestMessage::modified("0", 1));
    chain.push(TestMessage::modified("0", 2));
    assert_eq!(tape.calls(), ["added", "added", "added"]);
    after(41).await;
    let calls = tape.calls();
    assert!(calls.contains(&"waited 50 s".into()), "{calls:?}");
    assert!(!calls.contains(&"waited 40 s".into()), "the deletion before it is tried again: {calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_replaces_another_inherits_its_queue_time() {
    let mut answers = [Answer::Hang].into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap_or(Answer::Succeed));
    let tape = Arc::<Tape>::default();
    let metrics = Arc::clone(&tape) as Arc<dyn QueueMetrics>;
    let chain = Async::new(scribe.wrapped(), false, |_: &TestMessage| OrderingKey::of("one key"), metrics);
    chain.push(TestMessage::deleted("a"));
    run_until_idle().await;
    for version in [1, 2, 3] {
        chain.push(TestMessage::modified("b", version));
        after(5).await;
    }
    tape.calls();
    after(46).await;
    assert_eq!(tape.calls()[..4], ["worked 60 s", "retried", "waited 60 s", "worked 0 s"]);
    assert_eq!(scribe.attempts()[..2], ["a deleted 0", "b modified 3"]);
}
