//! The current state of pods on a device.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::Owner;

/// The pods on a device, sorted by UID. The containers of a pod are in the order of its specification if the device knows that
/// order.
pub type HostedPods = Arc<[HostedPod]>;

/// The current state of a pod on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedPod {
    /// The owner in the ownership mark of the containers. A name or namespace that is too long for the device is truncated; the
    /// UID is always complete.
    pub owner: Owner,
    /// `true` if all containers carry this cluster's ownership mark. A pod for which this is `false` was created by an agent that does
    /// not mark clusters. It can be adopted for a pod with the same UID, and is never deleted as an orphan.
    pub marked: bool,
    /// The containers, including those of which only the configuration exists. Never empty.
    pub containers: Vec<HostedContainer>,
    /// The IP address of the pod; `None` if it is not known yet.
    pub ip: Option<IpAddr>,
}

/// The current state of a container on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedContainer {
    /// The name of the container in the pod.
    pub name: String,
    /// The id of the container on the device, with a prefix for the kind of device: `cisco://0000...`.
    pub id: String,
    /// The state of the container.
    pub state: HostedContainerState,
}

/// The state of a container on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedContainerState {
    /// The container does not run yet.
    Waiting {
        /// The stage that its deployment has reached.
        stage: DeploymentStage,
        /// The message of the device, for people: `App state: DEPLOYED`.
        message: String,
    },
    /// The container runs.
    Running,
    /// The container has ended. Supported devices do not report an exit code, so it counts as successful.
    Ended {
        /// The message of the device, for people.
        message: String,
    },
    /// The container failed, and the device does not continue its deployment.
    Failed {
        /// The reason of the failure, as one word in CamelCase.
        reason: String,
        /// The message about the failure, for people.
        message: String,
    },
}

/// The deployment stage of a container that does not run yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentStage {
    /// The container is configured; the device does not have its image yet.
    Configured,
    /// The image is being downloaded or unpacked.
    Installing,
    /// The image is on the device.
    Installed,
    /// The resources are reserved, and the container only has to be started.
    Activated,
    /// The device reports a state that the driver does not know.
    Unknown,
}

impl DeploymentStage {
    /// Returns the reason in the status of the waiting container, as `kubectl get pods` shows it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Configured | Self::Installing | Self::Installed | Self::Activated => "ContainerCreating",
            Self::Unknown => "Unknown",
        }
    }
}
