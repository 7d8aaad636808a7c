//! The state of containers on a machine, and the results of operations on them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use super::pod_key::PodKey;
use crate::id::ContainerKey;

/// The status of one container on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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

/// The state of a container on a machine. In JSON, it is written in upper case and parsed case-insensitively, because
/// machines differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE", try_from = "String")]
pub enum ContainerState {
    /// The container is not loaded yet.
    Unresolved,
    /// The container is loaded and starts.
    Resolved,
    /// The container runs.
    Activated,
    /// The container was switched off, and is still loaded. Tunnels also report a container in an unknown state so, because it is then
    /// neither started nor stopped while a pod has it.
    Deactivated,
    /// The container failed to start or to stop.
    Broken,
    /// The container was stopped and unloaded.
    Stopped,
}

impl ContainerState {
    /// Each state with its name in JSON.
    const ALL: [(&str, Self); 6] = [
        ("UNRESOLVED", Self::Unresolved),
        ("RESOLVED", Self::Resolved),
        ("ACTIVATED", Self::Activated),
        ("DEACTIVATED", Self::Deactivated),
        ("BROKEN", Self::Broken),
        ("STOPPED", Self::Stopped),
    ];

    /// Parses a state, in upper, lower or mixed case; `None` if there is no such state.
    ///
    /// ```
    /// use staffetta_driver::tunnel::ContainerState;
    ///
    /// assert_eq!(ContainerState::parse("activated"), Some(ContainerState::Activated));
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find_map(|(name, state)| name.eq_ignore_ascii_case(text).then_some(state))
    }
}

impl fmt::Display for ContainerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.into_iter().find_map(|(name, state)| (state == *self).then_some(name));
        f.write_str(name.unwrap_or_default())
    }
}

impl TryFrom<String> for ContainerState {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text).ok_or_else(|| {
            let names = Self::ALL.map(|(name, _)| name).join(", ");
            format!("`{text}` is not one of {names}")
        })
    }
}

/// The answer to the request to start or to stop a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
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
}

/// The outcome of a request to start or to stop a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum OperationResponseResult {
    /// The machine did as requested.
    Success,
    /// The machine failed to do it, or did not answer in time.
    Fail,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_keys_of_a_status_are_those_of_the_reference() {
        let sample = json!({
            "key": "cart:1.0.0", "name": "cart", "podKey": "all", "state": "ACTIVATED",
            "changeTime": "2024-09-05T08:00:00Z", "reason": "", "message": "",
        });
        let status: ContainerStatusData = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!((status.pod_key.clone(), status.state), (PodKey::All, ContainerState::Activated));
        assert_eq!(serde_json::to_value(&status).unwrap(), sample);
    }

    #[test]
    fn the_keys_of_an_answer_are_those_of_the_reference() {
        let sample = json!({ "containerKey": "cart:1.0.0", "result": "FAIL", "reason": "FAILED", "message": "no room" });
        let answer: ContainerOperationResponseData = serde_json::from_value(sample.clone()).unwrap();
        assert_eq!(answer.result, OperationResponseResult::Fail);
        assert_eq!(serde_json::to_value(&answer).unwrap(), sample);
    }

    #[test]
    fn a_state_is_read_in_any_case_and_written_in_upper_case() {
        for (name, state) in ContainerState::ALL {
            let lower = json!(name.to_lowercase());
            assert_eq!(serde_json::from_value::<ContainerState>(lower).unwrap(), state);
            assert_eq!(serde_json::to_value(state).unwrap(), json!(name));
            assert_eq!(state.to_string(), name);
        }
        assert!(serde_json::from_value::<ContainerState>(json!("asleep")).is_err());
    }
}
