//! The properties and the resources of a device (a router or a switch) that runs pods.

use serde::{Deserialize, Serialize};

/// The properties of a device that runs pods. A property that the device does not report is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceInfo {
    /// The serial number of the chassis.
    pub serial_number: String,
    /// The version of the operating system: `17.12.1`.
    pub software_version: String,
    /// The product id by which the device is ordered: `C9300-24T`.
    pub product_id: String,
    /// The name of the operating system: `IOS-XE`.
    pub system: String,
    /// The CPU architecture of containers, as in the label `kubernetes.io/arch`: `amd64`.
    pub architecture: String,
}

/// The resources of a device that are available to applications.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceResources {
    /// `true` if application hosting is switched on (on IOS-XE: `iox`). Pods can only run while it is.
    pub enabled: bool,
    /// The total CPU, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// The free CPU, in thousandths of a CPU.
    pub free_cpu_millis: u64,
    /// The total memory, in bytes.
    pub memory_bytes: u64,
    /// The free memory, in bytes.
    pub free_memory_bytes: u64,
    /// The total storage, in bytes.
    pub storage_bytes: u64,
    /// The free storage, in bytes.
    pub free_storage_bytes: u64,
    /// The resources that are reserved by applications that do not belong to this cluster.
    #[serde(default)]
    pub taken: ReservedResources,
}

/// Resources of a device that are reserved by applications that do not belong to this cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservedResources {
    /// The reserved CPU, in thousandths of a CPU.
    pub cpu_millis: u64,
    /// The reserved memory, in bytes.
    pub memory_bytes: u64,
    /// The reserved storage, in bytes.
    pub storage_bytes: u64,
}
