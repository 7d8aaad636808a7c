//! Errors in the format of the CNI specification.

use serde::{Deserialize, Serialize};

/// The error codes of the CNI specification that staffetta uses, and Kuryr's code for every other failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The CNI version of the configuration is not supported.
    IncompatibleVersion = 1,
    /// The container, or its pod, does not exist.
    UnknownContainer = 3,
    /// A variable of the environment is missing or wrong.
    InvalidEnvironment = 4,
    /// Standard input or a file cannot be read or written.
    Io = 5,
    /// The configuration is too long or not a JSON object, or the request to the daemon is malformed.
    Decode = 6,
    /// A field of the configuration is missing or wrong.
    InvalidConfiguration = 7,
    /// The runtime should try again later.
    TryAgainLater = 11,
    /// The plugin cannot serve `ADD` at present.
    Unavailable = 50,
    /// Every other failure.
    Failed = 999,
}

/// An error as the plugin prints it, and as the daemon answers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CniError {
    /// The version of the configuration; `None` if it is unknown.
    #[serde(rename = "cniVersion", default, skip_serializing_if = "Option::is_none")]
    pub cni_version: Option<String>,
    /// The code of the error; codes below 100 are those of the CNI specification.
    pub code: u32,
    /// The message, a short sentence.
    pub msg: String,
    /// The details, which a runtime may show after the message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl CniError {
    /// Creates an error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { cni_version: None, code: code as u32, msg: message.into(), details: String::new() }
    }

    /// Sets the details, which a runtime may show after the message.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
        self
    }
}
