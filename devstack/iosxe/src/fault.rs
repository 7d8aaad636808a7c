//! Faults of a device and of requests to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::milliseconds::Milliseconds;

/// The fate of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// It is refused with this status and an error of this tag (RFC 8040, section 7), and nothing is done.
    Refuse {
        /// The HTTP status.
        code: u16,
        /// The `error-tag`: `lock-denied`, `in-use`, `operation-failed` ...
        tag: String,
    },
    /// It is answered with this, and nothing is done.
    Answer {
        /// The HTTP status.
        code: u16,
        /// The body.
        body: String,
    },
    /// It is done, after this time. In JSON, whole milliseconds.
    #[serde(rename = "delay_ms")]
    Delay(#[serde(with = "Milliseconds")] Duration),
    /// It is not done, and never answered.
    Hang,
    /// It is not done, and the connection is closed.
    Cut,
    /// It is done, and the connection is closed before the answer.
    CutAfter,
    /// It is done, and the answer is no JSON.
    Garbage,
    /// It is done, and what the answer says at this JSON pointer (RFC 6901) is another value. Where nothing stands there, the
    /// answer stays as it is.
    Replace {
        /// The place in the body.
        pointer: String,
        /// The value that replaces it.
        value: Value,
    },
}

/// Selects the requests that a fault applies to. An absent criterion matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Requests {
    /// Only those of this method.
    pub method: Option<String>,
    /// Only those whose path contains this.
    pub path: Option<String>,
    /// Only those of this operation: install, activate, start, stop, deactivate, uninstall of `app-hosting`, copy, delete.
    pub operation: Option<String>,
    /// The number of matching requests that pass first.
    pub skip: usize,
}

impl Requests {
    /// All requests.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Only those of this method.
    #[must_use]
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.into());
        self
    }

    /// Only those whose path contains this.
    #[must_use]
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.into());
        self
    }

    /// Only those of this operation.
    #[must_use]
    pub fn operation(mut self, operation: &str) -> Self {
        self.operation = Some(operation.into());
        self
    }

    /// Only the ones after so many.
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

/// The behaviour of an install.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Install {
    /// It is accepted, takes its time, and leaves nothing: no app, no notification.
    FailsInSilence,
    /// It leaves a notification with this message, and no app.
    Fails(String),
    /// It takes this time, and succeeds. In JSON, whole milliseconds.
    #[serde(rename = "takes_ms")]
    Takes(#[serde(with = "Milliseconds")] Duration),
    /// It ends in the state ERROR, with a notification of this message.
    Breaks(String),
}

/// The reachability of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reachability {
    /// It answers.
    #[default]
    Up,
    /// Connections are refused.
    Refuses,
    /// Connections are made, and nothing is ever answered.
    Hangs,
    /// Connections are reset as soon as they are made.
    Resets,
}

/// The state that a device keeps over a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kept {
    /// Its apps and their configuration. Those that are to start by themselves do.
    Apps,
    /// Only the configuration of the apps.
    Configuration,
    /// Neither.
    Nothing,
}
