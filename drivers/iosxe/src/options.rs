//! The section `[iosxe]`.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How patient the driver of IOS-XE devices is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IosXeOptions {
    /// How long a device may take to answer a request, in milliseconds.
    #[schemars(range(min = 1))]
    pub request_timeout_ms: u64,
    /// How long a device may take to accept a connection, in milliseconds.
    #[schemars(range(min = 1))]
    pub connect_timeout_ms: u64,
    /// How long the install of a package that is on the device may take before it counts as failed, in milliseconds.
    #[schemars(range(min = 1))]
    pub install_limit_ms: u64,
    /// How long the install of a package that the device fetches from a URL may take before the package is copied to its flash
    /// instead, and how long that may take, in milliseconds.
    #[schemars(range(min = 1))]
    pub download_limit_ms: u64,
    /// How long any other step may take before it is tried again, in milliseconds.
    #[schemars(range(min = 1))]
    pub step_limit_ms: u64,
}

impl Default for IosXeOptions {
    fn default() -> Self {
        Self {
            request_timeout_ms: 30_000,
            connect_timeout_ms: 5_000,
            install_limit_ms: 120_000,
            download_limit_ms: 600_000,
            step_limit_ms: 30_000,
        }
    }
}

impl IosXeOptions {
    /// The first option that is 0.
    pub(crate) fn zero(&self) -> Option<&'static str> {
        let options = [
            ("request_timeout_ms", self.request_timeout_ms),
            ("connect_timeout_ms", self.connect_timeout_ms),
            ("install_limit_ms", self.install_limit_ms),
            ("download_limit_ms", self.download_limit_ms),
            ("step_limit_ms", self.step_limit_ms),
        ];
        options.into_iter().find(|(_, value)| *value == 0).map(|(name, _)| name)
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_millis(self.request_timeout_ms)
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.connect_timeout_ms)
    }
}
