//! The bodies of the control API.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Install, Kept, Requests};
use crate::milliseconds::Milliseconds;

/// A device and its address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAddress {
    /// The host name of the device.
    pub name: String,
    /// The URL of the device: `http://ADDRESS:PORT` or `https://ADDRESS:PORT`.
    pub url: String,
}

/// Faults for the next requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// The requests that the fault applies to.
    #[serde(default)]
    pub requests: Requests,
    /// The number of requests to which the fault applies.
    pub times: usize,
    /// The fault.
    pub fault: Fault,
}

/// The behaviour of the next installs of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedInstalls {
    /// A part of the name or the package of the app; empty: any app.
    #[serde(default)]
    pub app: String,
    /// The number of installs.
    pub times: usize,
    /// Their behaviour.
    pub install: Install,
}

/// A reboot of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reboot {
    /// The state that survives the reboot.
    pub kept: Kept,
    /// The time for which the device cannot be reached. In JSON, whole milliseconds.
    #[serde(with = "Milliseconds", rename = "down_ms")]
    pub down: Duration,
}
