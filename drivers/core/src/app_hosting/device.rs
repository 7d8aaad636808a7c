//! What a device is, and what it has.

use serde::{Deserialize, Serialize};

/// What a device is. What it does not tell is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// The serial number of the chassis.
    pub serial_number: String,
    /// The version of its software: `17.12.1`.
    pub software_version: String,
    /// The name by which it is ordered: `C9300-24T`.
    pub product_id: String,
    /// The name of its system: `IOS-XE`.
    pub system: String,
    /// The architecture of what it runs, as `kubernetes.io/arch` names it: `amd64`.
    pub architecture: String,
}

/// What a device has for applications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceResources {
    /// Whether it hosts applications at all at this moment.
    pub enabled: bool,
    /// Processor time, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// What of it is free.
    pub free_cpu_millis: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// What of it is free.
    pub free_memory_bytes: u64,
    /// Storage, in bytes.
    pub storage_bytes: u64,
    /// What of it is free.
    pub free_storage_bytes: u64,
    /// What of all that pods cannot have: somebody else has reserved it.
    #[serde(default)]
    pub taken: TakenResources,
}

/// What applications have reserved that are not this cluster's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenResources {
    /// Processor time, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Storage, in bytes.
    pub storage_bytes: u64,
}
