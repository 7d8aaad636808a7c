//! The task that writes the Events which the [`Aggregator`] finds due.

use std::error::Error;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Event as CoreEvent, ObjectReference};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use serde_json::json;
use staffetta_handler::{HandlerError, Identity, bounded, causes};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::aggregation::{Aggregator, EventOutcome, EventWrite, LIMITS};
use super::occurrence::Occurrence;
use crate::base::metrics::MetricFamily;
use crate::engine::identity::random;

/// The `reportingController` of all Events.
const CONTROLLER: &str = "staffetta.dev/controller";

/// The time limit of one request that writes an Event.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which a namespace that forbids Events (403) is skipped. A delay that a server requests is also limited to this time.
const LONG_PAUSE: Duration = Duration::from_secs(5 * 60);

/// The writer of Kubernetes Events: it sends one write after the other, and accepts occurrences meanwhile.
pub(super) struct EventWriter {
    /// The occurrences that are not written yet, and the Events that exist.
    aggregator: Mutex<Aggregator>,
    /// Notified after each occurrence, also if it was discarded.
    added: Notify,
    /// The counts of written, discarded and failed Events.
    outcomes: MetricFamily<Counter>,
}

impl EventWriter {
    /// Creates a writer without Events.
    pub(super) fn new(outcomes: MetricFamily<Counter>) -> Self {
        let aggregator = Mutex::new(Aggregator::new(LIMITS, random(), Instant::now()));
        Self { aggregator, added: Notify::new(), outcomes }
    }

    /// Counts an occurrence in its Event, or discards it if there are too many Events.
    pub(super) fn add(&self, occurrence: Occurrence) {
        if !self.aggregator.lock().add(occurrence, Instant::now()) {
            self.count("dropped");
        }
        self.added.notify_one();
    }

    /// Writes Events until `stop` is cancelled. Then it writes the Events that are due, and returns. `instance` is the
    /// `reportingInstance` of all Events: the identity of this process.
    pub(super) async fn run(&self, client: Client, instance: String, stop: CancellationToken) {
        loop {
            // Read before the queues, so that what was added until then is written.
            let stopped = stop.is_cancelled();
            let (write, due) = {
                let mut aggregator = self.aggregator.lock();
                (aggregator.pop(Instant::now()), aggregator.next_due())
            };
            match write {
                Some(write) => {
                    let result = send(client.clone(), instance.clone(), &write).await;
                    self.finish(write, &result);
                }
                None if stopped => break,
                None => tokio::select! {
                    () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
                    () = self.added.notified() => {}
                    () = stop.cancelled() => {}
                },
            }
        }
        let left = self.aggregator.lock().pending();
        if left > 0 {
            info!(left, "not all Kubernetes Events were written");
        }
    }

    /// Increments the metric of Events for `outcome`: `created`, `updated`, `dropped` (an occurrence), `refused` or `failed`.
    fn count(&self, outcome: &str) {
        self.outcomes.with(&[outcome]).inc();
    }

    /// Counts and logs the outcome of a write, and passes it to the aggregator.
    fn finish(&self, write: EventWrite, result: &Result<(), HandlerError>) {
        let (outcome, now) = (outcome(write.update, result), Instant::now());
        let namespace = write.occurrence.namespace();
        let failed = matches!(outcome, EventOutcome::Failed(_));
        let resumed = !failed && self.aggregator.lock().resume(namespace);
        let error = result.as_ref().err().map(|error| causes(&**error));
        match outcome {
            EventOutcome::Done => {
                self.count(if write.update { "updated" } else { "created" });
                if resumed {
                    info!(namespace, "Kubernetes Events are written again");
                }
            }
            EventOutcome::Rejected => {
                self.count("refused");
                let Occurrence { regarding, reason, .. } = &write.occurrence;
                debug!(kind = %regarding.kind, namespace, name = regarding.name, reason, error,
                    "the API server rejected a Kubernetes Event");
            }
            EventOutcome::Failed(hint) => {
                self.count("failed");
                let (delay, is_first) = self.aggregator.lock().pause(namespace, hint, now);
                let again_s = delay.as_secs_f64();
                if is_first {
                    warn!(namespace, error, again_s, "cannot write Kubernetes Events");
                } else {
                    debug!(namespace, error, again_s, "still cannot write Kubernetes Events");
                }
            }
            EventOutcome::NotFound | EventOutcome::AlreadyExists => {}
        }
        self.aggregator.lock().finish(write, outcome, now);
    }
}

/// Creates the Event of `write`, or updates its note and count. `instance` is the `reportingInstance`. Fails if the API server rejects the
/// request, or does not respond within [`REQUEST_TIMEOUT`].
pub(super) async fn send(client: Client, instance: String, write: &EventWrite) -> Result<(), HandlerError> {
    let namespace = write.occurrence.namespace();
    let request = async {
        if write.update {
            // `events.k8s.io` does not allow the note to change.
            let events = Api::<CoreEvent>::namespaced(client, namespace);
            let change = json!({ "message": write.occurrence.note, "series": series(write) });
            events.patch(&write.name, &PatchParams::default(), &Patch::Merge(change)).await?;
        } else {
            let events = Api::<Event>::namespaced(client, namespace);
            events.create(&PostParams::default(), &event(write, instance)).await?;
        }
        Ok(())
    };
    bounded(REQUEST_TIMEOUT, request).await
}

/// Returns the Event object to create.
fn event(write: &EventWrite, instance: String) -> Event {
    let occurrence = &write.occurrence;
    let (namespace, name) = (Some(occurrence.namespace().to_owned()), Some(write.name.clone()));
    Event {
        metadata: ObjectMeta { namespace, name, ..ObjectMeta::default() },
        event_time: Some(MicroTime(write.first)),
        // The server rejects a series of one occurrence.
        series: (write.count > 1).then(|| series(write)),
        regarding: Some(reference(&occurrence.regarding)),
        type_: Some(if occurrence.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(occurrence.reason.to_owned()),
        action: Some(occurrence.handler.to_string()),
        note: Some(occurrence.note.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance),
        ..Event::default()
    }
}

/// Returns the count and the time of the last occurrence, in the form of the Events API.
fn series(write: &EventWrite) -> EventSeries {
    EventSeries { count: write.count, last_observed_time: MicroTime(write.occurrence.at) }
}

/// Returns the reference of an Event to its object.
fn reference(identity: &Identity) -> ObjectReference {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: some(&identity.api_version),
        kind: some(&identity.kind),
        namespace: identity.namespace.clone(),
        name: some(&identity.name),
        uid: some(&identity.uid),
        resource_version: identity.resource_version.clone(),
        field_path: None,
    }
}

/// Classifies the result of a write of an Event: an update if `update` is `true`, otherwise a creation.
pub(super) fn outcome(update: bool, result: &Result<(), HandlerError>) -> EventOutcome {
    let Err(error) = result else { return EventOutcome::Done };
    let source: &(dyn Error + 'static) = &**error;
    let status = match source.downcast_ref() {
        Some(kube::Error::Api(status)) => Some(status),
        _ => None,
    };
    // A namespace that is being deleted accepts no new objects.
    let details = status.and_then(|status| status.details.as_ref());
    let mut causes = details.iter().flat_map(|details| &details.causes);
    let terminating = causes.any(|cause| cause.reason == "NamespaceTerminating");
    match status.map(|status| status.code) {
        Some(409) if !update => EventOutcome::AlreadyExists,
        Some(404) if update => EventOutcome::NotFound,
        Some(403) if !terminating => EventOutcome::Failed(Some(LONG_PAUSE)),
        _ if error.transient() => {
            EventOutcome::Failed(error.retry_after().map(|delay| delay.min(LONG_PAUSE)))
        }
        _ => EventOutcome::Rejected,
    }
}

#[cfg(test)]
mod tests;
