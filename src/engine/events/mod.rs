//! Kubernetes Events on objects, which report that handling an object fails or works again and, with `events.success`, that it succeeded.
//! `docs/events.md` describes them for operators.
//!
//! A [`Publisher`] adds an [`Occurrence`] to those of the same object, handler and reason (`Aggregator`) without waiting. A task writes
//! the Events ([`EventWriter`]): it creates them through `events.k8s.io/v1` and updates them through `core/v1`, where the note may change.

mod aggregation;
mod occurrence;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use prometheus_client::metrics::counter::Counter;
use staffetta_handler::EventNote;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

pub(crate) use occurrence::Occurrence;

use crate::base::metrics::MetricFamily;
use writer::EventWriter;

/// The API version with which Events are created.
pub(crate) const API_VERSION: &str = "events.k8s.io/v1";

/// The sender of occurrences to the task that writes them as Kubernetes Events. Clones share the task.
#[derive(Clone)]
pub(crate) struct Publisher(Arc<dyn Fn(Occurrence) + Send + Sync>);

/// The task that writes Events. Dropping the value stops the task.
pub(crate) struct PublisherTask {
    stop: CancellationToken,
    task: AbortOnDropHandle<()>,
}

/// Starts the task that writes Events, within the limits in `docs/events.md`. `instance` becomes the `reportingInstance` of the Events;
/// `outcomes` counts the writes and the discarded occurrences.
pub(crate) fn start(
    client: Client,
    instance: String,
    outcomes: MetricFamily<Counter>,
) -> (Publisher, PublisherTask) {
    let (writer, stop) = (Arc::new(EventWriter::new(outcomes)), CancellationToken::new());
    let (adder, stopped) = (Arc::clone(&writer), stop.clone());
    let task = tokio::spawn(async move { writer.run(client, instance, stopped).await });
    let task = AbortOnDropHandle::new(task);
    (Publisher(Arc::new(move |occurrence| adder.add(occurrence))), PublisherTask { stop, task })
}

impl Default for Publisher {
    /// Returns a publisher that discards everything.
    fn default() -> Self {
        Self(Arc::new(drop))
    }
}

impl Publisher {
    /// Adds an occurrence to its Event. If there are too many Events, the occurrence is discarded and counted.
    pub(crate) fn publish(&self, occurrence: Occurrence) {
        (self.0)(occurrence);
    }

    /// Publishes an Event that a handler creates on its own initiative.
    pub(crate) fn record(&self, note: EventNote) {
        let EventNote { handler, regarding, warning, reason, text } = note;
        self.publish(Occurrence::new(regarding, &handler.into(), warning, reason, (&text, "")));
    }
}

impl PublisherTask {
    /// Writes the Events that may be written by now, for at most `grace`, and ends the task. All others are discarded.
    pub(crate) async fn drain(self, grace: Duration) {
        self.stop.cancel();
        // The rest is discarded: the next process fails with the same objects.
        let _ = tokio::time::timeout(grace, self.task).await;
    }
}

#[cfg(test)]
mod tests;
