//! Kubernetes Events on objects, which report that handling an object fails or works again and, with `events.success`, that it succeeded.
//! `docs/events.md` describes them for operators.
//!
//! A [`Publisher`] accepts an [`Occurrence`] without waiting. A task aggregates occurrences ([`Aggregator`]) and writes Events
//! ([`EventWriter`]): it creates them through `events.k8s.io/v1` and updates them through `core/v1`, where the note may change.

mod aggregation;
mod occurrence;
mod rate_limit;
mod writer;

use std::time::Duration;

use kube::Client;
use staffetta_handler::EventNote;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use occurrence::Occurrence;

use crate::identity::random;
use crate::metrics::EventMetrics;
use aggregation::{Aggregator, LIMITS};
use rate_limit::TokenBucket;
use writer::EventWriter;

/// The API version with which Events are created.
pub(crate) const API_VERSION: &str = "events.k8s.io/v1";

/// The capacity of the queue between publishers and the task. The task needs only microseconds for each occurrence.
const QUEUE_CAPACITY: usize = 1024;

/// The number of requests that may be sent without delay after a quiet time.
const WRITE_BURST: u32 = 50;

/// The interval between two requests after a burst.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// Queues what is to be reported as Kubernetes Events for the task that writes them. Clones share the task.
#[derive(Clone)]
pub(crate) struct Publisher {
    queue: mpsc::Sender<Occurrence>,
    metrics: EventMetrics,
}

/// The task that writes Events. Dropping the value stops the task.
pub(crate) struct PublisherTask {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

/// Starts the task that writes Events, within the limits in `docs/events.md`. `instance` becomes the `reportingInstance` of the Events.
pub(crate) fn start(client: Client, instance: String, metrics: EventMetrics) -> (Publisher, PublisherTask) {
    let (queue, occurrences) = mpsc::channel(QUEUE_CAPACITY);
    let stop = CancellationToken::new();
    let rate = TokenBucket::full(WRITE_BURST, WRITE_INTERVAL, Instant::now());
    let aggregator = Aggregator::new(LIMITS, rate, random());
    let writer = EventWriter { client, instance, aggregator, metrics: metrics.clone() };
    let task = AbortOnDropHandle::new(tokio::spawn(writer.run(occurrences, stop.clone())));
    (Publisher { queue, metrics }, PublisherTask { stop, task })
}

impl Publisher {
    /// Queues an occurrence. If the queue is full, or half full for one of type `Normal`, the occurrence is discarded and counted.
    pub(crate) fn publish(&self, occurrence: Occurrence) {
        let has_room = occurrence.warning || self.queue.capacity() > QUEUE_CAPACITY / 2;
        if !has_room || self.queue.try_send(occurrence).is_err() {
            self.metrics.dropped.inc();
        }
    }

    /// Queues the Event of a handler.
    pub(crate) fn record(&self, note: EventNote) {
        let EventNote { handler, regarding, warning, reason, text } = note;
        self.publish(Occurrence::new(regarding, &handler.into(), warning, reason, (&text, "")));
    }
}

impl PublisherTask {
    /// Accepts no more occurrences, and writes those that are due, for at most `grace`.
    pub(crate) async fn drain(self, grace: Duration) {
        self.stop.cancel();
        // The rest is discarded: the next process fails with the same objects.
        let _ = tokio::time::timeout(grace, self.task).await;
    }
}

#[cfg(test)]
mod tests;
