//! The state of containers on a machine, and the results of operations on them.

use std::fmt;

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::pod_key::PodKey;
use crate::id::ContainerKey;

/// The reason of a [`ContainerStatusData`] whose state the tunnel does not know. Such a container is reported as deactivated, and is neither
/// started, stopped nor activated while a pod has it.
pub const UNKNOWN_STATE: &str = "UnknownState";

/// The status of one container on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerStatusData {
    /// The key of the container, as [`Tunnel::get_container_unique_key`](super::Tunnel::get_container_unique_key) returns it.
    pub key: ContainerKey,
    /// The name of the container.
    pub name: String,
    /// The pod of the container; [`PodKey::All`] if the machine does not know the pod.
    pub pod_key: PodKey,
    /// The state that the machine reports.
    pub state: ContainerState,
    /// The time of the last change of `state`, by the clock of the machine.
    pub change_time: Time,
    /// The reason of the last change of `state`, as one word; empty if there is none.
    #[serde(default)]
    pub reason: String,
    /// The message about the last change of `state`, for people; empty if there is none.
    #[serde(default)]
    pub message: String,
}

/// The state of a container on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContainerState {
    /// The container is not loaded yet.
    Unresolved,
    /// The container is loaded and starts.
    Resolved,
    /// The container runs.
    Activated,
    /// The container is loaded and does not run, for example because another version of it does. Tunnels also report a container in an
    /// unknown state so, with the reason [`UNKNOWN_STATE`].
    Deactivated,
    /// The container failed to start or to stop.
    Broken,
    /// The container was stopped and unloaded.
    Stopped,
}

/// Writes the name of the state in upper case, as messages to users show it.
impl fmt::Display for ContainerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unresolved => "UNRESOLVED",
            Self::Resolved => "RESOLVED",
            Self::Activated => "ACTIVATED",
            Self::Deactivated => "DEACTIVATED",
            Self::Broken => "BROKEN",
            Self::Stopped => "STOPPED",
        })
    }
}

/// The answer to the request to start, to activate or to stop a container. It is evidence only for what it says: whether the container
/// runs, the next report of the machine shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContainerOperationResponseData {
    /// The key of the container.
    pub container_key: ContainerKey,
    /// The outcome of the request.
    pub result: OperationResponseResult,
    /// The reason of a failure, as one word; empty if there is none.
    #[serde(default)]
    pub reason: String,
    /// The message of the machine, for people; empty if there is none.
    #[serde(default)]
    pub message: String,
    /// The container that the machine started instead of the requested one, which nobody wants; `None` if it started no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instead: Option<Box<Container>>,
}

/// The outcome of a request to start, to activate or to stop a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationResponseResult {
    /// The machine did as requested.
    Success,
    /// The machine answered that it failed to do it, or the request was not sent.
    Fail,
    /// No answer arrived, or none that can be read: the request may have taken effect, and still may.
    Unknown,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_plain_data() {
        let sample = json!({
            "key": "cart:1.0.0", "name": "cart", "pod_key": "all", "state": "activated",
            "change_time": "2024-09-05T08:00:00Z", "reason": "", "message": "",
        });
        let status: ContainerStatusData = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!((status.pod_key.clone(), status.state), (PodKey::All, ContainerState::Activated));
        assert_eq!(serde_json::to_value(&status).unwrap(), sample);
    }

    #[test]
    fn an_answer_is_plain_data() {
        let sample = json!({ "container_key": "cart:1.0.0", "result": "fail", "reason": "FAILED", "message": "no room" });
        let answer: ContainerOperationResponseData = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!(answer.result, OperationResponseResult::Fail);
        assert_eq!(serde_json::to_value(&answer).unwrap(), sample);
    }

    #[test]
    fn a_state_is_plain_data_and_shown_in_upper_case() {
        for (name, state) in [
            ("unresolved", ContainerState::Unresolved),
            ("resolved", ContainerState::Resolved),
            ("activated", ContainerState::Activated),
            ("deactivated", ContainerState::Deactivated),
            ("broken", ContainerState::Broken),
            ("stopped", ContainerState::Stopped),
        ] {
            assert_eq!(serde_json::from_value::<ContainerState>(json!(name)).unwrap(), state);
            assert_eq!(serde_json::to_value(state).unwrap(), json!(name));
            assert_eq!(state.to_string(), name.to_uppercase());
        }
        assert!(serde_json::from_value::<ContainerState>(json!("asleep")).is_err());
    }
}
