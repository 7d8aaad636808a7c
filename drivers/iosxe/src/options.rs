//! The options of the driver for IOS-XE devices: the section `[iosxe]` of the configuration file.

use std::num::NonZeroU64;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time limits of the driver for IOS-XE devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IosXeOptions {
    /// The time limit of a request that changes the device, in milliseconds. A request that exceeds it is a failure of its
    /// application, not of the device.
    pub request_timeout_ms: NonZeroU64,
    /// The time limit of a request that only reads, in milliseconds. A device that exceeds it repeatedly is unreachable.
    pub read_timeout_ms: NonZeroU64,
    /// The time limit of opening a connection, in milliseconds.
    pub connect_timeout_ms: NonZeroU64,
    /// The duration of an install, in milliseconds, after which an Event says that it is slow. An install of a package that
    /// is stored on the device counts as failed if the device has not reported the application by then.
    pub slow_install_ms: NonZeroU64,
    /// The time limit of installing a package that is on the device, in milliseconds; after it the install counts as
    /// failed. It is cancelled only when its pod is deleted.
    pub install_limit_ms: NonZeroU64,
    /// The time limit of installing a package that the device downloads, in milliseconds; after it the package is
    /// copied to the flash instead, with the same limit.
    pub download_limit_ms: NonZeroU64,
    /// The time limit of a step other than an install, after which it is retried, in milliseconds.
    pub step_limit_ms: NonZeroU64,
}

impl Default for IosXeOptions {
    fn default() -> Self {
        let count = |number| NonZeroU64::new(number).expect("the defaults are not zero");
        Self {
            request_timeout_ms: count(30_000),
            read_timeout_ms: count(10_000),
            connect_timeout_ms: count(5_000),
            slow_install_ms: count(120_000),
            install_limit_ms: count(600_000),
            download_limit_ms: count(600_000),
            step_limit_ms: count(30_000),
        }
    }
}

/// Converts an option in milliseconds into a duration.
pub(crate) fn milliseconds(option: NonZeroU64) -> Duration {
    Duration::from_millis(option.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_nothing_are_refused() {
        let options = serde_json::json!({ "step_limit_ms": 0 });
        assert!(serde_json::from_value::<IosXeOptions>(options).is_err());
    }
}
