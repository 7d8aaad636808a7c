//! What runs on a machine, as it was read.

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
    /// Whose it is. The UID is whole; names may have been cut by the machine.
    pub owner: Owner,
    /// Whether it carries the mark of this cluster; only such ones are removed when their owner is gone.
    pub ours: bool,
    /// What stands for its containers.
    pub containers: Vec<ContainerSight>,
    /// The address of the pod, once one is known.
    pub ip: Option<IpAddr>,
}

/// What stands for a container on a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerSight {
    /// The name in the pod.
    pub name: String,
    /// What the machine calls it, with a scheme: `cisco://...`. It tells one run of a container from the next where the machine
    /// does so.
    pub id: String,
    /// How it is.
    pub state: ContainerState,
}

/// How something that stands for a container is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// It does not run yet.
    Waiting {
        /// Why, in one word of CamelCase.
        reason: Cow<'static, str>,
        /// Why, for people.
        message: String,
    },
    /// It runs.
    Running {
        /// Since when, where the machine knows.
        since: Option<Timestamp>,
    },
    /// It ended.
    Ended {
        /// 0 is success.
        exit_code: i32,
        /// Why, in one word of CamelCase.
        reason: Cow<'static, str>,
        /// Why, for people.
        message: String,
    },
}

impl Workload {
    /// What stands for the container of that name.
    pub fn container(&self, name: &str) -> Option<&ContainerSight> {
        self.containers.iter().find(|container| container.name == name)
    }
}
