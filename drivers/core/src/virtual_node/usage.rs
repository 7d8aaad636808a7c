//! What pods use.

use serde::{Deserialize, Serialize};

use crate::owner::Owner;

/// What a pod uses at this moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodUsage {
    /// Whose it is.
    pub owner: Owner,
    /// What its containers use.
    pub containers: Vec<ContainerUsage>,
    /// The bytes that it received since it started.
    pub received_bytes: Option<u64>,
    /// The bytes that it sent since it started.
    pub sent_bytes: Option<u64>,
}

/// What a container uses at this moment. What the machine does not tell is absent.
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
