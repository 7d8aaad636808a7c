//! A handler that writes down what it gets.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};

use staffetta_handler::testing::{Fault, TestMessage};
use staffetta_handler::{
    Async, Compose, EventHandler, HandlerError, LogReport, Message, Meter, OrderingKey, QueuePolicy, Report,
    RetryPolicy, Superseded, Turn, Unmetered,
};

pub(crate) const POLICY: QueuePolicy =
    QueuePolicy { coalesce: true, depth: 100, superseded: Superseded::BySameObject };

/// What happened to one attempt: the message, and how it ended.
pub(crate) type Verdict = Box<dyn FnMut(&TestMessage) -> Answer + Send>;

/// What the handler does with a message.
pub(crate) enum Answer {
    Succeed,
    Fail(Fault),
    Panic,
    Hang,
}

#[derive(Clone)]
pub(crate) struct Scribe {
    state: Arc<Mutex<State>>,
}

struct State {
    attempts: Vec<TestMessage>,
    handled: BTreeSet<String>,
    inside: HashSet<String>,
    overlaps: usize,
    answer: Verdict,
}

impl Scribe {
    pub(crate) fn new(answer: impl FnMut(&TestMessage) -> Answer + Send + 'static) -> Self {
        let state = State {
            attempts: Vec::new(),
            handled: BTreeSet::new(),
            inside: HashSet::new(),
            overlaps: 0,
            answer: Box::new(answer),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    pub(crate) fn content() -> Self {
        Self::new(|_| Answer::Succeed)
    }

    /// All attempts so far, in words.
    pub(crate) fn attempts(&self) -> Vec<String> {
        self.lock().attempts.iter().map(ToString::to_string).collect()
    }

    /// What was handled, by object.
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

    /// The UIDs of all that was handled with success.
    pub(crate) fn handled(&self) -> BTreeSet<String> {
        self.lock().handled.clone()
    }

    /// How often two messages of one object were handled at a time.
    pub(crate) fn overlaps(&self) -> usize {
        self.lock().overlaps
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The links that ship around this handler, without the queues.
    pub(crate) fn link(&self) -> impl EventHandler<TestMessage> + use<> {
        self.reported(Arc::new(LogReport::new("scribe")))
    }

    /// The same links, with a report.
    pub(crate) fn reported(
        &self,
        report: Arc<dyn Report<TestMessage>>,
    ) -> impl EventHandler<TestMessage> + use<> {
        self.clone()
            .timeout(std::time::Duration::from_secs(60))
            .limit(8)
            .retry(RetryPolicy::default())
            .reported(Arc::clone(&report))
            .log_exceptions(report)
    }

    /// The chain that ships around this handler, a queue for each object.
    pub(crate) fn chain(
        &self,
        policy: QueuePolicy,
    ) -> Async<TestMessage, impl EventHandler<TestMessage> + use<>> {
        self.metered(policy, Arc::new(Unmetered))
    }

    /// The same chain, with a meter.
    pub(crate) fn metered(
        &self,
        policy: QueuePolicy,
        meter: Arc<dyn Meter>,
    ) -> Async<TestMessage, impl EventHandler<TestMessage> + use<>> {
        Async::metered(self.link(), policy, |message: &TestMessage| OrderingKey::of(message.uid()), meter)
    }
}

impl EventHandler<TestMessage> for Scribe {
    async fn handle(&self, message: &TestMessage, _: &Turn<'_>) -> Result<(), HandlerError> {
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
                Ok(())
            }
            Answer::Fail(fault) => Err(fault.into()),
            Answer::Panic => panic!("as ordered"),
            Answer::Hang => std::future::pending().await,
        }
    }
}

/// Lets all tasks run that can, without moving the clock.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
