//! A device of a list, in a file or in the configuration.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::app_hosting::DeviceSpec;

/// A device of a list, with the name of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceEntry {
    /// The name of its node; `cisco-vk-` and the address if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("format" = "dns-name"))]
    pub name: Option<String>,
    /// A file with the password of the account, which overrides the one in `device`. It is read whenever the connection to the
    /// device is opened, and must exist at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The description of the device.
    pub device: DeviceSpec,
}
