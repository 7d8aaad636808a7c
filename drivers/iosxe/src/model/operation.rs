//! The operation `app-hosting` of the module `Cisco-IOS-XE-rpc`: exactly one step of an application's life.

use serde::Serialize;
use serde_json::{Value, json};

/// A step of an application's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Install { appid: String, package: String },
    Activate { appid: String },
    Start { appid: String },
    Stop { appid: String },
    Deactivate { appid: String },
    Uninstall { appid: String },
}

impl Operation {
    /// What it does, as an imperative.
    pub(crate) fn step(&self) -> &'static str {
        match self {
            Self::Install { .. } => "install an app",
            Self::Activate { .. } => "activate an app",
            Self::Start { .. } => "start an app",
            Self::Stop { .. } => "stop an app",
            Self::Deactivate { .. } => "deactivate an app",
            Self::Uninstall { .. } => "uninstall an app",
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
