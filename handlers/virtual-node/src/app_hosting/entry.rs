//! A device in the configuration or in a file.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::device::DeviceDescription;

/// A device in the configuration or in a file, with the name of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeviceEntry<S = Map<String, Value>> {
    /// The name of the node of the device; if absent, `cisco-vk-` and the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), extend("format" = "dns-name"))]
    pub name: Option<String>,
    /// A file with the password, which overrides the password in `device`. It is read each time the connection to the
    /// device is opened, and must exist at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_file: Option<PathBuf>,
    /// The specification of the device.
    pub device: DeviceDescription<S>,
}
