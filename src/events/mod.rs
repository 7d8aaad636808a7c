//! Kubernetes Events: what went wrong with an object, shown where the person looks who wonders about it.
//!
//! A [`Recorder`] takes [`Notice`]s in from anywhere and never waits. One task counts what happens again and again together
//! ([`aggregator`]) and sends what the limits allow ([`sender`]). An Event is made through `events.k8s.io/v1`, which does not
//! let a note change, and brought up to date through `core/v1`, which shows the same object and does.

mod aggregator;
mod bucket;
mod counts;
mod name;
mod notice;
mod refusals;
mod sender;
mod task;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::{Note, Notebook};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use counts::EventCounts;
use counts::EventResult;
pub(crate) use notice::{Notice, Weight, reference};

use crate::identity::random;
use aggregator::{Aggregator, Limits};
use sender::Sender;
use task::Task;

/// The API version through which Events are made.
pub(crate) const API_VERSION: &str = "events.k8s.io/v1";

/// How many notices may wait for the task. It takes one in within microseconds.
const INBOX: usize = 1024;

/// Where notices are handed in. A copy is a reference.
#[derive(Clone)]
pub(crate) struct Recorder {
    inbox: mpsc::Sender<Notice>,
    counts: Arc<EventCounts>,
}

/// The task that sends Events. It ends when this is dropped.
pub(crate) struct Recording {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

/// Starts to record Events by the default [`Limits`], in the name of `instance`; `counts` says what became of them.
pub(crate) fn record(client: Client, instance: String, counts: Arc<EventCounts>) -> (Recorder, Recording) {
    let (inbox, notices) = mpsc::channel(INBOX);
    let stop = CancellationToken::new();
    let task = Task {
        aggregator: Aggregator::new(Limits::default(), random(), Instant::now()),
        sender: Sender::new(client, instance),
        counts: Arc::clone(&counts),
        trouble: None,
    };
    let task = AbortOnDropHandle::new(tokio::spawn(task.run(notices, stop.clone())));
    (Recorder { inbox, counts }, Recording { stop, task })
}

impl Recorder {
    /// A recorder whose notices a test reads.
    #[cfg(test)]
    pub(crate) fn overheard() -> (Self, mpsc::Receiver<Notice>) {
        let (inbox, notices) = mpsc::channel(INBOX);
        (Self { inbox, counts: Arc::default() }, notices)
    }

    /// Takes a notice in. Never waits: where too much happens at once, the notice is dropped and counted.
    pub(crate) fn tell(&self, notice: Notice) {
        if self.inbox.try_send(notice).is_err() {
            self.counts.count(EventResult::Dropped);
        }
    }
}

impl Notebook for Recorder {
    fn tell(&self, note: Note) {
        let weight = if note.warning { Weight::Warning } else { Weight::Normal };
        let regarding = reference(&note.regarding);
        Self::tell(self, Notice::new(regarding, weight, note.reason, &note.handler.into(), (&note.text, "")));
    }
}

impl Recording {
    /// Takes nothing in any more, and sends what is due, for at most `grace`.
    pub(crate) async fn drain(self, grace: Duration) {
        self.stop.cancel();
        // What is not sent by then is dropped with the task: the next process fails with the same objects.
        let _ = tokio::time::timeout(grace, self.task).await;
    }
}

#[cfg(test)]
mod tests;
