//! A machine's query for its baseline: the containers with which it starts.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Taint};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use super::limits::SendError;

/// The time limit of the answer to a machine's query for its baseline, the containers with which it starts.
pub const BASELINE_TIMEOUT: Duration = Duration::from_secs(5);

/// The properties of a machine by which its baseline is chosen: the containers with which it starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct QueryBaselineRequest {
    /// The name of the machine, which machines of the same kind share.
    pub name: String,
    /// The version of the machine's software.
    pub version: String,
    /// The labels that its node will have.
    pub custom_labels: BTreeMap<String, String>,
    /// The taints that its node will have.
    pub custom_taints: Vec<Taint>,
}

/// A machine's query for the containers with which it starts, not answered yet. Dropping it without an answer fails the query at once.
#[derive(Debug)]
pub struct BaselineQuery {
    /// The properties of the machine, by which its baseline is chosen.
    pub request: QueryBaselineRequest,
    /// The sending end of the channel that carries the answer to the tunnel that passed the query on.
    answer: oneshot::Sender<Vec<Container>>,
}

impl BaselineQuery {
    /// Creates a query whose answer goes to `answer`.
    pub fn new(request: QueryBaselineRequest, answer: oneshot::Sender<Vec<Container>>) -> Self {
        Self { request, answer }
    }

    /// Answers the query. The answer is dropped if nobody waits for it any longer, as after [`BASELINE_TIMEOUT`].
    pub fn answer(self, containers: Vec<Container>) {
        // Nobody waits any longer.
        let _ = self.answer.send(containers);
    }

    /// Returns `true` if nobody waits for the answer any longer.
    pub fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }
}

/// The error of a baseline query. It must not be treated as an empty baseline: the machine would start without containers.
#[derive(Debug, thiserror::Error)]
pub enum BaselineError {
    /// The query was not passed to the receiver of the tunnel's events.
    #[error("pass on a baseline query")]
    Send(#[from] SendError),
    /// The receiver of the tunnel's events dropped the query without an answer.
    #[error("the controller cannot tell the baseline now; ask again later")]
    Unanswered,
    /// No answer came within [`BASELINE_TIMEOUT`].
    #[error("the controller did not tell the baseline within {} s; ask again later", BASELINE_TIMEOUT.as_secs())]
    TimedOut,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_query_is_plain_data() {
        let sample = json!({
            "name": "shop", "version": "1.1.1",
            "custom_labels": { "base.koupleless.io/stack": "java" },
            "custom_taints": [{ "key": "example.com/drain", "effect": "NoExecute" }],
        });
        let request: QueryBaselineRequest = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!(serde_json::to_value(&request).unwrap(), sample);
    }
}
