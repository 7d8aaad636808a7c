//! What a meter is told.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use staffetta_handler::testing::{Fault, TestMessage};
use staffetta_handler::{Async, Meter, OrderingKey};

use crate::support::{Answer, POLICY, Scribe, settle};

/// Writes down what it is told.
#[derive(Default)]
struct Tape(Mutex<Vec<String>>);

impl Tape {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    /// What it was told since it was last asked.
    fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Meter for Tape {
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
}

async fn after(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    settle().await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_succeeds_is_added_waits_not_and_works_once() {
    let tape = Arc::<Tape>::default();
    let chain = Scribe::content().metered(POLICY, Arc::clone(&tape) as Arc<dyn Meter>);
    chain.push(TestMessage::added("a"));
    settle().await;
    assert_eq!(tape.told(), ["added", "waited 0 s", "worked 0 s"]);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_works_and_neither_the_rest_between_them_nor_that_after_a_failure_is_a_wait() {
    let mut answers = [
        Answer::Fail(Fault::transient("busy").after(Duration::from_secs(7))),
        Answer::Hang,
        Answer::Panic,
        Answer::Fail(Fault::permanent("refused")),
    ]
    .into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap_or(Answer::Succeed));
    let tape = Arc::<Tape>::default();
    let chain = scribe.metered(POLICY, Arc::clone(&tape) as Arc<dyn Meter>);
    chain.push(TestMessage::added("a"));
    after(6).await;
    assert_eq!(tape.told(), ["added", "waited 0 s", "worked 0 s", "retried"]);
    after(65).await;
    let told = ["worked 60 s", "retried", "worked 0 s"];
    assert_eq!(tape.told(), told, "it was interrupted; then it panicked, and that is not tried again");
    after(66).await;
    assert_eq!(tape.told(), ["waited 0 s", "worked 0 s"], "its time had come");
    after(140).await;
    assert_eq!(tape.told(), ["waited 0 s", "worked 0 s"]);
}

#[tokio::test(start_paused = true)]
async fn to_stand_behind_ones_own_key_or_for_a_permit_is_to_wait() {
    let scribe = Scribe::new(|message| if message.version == 0 { Answer::Hang } else { Answer::Succeed });
    let tape = Arc::<Tape>::default();
    let chain = scribe.metered(POLICY, Arc::clone(&tape) as Arc<dyn Meter>);
    for number in 0..8 {
        chain.push(TestMessage::deleted(&number.to_string()));
    }
    after(10).await;
    assert_eq!(tape.told().len(), 16, "eight were added and waited not");
    chain.push(TestMessage::modified("for a permit", 1));
    after(10).await;
    chain.push(TestMessage::modified("0", 1));
    chain.push(TestMessage::modified("0", 2));
    assert_eq!(tape.told(), ["added", "added", "added"]);
    after(41).await;
    let told = tape.told();
    assert!(told.contains(&"waited 50 s".into()), "{told:?}");
    assert!(!told.contains(&"waited 40 s".into()), "the deletion before it is tried again: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_replaces_another_has_waited_as_long_as_both_together() {
    let mut answers = [Answer::Fail(Fault::transient("busy").after(Duration::from_secs(30)))].into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap_or(Answer::Succeed));
    let tape = Arc::<Tape>::default();
    let meter = Arc::clone(&tape) as Arc<dyn Meter>;
    let chain = Async::metered(scribe.link(), POLICY, |_: &TestMessage| OrderingKey::of("one key"), meter);
    chain.push(TestMessage::deleted("a"));
    settle().await;
    for version in [1, 2, 3] {
        chain.push(TestMessage::modified("b", version));
        after(5).await;
    }
    tape.told();
    after(20).await;
    assert_eq!(tape.told(), ["worked 0 s", "waited 30 s", "worked 0 s"]);
    assert_eq!(scribe.attempts(), ["a deleted 0", "a deleted 0", "b modified 3"]);
}
