//! Faults of a device and of requests to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::milliseconds::Milliseconds;

/// A fault of a request: it changes the execution of the request, its response or its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The request is rejected with this HTTP status and an error with this tag (RFC 8040, section 7), and is not executed.
    Refuse {
        /// The HTTP status.
        code: u16,
        /// The `error-tag`: `lock-denied`, `in-use`, `operation-failed` ...
        tag: String,
    },
    /// The request gets this response and is not executed.
    Answer {
        /// The HTTP status.
        code: u16,
        /// The body.
        body: String,
    },
    /// The request is executed after this time. In JSON, whole milliseconds.
    #[serde(rename = "delay_ms")]
    Delay(#[serde(with = "Milliseconds")] Duration),
    /// The request is not executed, and gets no response.
    Hang,
    /// The request is not executed, and its connection is closed.
    Cut,
    /// The request is executed, and its connection is closed before the response.
    CutAfter,
    /// The request is executed, but its response is not valid JSON.
    Garbage,
    /// The request is executed, but the value at this JSON pointer (RFC 6901) in the response is replaced. If there is no such
    /// value, the response stays unchanged.
    Replace {
        /// The place in the body of the response.
        pointer: String,
        /// The value to put there.
        value: Value,
    },
}

/// A selector of the requests to which a fault applies. A request must match all criteria; an absent criterion matches
/// everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// The HTTP method.
    pub method: Option<String>,
    /// A part of the path.
    pub path: Option<String>,
    /// The operation: install, activate, start, stop, deactivate or uninstall of `app-hosting`, copy, or delete.
    pub operation: Option<String>,
    /// The number of matching requests to which the fault does not apply yet.
    pub skip: usize,
}

impl Requests {
    /// Returns a selector of all requests.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Selects only requests with this HTTP method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Selects only requests whose path contains `part`.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.into());
        self
    }

    /// Selects only requests for this operation.
    #[must_use]
    pub fn operation(mut self, operation: &str) -> Self {
        self.operation = Some(operation.into());
        self
    }

    /// Excludes the first `count` matching requests.
    #[must_use]
    pub fn after(mut self, count: usize) -> Self {
        self.skip = count;
        self
    }

    /// Is this one of them? `operation` is that of the request, if it is one.
    pub(crate) fn include(&self, method: &str, path: &str, operation: Option<&str>) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted == method)
            && self.path.as_deref().is_none_or(|part| path.contains(part))
            && self.operation.as_deref().is_none_or(|wanted| operation == Some(wanted))
    }
}

/// The behaviour of an installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Install {
    /// The installation is accepted and takes its time, but has no result: neither an app nor a notification.
    FailsInSilence,
    /// The installation fails with a notification that contains this message.
    Fails(String),
    /// The installation takes this time and succeeds. In JSON, whole milliseconds.
    #[serde(rename = "takes_ms")]
    Takes(#[serde(with = "Milliseconds")] Duration),
    /// The app ends in the state ERROR, with a notification that contains this message.
    Breaks(String),
}

/// The reachability of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reachability {
    /// The device responds.
    #[default]
    Up,
    /// Connections are refused.
    Refuses,
    /// Connections are accepted, but no request gets a response.
    Hangs,
    /// Connections are reset as soon as they are established.
    Resets,
}

/// The state that a device keeps over a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// The apps and their configuration. Apps that are configured to start automatically do so.
    Apps,
    /// Only the configuration of the apps.
    Configuration,
    /// Neither apps nor configuration.
    Nothing,
}
