//! The section `[iosxe]`.

use std::num::NonZeroU64;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Time limits of the driver for IOS-XE devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct IosXeOptions {
    /// The time limit of a request, in milliseconds.
    pub request_timeout_ms: NonZeroU64,
    /// The time limit of opening a connection, in milliseconds.
    pub connect_timeout_ms: NonZeroU64,
    /// The time limit of installing a package that is on the device, in milliseconds; after it the install counts as
    /// failed.
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
            connect_timeout_ms: count(5_000),
            install_limit_ms: count(120_000),
            download_limit_ms: count(600_000),
            step_limit_ms: count(30_000),
        }
    }
}

/// An option in milliseconds as a duration.
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
