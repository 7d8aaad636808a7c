//! Pods on a virtual node: requests, progress and resource usage.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::milliseconds;
use crate::owner::Owner;

/// A pod that is to run on the machine.
#[derive(Clone, Debug)]
pub struct PodRequest {
    /// The pod, as it is in Kubernetes.
    pub pod: Arc<Pod>,
    /// The environment of each container, by its name, in order: `env` and `envFrom` with `ConfigMaps`, `Secrets` and fields
    /// put in, and `$(NAME)` expanded. A driver reads it here and never in the pod.
    pub environment: BTreeMap<String, Vec<EnvironmentVariable>>,
}

impl PodRequest {
    /// Returns the owner mark of the pod.
    pub fn owner(&self) -> Owner {
        Owner::of(&self.pod.metadata)
    }

    /// Returns the environment of a container, which may be empty.
    pub fn environment_of(&self, container: &str) -> &[EnvironmentVariable] {
        self.environment.get(container).map_or(&[], Vec::as_slice)
    }
}

/// A variable in the environment of a container. Its value may come from a Secret and is never shown.
#[derive(Clone, Debug)]
pub struct EnvironmentVariable {
    /// The name.
    pub name: String,
    /// The value.
    pub value: SecretString,
}

impl EnvironmentVariable {
    /// A variable.
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
    /// It is not there yet, without a failure.
    Working {
        /// The current step, for people: `app: installing`.
        state: String,
        /// The delay before the next poll. In JSON, whole milliseconds.
        #[serde(rename = "poll_after_ms", with = "milliseconds")]
        poll_after: Duration,
    },
    /// The last attempt failed. The next poll after `poll_after` repeats it; earlier ones do not.
    Failing {
        /// The failure, one word in CamelCase: `InstallFailed`.
        reason: Cow<'static, str>,
        /// The message of the machine, for people.
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

    /// The delay before the next poll; `None` when it is done.
    pub fn poll_after(&self) -> Option<Duration> {
        match self {
            Self::Done => None,
            Self::Working { poll_after, .. } | Self::Failing { poll_after, .. } => Some(*poll_after),
        }
    }

    /// Returns the progress of a whole of which this and `other` are parts: a failure goes before work, and the poll delay is the
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
    /// The owner.
    pub owner: Owner,
    /// The usage of its containers.
    pub containers: Vec<ContainerUsage>,
    /// The bytes that it received since it started.
    pub received_bytes: Option<u64>,
    /// The bytes that it sent since it started.
    pub sent_bytes: Option<u64>,
}

/// The current resource usage of a container. Values that the machine does not report are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerUsage {
    /// The name in the pod.
    pub name: String,
    /// Processor time, in billionths of a CPU.
    pub cpu_nanocores: Option<u64>,
    /// Memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// Storage, in bytes.
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
        PodProgress::Failing { reason: "InstallFailed".into(), message: format!("{seconds}"), poll_after }
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
