//! Workloads as read from a machine.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use staffetta_driver::Owner;

/// All that runs on a machine of ours, by owner; each owner once.
pub type Workloads = Arc<[Arc<Workload>]>;

/// A pod as it is on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// The owning pod. The UID is complete; the machine may have shortened names.
    pub owner: Owner,
    /// `true` if it carries the mark of this cluster; only such workloads are removed when their owner is gone.
    pub ours: bool,
    /// Its containers.
    pub containers: Vec<ObservedContainer>,
    /// The address of the pod, once one is known.
    pub ip: Option<IpAddr>,
}

/// A container on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedContainer {
    /// The name in the pod.
    pub name: String,
    /// The machine's id with a scheme, `cisco://...`. It differs between runs of a container if the machine
    /// distinguishes them.
    pub id: String,
    /// The state of the container.
    pub state: ContainerState,
}

/// The state of a container on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It does not run yet.
    Waiting {
        /// The reason, in CamelCase.
        reason: Cow<'static, str>,
        /// The message.
        message: String,
    },
    /// It runs.
    Running {
        /// The start time, if the machine knows it.
        since: Option<Timestamp>,
    },
    /// It ended.
    Ended {
        /// 0 is success.
        exit_code: i32,
        /// The reason, in CamelCase.
        reason: Cow<'static, str>,
        /// The message.
        message: String,
    },
}

impl Workload {
    /// The container with this name.
    pub fn container(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|container| container.name == name)
    }
}
