//! The operations of the YANG module `Cisco-IOS-XE-rpc` that this crate calls: lifecycle steps of applications, and
//! file operations.

use serde::Serialize;
use serde_json::{Value, json};

/// An RPC operation of the device. The device responds to a lifecycle step when it has accepted the step, and to a file
/// operation when the operation is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeviceOperation {
    /// Installs the package of an application, from a file of the device or from a URL.
    Install { appid: String, package: String },
    /// Reserves the resources of an installed application.
    Activate { appid: String },
    /// Starts an activated application.
    Start { appid: String },
    /// Stops a running application.
    Stop { appid: String },
    /// Releases the resources of a stopped application.
    Deactivate { appid: String },
    /// Removes the package of an application.
    Uninstall { appid: String },
    /// Makes the device fetch the URL `from` and store the file as `to`.
    #[serde(untagged)]
    Copy {
        #[serde(rename = "source-drop-node-name")]
        from: String,
        #[serde(rename = "destination-drop-node-name")]
        to: String,
    },
    /// Deletes a file on the device.
    #[serde(untagged)]
    Delete {
        #[serde(rename = "filename-drop-node-name")]
        file: String,
    },
}

impl DeviceOperation {
    /// Returns the path of the operation below the RESTCONF root.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "operations/Cisco-IOS-XE-rpc:copy",
            Self::Delete { .. } => "operations/Cisco-IOS-XE-rpc:delete",
            _ => "operations/Cisco-IOS-XE-rpc:app-hosting",
        }
    }

    /// Returns the operation in words, as an imperative, for errors.
    pub(crate) fn step(&self) -> &'static str {
        match self {
            Self::Install { .. } => "install an app",
            Self::Activate { .. } => "activate an app",
            Self::Start { .. } => "start an app",
            Self::Stop { .. } => "stop an app",
            Self::Deactivate { .. } => "deactivate an app",
            Self::Uninstall { .. } => "uninstall an app",
            Self::Copy { .. } => "copy a package to the flash",
            Self::Delete { .. } => "delete a package from the flash",
        }
    }

    /// Returns the input of the operation as JSON, without the envelope of RFC 8040.
    pub(crate) fn input(&self) -> Value {
        json!(self)
    }
}

/// Returns the input of an operation in the envelope that RFC 8040, section 3.6.1 requires.
pub(crate) fn in_envelope(input: &Value) -> Value {
    json!({ "Cisco-IOS-XE-rpc:input": input })
}
