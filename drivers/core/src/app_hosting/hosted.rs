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
    /// Whose it is, as its mark says. A name or a namespace that is too long for the device is told in part; the UID is
    /// always whole.
    pub owner: Owner,
    /// Whether it carries the mark of this cluster. One that does not was made by an agent that knows no such mark: it may
    /// be taken over for a pod with its UID, and is nobody's orphan.
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
    /// What the device calls it, with the scheme of the device's kind: `cisco://0000...`.
    pub id: String,
    /// How it is.
    pub state: HostedState,
}

/// How a container on a device is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostedState {
    /// It does not run yet.
    Waiting {
        /// How far it is.
        stage: Stage,
        /// What the device says, for people: `App state: DEPLOYED`.
        message: String,
    },
    /// It runs.
    Running,
    /// It ended. The devices of today do not tell how, which counts as success.
    Ended {
        /// What the device says, for people.
        message: String,
    },
    /// It failed, and the device will not go on with it.
    Failed {
        /// Why, in one word of CamelCase.
        reason: String,
        /// Why, for people.
        message: String,
    },
}

/// How far a container is that does not run yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
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

impl Stage {
    /// The reason of a waiting container, as `kubectl` shows it.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Configured | Self::Installing | Self::Installed | Self::Activated => "ContainerCreating",
            Self::Unknown => "Unknown",
        }
    }
}
