//! The bodies of the control API.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, Install, Kept, Requests};
use crate::milliseconds::Milliseconds;

/// A device and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAddress {
    /// Its host name.
    pub name: String,
    /// `http://ADDRESS:PORT`, or `https://`.
    pub url: String,
}

/// What goes wrong with the next requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Injection {
    /// Which requests.
    #[serde(default)]
    pub requests: Requests,
    /// How many of them.
    pub times: usize,
    /// What happens to them.
    pub fault: Fault,
}

/// How the next installs of an app go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedInstalls {
    /// A part of the name or the package of the app; empty: any app.
    #[serde(default)]
    pub app: String,
    /// How many installs.
    pub times: usize,
    /// How they go.
    pub install: Install,
}

/// A device goes down and comes up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reboot {
    /// What it knows after that.
    pub kept: Kept,
    /// For how long it is down. In JSON, whole milliseconds.
    #[serde(with = "Milliseconds", rename = "down_ms")]
    pub down: Duration,
}
