//! The requests that handlers sent for objects that fail, as `/debug/state` shows them.

use serde::{Deserialize, Serialize};
use staffetta_driver::LoggedRequest;

use super::timestamps::Now;

/// A request that a handler sent to an external system or to the Kubernetes API for an object that fails.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RequestSummary {
    /// The method, such as `POST`.
    pub(crate) method: String,
    /// The path of the URL, without its query, or the name of the action.
    pub(crate) path: String,
    /// The status of the response; absent if there was none, or if responses have no status.
    pub(crate) status: Option<u16>,
    /// `true` if there was a response.
    #[serde(default)]
    pub(crate) answered: bool,
    /// The request id under which the external system logs the request; absent if it is not known.
    pub(crate) request_id: Option<String>,
    /// The time at which the request was sent.
    pub(crate) sent: String,
    /// The seconds since the request was sent.
    pub(crate) sent_seconds: f64,
    /// The seconds until the response was read, or until the request was cancelled.
    pub(crate) duration_seconds: f64,
}

impl RequestSummary {
    /// Converts a logged request, with its times relative to `now`.
    pub(super) fn new(request: LoggedRequest, now: Now) -> Self {
        let LoggedRequest { method, path, status, answered, request_id, sent, duration } = request;
        Self {
            method,
            path,
            status,
            answered,
            request_id,
            sent: now.rfc3339(sent),
            sent_seconds: now.seconds_since(sent),
            duration_seconds: duration.as_secs_f64(),
        }
    }
}

/// The last requests of a handler's background work for one object, shown because that work fails.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BackgroundSummary {
    /// The name of the handler.
    pub(crate) handler: String,
    /// The last requests of the background work.
    pub(crate) requests: Vec<RequestSummary>,
}

impl BackgroundSummary {
    pub(super) fn new(handler: &str, requests: Vec<LoggedRequest>, now: Now) -> Self {
        let requests = requests.into_iter().map(|request| RequestSummary::new(request, now));
        Self { handler: handler.to_owned(), requests: requests.collect() }
    }
}
