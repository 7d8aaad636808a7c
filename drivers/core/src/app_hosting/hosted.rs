//! Pods as they are on a device.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::owner::Owner;

/// The pods of a device, by UID; in a pod, the containers in the pod's own order where the device knows it.
pub type HostedPods = Arc<[HostedPod]>;

/// A pod on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedPod {
    /// The owner that its mark names. A name or a namespace that is too long for the device is cut; the UID is
    /// always whole.
    pub owner: Owner,
    /// `true` if it carries the mark of this cluster. One that does not was created by an agent without such marks: it may
    /// be adopted for a pod with its UID, and is never removed as an orphan.
    pub marked: bool,
    /// Its containers, those of which only the configuration exists too. Never empty.
    pub containers: Vec<HostedContainer>,
    /// The pod's address, once one is known.
    pub ip: Option<IpAddr>,
}

/// A container of a pod on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostedContainer {
    /// The name in the pod.
    pub name: String,
    /// The id on the device, with the scheme of the kind of device: `cisco://0000...`.
    pub id: String,
    /// The state.
    pub state: HostedContainerState,
}

/// The state of a container on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedContainerState {
    /// It does not run yet.
    Waiting {
        /// The stage that it has reached.
        stage: DeploymentStage,
        /// The message of the device, for people: `App state: DEPLOYED`.
        message: String,
    },
    /// It runs.
    Running,
    /// It ended. The devices of today do not tell how, which counts as success.
    Ended {
        /// The message of the device, for people.
        message: String,
    },
    /// It failed, and the device will not go on with it.
    Failed {
        /// The reason, one word in CamelCase.
        reason: String,
        /// The message, for people.
        message: String,
    },
}

/// The deployment stage of a container that does not run yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeploymentStage {
    /// It is configured; the device does not have its image yet.
    Configured,
    /// Its image is being fetched or unpacked.
    Installing,
    /// Its image is there.
    Installed,
    /// Its resources are reserved: it only has to be started.
    Activated,
    /// The device is in a state that this driver does not know.
    Unknown,
}

impl DeploymentStage {
    /// The reason of a waiting container, as `kubectl` shows it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Configured | Self::Installing | Self::Installed | Self::Activated => "ContainerCreating",
            Self::Unknown => "Unknown",
        }
    }
}
