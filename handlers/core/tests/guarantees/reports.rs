//! Reports of failures, transient ones included.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::message::TestMessage;
use staffetta_handler::testing::{Fault, NoMetrics};
use staffetta_handler::{Async, Failure, Failures, Message, OrderingKey, Report};
use tokio::time::Instant;

use crate::support::{Answer, Scribe};

/// Records its calls.
#[derive(Default)]
struct Tape(Mutex<Vec<String>>);

impl Report<TestMessage> for Tape {
    fn failed(&self, event: &TestMessage, error: &dyn Failure, _: Duration, failures: &mut Failures) {
        self.0.lock().unwrap().push(format!("{event}, attempt {}: {error}", failures.attempts()));
    }

    fn will_retry(&self, event: &TestMessage, error: &dyn Failure, wait: Duration, failures: &mut Failures) {
        let last_error = failures.last_error().expect("something went wrong");
        let line = format!(
            "{event}, attempt {} after {} s: {error}, again in {} s",
            failures.attempts(),
            last_error.since.elapsed().as_secs(),
            wait.as_secs()
        );
        self.0.lock().unwrap().push(line);
    }
}

#[tokio::test(start_paused = true)]
async fn every_failed_attempt_is_reported_with_its_number_since_the_last_success() {
    let busy = |seconds| Answer::Fail(Fault::transient("busy").after(Duration::from_secs(seconds)));
    let mut answers = [
        busy(2),
        busy(3),
        Answer::Fail(Fault::permanent("refused").after(Duration::from_secs(70))),
        busy(4),
        Answer::Succeed,
        busy(5),
        Answer::Panic,
    ]
    .into_iter();
    let scribe = Scribe::new(move |_| answers.next().unwrap_or(Answer::Succeed));
    let tape = Arc::<Tape>::default();
    let links = scribe.reported(Arc::clone(&tape) as Arc<dyn Report<TestMessage>>);
    let chain =
        Async::new(links, false, |message: &TestMessage| OrderingKey::of(message.uid()), Arc::new(NoMetrics));
    let started = Instant::now();
    chain.push(TestMessage::added("a"));
    tokio::time::sleep_until(started + Duration::from_secs(100)).await;
    chain.push(TestMessage::modified("a", 1));
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(
        *tape.0.lock().unwrap(),
        [
            "a added 0, attempt 1 after 0 s: busy, again in 2 s",
            "a added 0, attempt 2 after 2 s: busy, again in 3 s",
            "a added 0, attempt 3: refused",
            "a added 0, attempt 4 after 75 s: busy, again in 4 s",
            "a modified 1, attempt 1 after 0 s: busy, again in 5 s",
            "a modified 1, attempt 2: the handler panicked: as ordered",
        ]
    );
    assert_eq!(chain.queues(), 0, "{:?}", scribe.attempts());
}
