//! Makes Events and brings them up to date: the thin shell between the aggregator and the server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::response::Status;
use kube::{Api, Client};
use serde_json::{Value, json};
use staffetta_handler::Failure;

use super::aggregator::{Answer, Posting, Step};
use super::refusals::REST;

/// The name under which this program reports, whichever process of it.
pub(crate) const CONTROLLER: &str = "staffetta.dev/controller";

/// How long the server may take for one request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends one Event at a time.
#[derive(Clone)]
pub(crate) struct Sender {
    client: Client,
    instance: String,
}

/// Why a request did not do what it was to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    /// The server answered otherwise, or could not be reached.
    #[error("write an Event")]
    Server(#[source] Box<kube::Error>),
    /// The server did not answer.
    #[error("no answer within {} s", PATIENCE.as_secs())]
    Silent,
}

impl Sender {
    pub(crate) fn new(client: Client, instance: String) -> Self {
        Self { client, instance }
    }

    /// Sends `posting`.
    pub(crate) async fn send(&self, posting: &Posting) -> Result<(), SendError> {
        let namespace = posting.notice.kept_in();
        let sent = async {
            match posting.step {
                Step::Create => {
                    let events = Api::<Event>::namespaced(self.client.clone(), namespace);
                    let event = event(posting, namespace, &self.instance);
                    events.create(&PostParams::default(), &event).await.map(drop)
                }
                Step::Update => {
                    // Only here may the note change: through events.k8s.io it is what it was.
                    let events = Api::<CoreEvent>::namespaced(self.client.clone(), namespace);
                    let change = Patch::Merge(change(posting));
                    events.patch(&posting.name, &PatchParams::default(), &change).await.map(drop)
                }
            }
        };
        match tokio::time::timeout(PATIENCE, sent).await {
            Ok(sent) => sent.map_err(|error| SendError::Server(Box::new(error))),
            Err(_) => Err(SendError::Silent),
        }
    }
}

/// The Event as it is made.
fn event(posting: &Posting, namespace: &str, instance: &str) -> Event {
    let notice = &posting.notice;
    Event {
        metadata: ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(posting.name.clone()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(posting.first)),
        // The server wants one only of what happened more than once.
        series: (posting.count > 1).then(|| series(posting)),
        regarding: Some(notice.regarding.clone()),
        type_: Some(notice.weight.name().to_owned()),
        reason: Some(notice.reason.to_owned()),
        action: Some(notice.action.to_string()),
        note: Some(notice.note.clone()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

fn series(posting: &Posting) -> EventSeries {
    EventSeries { count: posting.count, last_observed_time: MicroTime(posting.notice.at) }
}

/// What changes of an Event, in the words of core/v1.
fn change(posting: &Posting) -> Value {
    json!({ "message": posting.notice.note, "series": series(posting) })
}

/// What the aggregator must know of an answer.
pub(crate) fn answer(step: Step, sent: &Result<(), SendError>) -> Answer {
    match sent {
        Ok(()) => Answer::Done,
        Err(SendError::Silent) => Answer::Failed,
        Err(SendError::Server(error)) => match (&**error, step) {
            (kube::Error::Api(status), Step::Create) if status.code == 409 => Answer::Existed,
            (kube::Error::Api(status), Step::Update) if status.code == 404 => Answer::Vanished,
            (kube::Error::Api(status), _) if status.code == 403 && !is_ending(status) => Answer::Failed,
            (error, _) if error.transient() => Answer::Failed,
            _ => Answer::Refused,
        },
    }
}

/// How long nothing is worth sending after this failure, where that is known.
pub(crate) fn rest(error: &SendError) -> Option<Duration> {
    let SendError::Server(source) = error else { return None };
    if is_forbidden(error) { Some(REST) } else { source.retry_after().map(|after| after.min(REST)) }
}

/// Whether somebody does not let us do it.
pub(crate) fn is_forbidden(error: &SendError) -> bool {
    matches!(error, SendError::Server(error) if matches!(&**error, kube::Error::Api(status) if status.code == 403))
}

/// The namespace is being deleted and takes nothing new.
fn is_ending(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}

#[cfg(test)]
mod tests;
