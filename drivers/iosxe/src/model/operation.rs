//! The operation `app-hosting` of the module `Cisco-IOS-XE-rpc`: exactly one step of an application's life.

use serde::Serialize;

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

    /// The body of its request (RFC 8040, section 3.6.1).
    pub(crate) fn body(&self) -> serde_json::Value {
        serde_json::json!({ "Cisco-IOS-XE-rpc:input": self })
    }

    /// The body that older releases expect.
    pub(crate) fn bare_body(&self) -> serde_json::Value {
        serde_json::json!(self)
    }
}
