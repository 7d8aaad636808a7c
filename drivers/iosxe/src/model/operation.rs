//! The operations of the module `Cisco-IOS-XE-rpc`: steps of an application's life, and files of a device.

use serde::Serialize;
use serde_json::{Value, json};

/// An operation. The device answers a step of an application's life when it has accepted it, and all others when they are done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Install {
        appid: String,
        package: String,
    },
    Activate {
        appid: String,
    },
    Start {
        appid: String,
    },
    Stop {
        appid: String,
    },
    Deactivate {
        appid: String,
    },
    Uninstall {
        appid: String,
    },
    /// The device fetches `from` and stores it as `to`.
    #[serde(untagged)]
    Copy {
        #[serde(rename = "source-drop-node-name")]
        from: String,
        #[serde(rename = "destination-drop-node-name")]
        to: String,
    },
    #[serde(untagged)]
    Delete {
        #[serde(rename = "filename-drop-node-name")]
        file: String,
    },
}

impl Operation {
    /// The path of the request below the RESTCONF root.
    pub(crate) fn path(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "operations/Cisco-IOS-XE-rpc:copy",
            Self::Delete { .. } => "operations/Cisco-IOS-XE-rpc:delete",
            _ => "operations/Cisco-IOS-XE-rpc:app-hosting",
        }
    }

    /// The step in words, as an imperative.
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

    /// Its input, without the envelope of RFC 8040.
    pub(crate) fn input(&self) -> Value {
        json!(self)
    }
}

/// The input of an operation in its envelope (RFC 8040, section 3.6.1).
pub(crate) fn in_envelope(input: &Value) -> Value {
    json!({ "Cisco-IOS-XE-rpc:input": input })
}
