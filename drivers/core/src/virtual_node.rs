//! Pods on a virtual node: requests, progress and resource usage. A virtual node is a Kubernetes node that stands for a device
//! without a kubelet.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::id::Owner;
use crate::milliseconds;

/// A pod that a virtual node is to run, with the values of its environment variables.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// The pod object, as the API server has it.
    pub pod: Arc<Pod>,
    /// The environment variables of each container, in order, by the name of the container. They come from `env` and `envFrom`:
    /// values of `ConfigMaps`, `Secrets` and fields are inserted, and `$(NAME)` is expanded. A driver must use them instead of
    /// those in `pod`.
    pub environment: BTreeMap<String, Vec<EnvironmentVariable>>,
}

impl PodRequest {
    /// Returns the owner for the ownership mark of the pod's containers: its namespace, name and UID.
    pub fn owner(&self) -> Owner {
        Owner::of(&self.pod.metadata)
    }

    /// Returns the environment variables of a container; empty if it has none.
    pub fn environment_of(&self, container: &str) -> &[EnvironmentVariable] {
        self.environment.get(container).map_or(&[], Vec::as_slice)
    }
}

/// An environment variable of a container. Its value may come from a Secret, so it is never printed.
#[derive(Clone, Debug)]
pub struct EnvironmentVariable {
    /// The name of the variable.
    pub name: String,
    /// The value of the variable, which may be a secret.
    pub value: SecretString,
}

impl EnvironmentVariable {
    /// Creates a variable.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), value: SecretString::from(value.into()) }
    }
}

/// The progress of a pod towards its desired state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PodProgress {
    /// The pod is in its desired state.
    Done,
    /// The pod has not reached its desired state yet, without a failure.
    Working {
        /// The current step, in words for people: `app: installing`.
        state: String,
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
    /// The last step failed. It is repeated by the first poll after the delay `poll_after`, not by earlier polls.
    Failing {
        /// The failure as one word in CamelCase, as a kubelet calls it: `ErrImagePull`.
        reason: Cow<'static, str>,
        /// The description of the failure, for people: written by the driver, or quoted from the machine.
        message: String,
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
}

impl PodProgress {
    /// Returns `true` if the pod is in its desired state.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }

    /// Returns the delay before the next poll; `None` if the pod is in its desired state.
    pub fn poll_after(&self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::Working { poll_after, .. } | Self::Failing { poll_after, .. } => Some(*poll_after),
        }
    }

    /// Combines the progress of two parts of a pod. A failure takes precedence over work in progress, and the poll delay is the
    /// shorter one.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let soonest = self.poll_after().into_iter().chain(other.poll_after()).min();
        let mut whole = match (&self, &other) {
            (Self::Failing { .. }, _) | (Self::Working { .. }, Self::Done | Self::Working { .. }) => self,
            (Self::Done, _) | (Self::Working { .. }, Self::Failing { .. }) => other,
        };
        if let (Self::Working { poll_after, .. } | Self::Failing { poll_after, .. }, Some(soonest)) =
            (&mut whole, soonest)
        {
            *poll_after = soonest;
        }
        whole
    }
}

/// The current resource usage of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    /// The pod, as named by the ownership mark of its containers.
    pub owner: Owner,
    /// The resource usage of its containers.
    pub containers: Vec<ContainerUsage>,
    /// The bytes that the pod received since it started; `None` if the device does not report them.
    pub received_bytes: Option<u64>,
    /// The bytes that the pod sent since it started; `None` if the device does not report them.
    pub sent_bytes: Option<u64>,
}

/// The current resource usage of a container. A value is `None` if the device does not report it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUsage {
    /// The name of the container in the pod.
    pub name: String,
    /// The CPU usage, in billionths of a CPU.
    pub cpu_nanocores: Option<u64>,
    /// The used memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// The used storage, in bytes.
    pub storage_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_not_shown() {
        let environment = [("app".to_owned(), vec![EnvironmentVariable::new("TOKEN", "hunter2")])].into();
        let request = PodRequest { pod: Arc::default(), environment };
        let shown = format!("{request:?}");
        assert!(shown.contains("TOKEN") && !shown.contains("hunter2"), "{shown}");
        assert_eq!((request.environment_of("app").len(), request.environment_of("other").len()), (1, 0));
    }

    fn working(seconds: u64) -> PodProgress {
        PodProgress::Working { state: format!("{seconds}"), poll_after: Duration::from_secs(seconds) }
    }

    fn failing(seconds: u64) -> PodProgress {
        let poll_after = Duration::from_secs(seconds);
        PodProgress::Failing { reason: "ErrImagePull".into(), message: format!("{seconds}"), poll_after }
    }

    #[test]
    fn a_whole_is_done_when_all_parts_are_and_asked_again_when_the_first_is_worth_it() {
        assert_eq!(PodProgress::Done.and(PodProgress::Done), PodProgress::Done);
        assert_eq!(PodProgress::Done.and(working(2)), working(2));
        assert_eq!(working(2).and(PodProgress::Done), working(2));
        let both = working(3).and(working(2));
        assert_eq!(both, PodProgress::Working { state: "3".into(), poll_after: Duration::from_secs(2) });
    }

    #[test]
    fn a_failure_of_a_part_goes_before_the_work_of_another() {
        for whole in [working(1).and(failing(60)), failing(60).and(working(1))] {
            assert_eq!(whole.poll_after(), Some(Duration::from_secs(1)));
            assert!(matches!(whole, PodProgress::Failing { message, .. } if message == "60"));
        }
        assert_eq!(PodProgress::Done.and(failing(5)), failing(5));
    }
}
