//! Error responses of devices (RFC 8040, sections 3.9 and 7.1).

use std::collections::BTreeMap;
use std::fmt;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;
use staffetta_driver::{DriverError, Reason};
use tracing::debug;

use super::RequestFailure;
use crate::model::quote::quoted;

/// An error response of a device, or an error in the output of an operation with a success status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ErrorResponse {
    status: StatusCode,
    /// The `error-tag`; `None` if the response does not have the format of RFC 8040.
    tag: Option<String>,
    message: String,
}

/// One entry of the list `error` in a response. Some devices send a single object instead of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorEntry {
    #[serde(rename = "error-tag")]
    tag: String,
    #[serde(rename = "error-message")]
    message: String,
    #[serde(rename = "error-path")]
    path: String,
}

impl ErrorResponse {
    /// Decodes the body of an error response.
    pub(super) fn read(status: StatusCode, body: &[u8]) -> Self {
        if let Some(entry) = entry(body) {
            let ErrorEntry { tag, message, path } = entry;
            let at = if path.is_empty() { String::new() } else { format!(" at {path}") };
            return Self { status, tag: Some(quoted(&tag)), message: quoted(&format!("{message}{at}")) };
        }
        Self { status, tag: None, message: quoted(&String::from_utf8_lossy(body)) }
    }

    /// Returns the error in the output of an operation with a success status: some devices report errors only there, in
    /// a text that starts with `%`. `None` if there is none.
    pub(super) fn in_output(status: StatusCode, body: &[u8]) -> Option<Self> {
        let top: BTreeMap<String, Value> = serde_json::from_slice(body).ok()?;
        let device_text = top.into_values().next()?["result"].as_str()?.trim().to_owned();
        device_text.starts_with('%').then(|| Self { status, tag: None, message: quoted(&device_text) })
    }

    /// Returns `true` if the response has this `error-tag`.
    pub(super) fn has_tag(&self, tag: &str) -> bool {
        self.tag.as_deref() == Some(tag)
    }

    /// Returns `true` if the API reports with a 404 that the resource is supported and has no data. A 404 without the error format of RFC
    /// 8040 may come from something else than the API.
    pub(super) fn is_nothing_there(&self) -> bool {
        let unknown =
            |tag: &str| matches!(tag, "unknown-element" | "unknown-namespace" | "operation-not-supported");
        self.status == StatusCode::NOT_FOUND && self.tag.as_deref().is_some_and(|tag| !unknown(tag))
    }

    /// Returns the driver's reason for the error, which depends only on the HTTP status.
    fn reason(&self) -> Reason {
        match self.status.as_u16() {
            300..=399 | 408 | 429 | 500 | 502..=504 => Reason::Unavailable,
            409 => Reason::Conflict,
            404 => Reason::NotFound,
            405 | 501 => Reason::Unsupported,
            _ => Reason::Refused,
        }
    }

    /// Returns only the HTTP status, for the errors of reads. These errors are shown in the status of a node and of its
    /// `CiscoDevice`, and the author of a `CiscoDevice` may name the address of another server, whose response must not
    /// be disclosed there. The log contains the message at the level `debug`.
    pub(super) fn status_only(&self) -> String {
        debug!(answer = %self, "a request was answered with an error");
        format!("HTTP {}", self.status.as_u16())
    }

    /// Converts the response into a [`RequestFailure`]. `changes` is `true` if the request changes the device: then the message of the
    /// device is quoted, and the error of a server status (5xx) says that the request may have taken effect.
    pub(super) fn fault(self, step: &'static str, changes: bool) -> RequestFailure {
        let device_text = if changes { self.to_string() } else { self.status_only() };
        let error = DriverError::new(self.reason(), step).detail(device_text.clone());
        let error = if changes && self.status.is_server_error() { error.maybe_applied() } else { error };
        RequestFailure { error: Box::new(error), device_text: Some(device_text), timed_out: false }
    }
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status.as_u16())?;
        if let Some(tag) = self.tag.as_deref().filter(|tag| !tag.is_empty()) {
            write!(f, " {tag}")?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

/// Returns the first error of a response in the format of RFC 8040, with or without a module prefix; `None` for another
/// format.
fn entry(body: &[u8]) -> Option<ErrorEntry> {
    let mut top: serde_json::Map<String, Value> = serde_json::from_slice(body).ok()?;
    let errors = top.remove("ietf-restconf:errors").or_else(|| top.remove("errors"))?;
    let error = match errors.get("error")? {
        Value::Array(list) => list.first()?,
        one => one,
    };
    serde_json::from_value(error.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::quote::QUOTED;

    fn read(status: u16, body: &str) -> ErrorResponse {
        ErrorResponse::read(StatusCode::from_u16(status).unwrap(), body.as_bytes())
    }

    #[test]
    fn a_list_and_a_lone_error_are_read_with_and_without_the_module() {
        let error = r#"{"error-type":"application","error-tag":"data-exists","error-message":"it exists"}"#;
        for body in [
            format!(r#"{{"ietf-restconf:errors":{{"error":[{error}]}}}}"#),
            format!(r#"{{"ietf-restconf:errors":{{"error":{error}}}}}"#),
            format!(r#"{{"errors":{{"error":[{error}]}}}}"#),
        ] {
            let refusal = read(409, &body);
            assert!(refusal.has_tag("data-exists"), "{refusal}");
            assert_eq!(refusal.to_string(), "HTTP 409 data-exists: it exists");
        }
    }

    #[test]
    fn what_is_no_error_of_the_api_is_quoted_in_part() {
        let refusal = read(502, &format!("<html>\n{}", "x".repeat(1000)));
        assert_eq!(refusal.to_string().len(), "HTTP 502: ".len() + QUOTED);
        let tag = format!(r#"{{"errors":{{"error":{{"error-tag":"{}"}}}}}}"#, "t".repeat(1000));
        assert_eq!(read(409, &tag).to_string().len(), "HTTP 409 ".len() + QUOTED);
        assert_eq!(read(400, "").to_string(), "HTTP 400");
        assert!(read(400, r#"{"errors":{"error":[]}}"#).tag.is_none());
    }

    #[test]
    fn an_error_in_the_output_of_an_operation_is_one_and_any_other_word_is_none() {
        let in_output = |result: &str| {
            let body = serde_json::json!({ "Cisco-IOS-XE-rpc:output": { "result": result } });
            ErrorResponse::in_output(StatusCode::OK, body.to_string().as_bytes())
        };
        let reported = in_output("\n%Error opening http://h/a.tar (No such file)").unwrap();
        assert_eq!(reported.to_string(), "HTTP 200: %Error opening http://h/a.tar (No such file)");
        assert!(!reported.fault("copy", true).error.transient());
        assert_eq!(in_output("RPC request successful"), None);
        assert_eq!(ErrorResponse::in_output(StatusCode::NO_CONTENT, b""), None);
    }

    #[test]
    fn nothing_is_there_only_when_the_api_says_so() {
        let tagged = |tag: &str| format!(r#"{{"errors":{{"error":[{{"error-tag":"{tag}"}}]}}}}"#);
        assert!(read(404, &tagged("invalid-value")).is_nothing_there());
        assert!(read(404, &tagged("data-missing")).is_nothing_there());
        assert!(!read(404, &tagged("unknown-element")).is_nothing_there());
        assert!(!read(404, "<html>no such page").is_nothing_there());
        assert!(!read(400, &tagged("invalid-value")).is_nothing_there());
    }

    #[test]
    fn what_may_be_repeated_is_transient_and_what_was_refused_is_not() {
        for status in [408, 409, 429, 500, 502, 503, 504, 302] {
            assert!(read(status, "").fault("ask", false).error.transient(), "{status}");
        }
        for status in [400, 403, 404, 405, 412, 415] {
            assert!(!read(status, "").fault("ask", false).error.transient(), "{status}");
        }
        assert!(read(500, "").fault("ask", true).error.ambiguous());
        assert!(!read(500, "").fault("ask", false).error.ambiguous());
        assert!(!read(400, "").fault("ask", true).error.ambiguous());
    }
}
