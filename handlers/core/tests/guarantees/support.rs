//! A handler that records its messages.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::message::TestMessage;
use staffetta_handler::testing::{Fault, LogReport, NoMetrics};
use staffetta_handler::{
    Action, Async, BackoffPolicy, Context, EventHandler, HandlerError, Message, OrderingKey, QueueMetrics,
    Report,
};

/// The delays after which a failed object is handled again.
pub(crate) const REQUEUE: BackoffPolicy =
    BackoffPolicy::unlimited(Duration::from_secs(60), Duration::from_secs(900));

/// Decides the result of each attempt.
pub(crate) type Script = Box<dyn FnMut(&TestMessage) -> Answer + Send>;

/// The result of an attempt.
pub(crate) enum Answer {
    Succeed,
    Fail(Fault),
    Panic,
    Hang,
}

#[derive(Clone)]
pub(crate) struct Scribe {
    state: Arc<Mutex<ScribeState>>,
}

struct ScribeState {
    attempts: Vec<TestMessage>,
    handled: BTreeSet<String>,
    inside: HashSet<String>,
    overlaps: usize,
    answer: Script,
}

impl Scribe {
    pub(crate) fn new(answer: impl FnMut(&TestMessage) -> Answer + Send + 'static) -> Self {
        let state = ScribeState {
            attempts: Vec::new(),
            handled: BTreeSet::new(),
            inside: HashSet::new(),
            overlaps: 0,
            answer: Box::new(answer),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn succeeding() -> Self {
        Self::new(|_| Answer::Succeed)
    }

    /// All attempts so far, as text.
    pub(crate) fn attempts(&self) -> Vec<String> {
        self.lock().attempts.iter().map(ToString::to_string).collect()
    }

    /// The attempted messages by object.
    pub(crate) fn by_object(&self) -> HashMap<String, Vec<TestMessage>> {
        let mut objects = HashMap::<_, Vec<_>>::new();
        for message in &self.lock().attempts {
            objects.entry(message.uid().to_owned()).or_default().push(message.clone());
        }
        objects
    }

    /// The newest attempt.
    pub(crate) fn last(&self) -> TestMessage {
        self.lock().attempts.last().cloned().expect("there was one")
    }

    /// The UIDs of the messages handled with success.
    pub(crate) fn handled(&self) -> BTreeSet<String> {
        self.lock().handled.clone()
    }

    /// The number of times two messages of one object were handled concurrently.
    pub(crate) fn overlaps(&self) -> usize {
        self.lock().overlaps
    }

    fn lock(&self) -> MutexGuard<'_, ScribeState> {
        self.state.lock().unwrap()
    }

    /// The wrappers of the production chain around this handler, without the queues.
    pub(crate) fn wrapped(&self) -> impl EventHandler<TestMessage> + use<> {
        self.reported(Arc::new(LogReport::new("scribe")))
    }

    /// The same wrappers, with a report.
    pub(crate) fn reported(
        &self,
        report: Arc<dyn Report<TestMessage>>,
    ) -> impl EventHandler<TestMessage> + use<> {
        self.clone()
            .timeout(Duration::from_secs(60))
            .limit(8, |_| None)
            .retry(BackoffPolicy::default())
            .log_exceptions(report, REQUEUE)
    }

    /// The production chain around this handler, with a queue for each object.
    pub(crate) fn chain(&self, by_key: bool) -> Async<TestMessage, impl EventHandler<TestMessage> + use<>> {
        self.with_metrics(by_key, Arc::new(NoMetrics))
    }

    /// The same chain, with metrics.
    pub(crate) fn with_metrics(
        &self,
        by_key: bool,
        metrics: Arc<dyn QueueMetrics>,
    ) -> Async<TestMessage, impl EventHandler<TestMessage> + use<>> {
        Async::new(self.wrapped(), by_key, |message: &TestMessage| OrderingKey::of(message.uid()), metrics)
    }
}

impl EventHandler<TestMessage> for Scribe {
    async fn handle(&self, message: &TestMessage, _: &Context<'_>) -> Result<Action, HandlerError> {
        let answer = {
            let mut state = self.lock();
            if !state.inside.insert(message.uid().to_owned()) {
                state.overlaps += 1;
            }
            state.attempts.push(message.clone());
            (state.answer)(message)
        };
        tokio::task::yield_now().await;
        self.lock().inside.remove(message.uid());
        match answer {
            Answer::Succeed => {
                self.lock().handled.insert(message.uid().to_owned());
                Ok(Action::done())
            }
            Answer::Fail(fault) => Err(fault.into()),
            Answer::Panic => panic!("as ordered"),
            Answer::Hang => std::future::pending().await,
        }
    }
}

/// Runs all tasks that are ready, without advancing the clock.
pub(crate) async fn run_until_idle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
