//! Facts about a device and its resources.

use serde::{Deserialize, Serialize};

/// Facts about a device. A fact that it does not report is empty.
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

/// The resources of a device for applications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceResources {
    /// `true` if application hosting is enabled at this moment.
    pub enabled: bool,
    /// Processor time, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// The free part of it.
    pub free_cpu_millis: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// The free part of it.
    pub free_memory_bytes: u64,
    /// Storage, in bytes.
    pub storage_bytes: u64,
    /// The free part of it.
    pub free_storage_bytes: u64,
    /// The part of the capacity that is reserved by applications of others.
    #[serde(default)]
    pub taken: ReservedResources,
}

/// Resources that are reserved by applications that are not this cluster's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedResources {
    /// Processor time, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Storage, in bytes.
    pub storage_bytes: u64,
}
