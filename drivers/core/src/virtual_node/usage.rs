//! Resource usage of pods.

use serde::{Deserialize, Serialize};

use crate::owner::Owner;

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
