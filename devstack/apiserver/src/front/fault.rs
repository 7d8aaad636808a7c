//! The faults that a test can inject into requests.

use std::time::Duration;

use serde_json::{Value, json};

use crate::status::{Cause, Status};

/// A fault of a request: it changes the execution of the request, its response or its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request is rejected with this HTTP status and a `Status` object, and is not executed.
    Refuse {
        /// The HTTP status.
        code: u16,
        /// The value of the `Retry-After` header, in seconds.
        retry_after: Option<u64>,
    },
    /// The request is rejected before it is parsed, as by a real server that is overloaded or shutting down: in plain text, with
    /// the delay before a retry only in the header.
    Busy {
        /// The HTTP status: 429 or 503.
        code: u16,
        /// The value of the `Retry-After` header, in seconds.
        retry_after: u64,
    },
    /// The request gets this response and is not executed. A text that is not a JSON object is sent as plain text.
    Answer {
        /// The HTTP status.
        code: u16,
        /// The body.
        body: String,
    },
    /// The request is executed after this time.
    Delay(Duration),
    /// The request is executed when the test calls [`Faults::let_go`](crate::Faults::let_go).
    Hold,
    /// The request is not executed, and gets no response.
    Hang,
    /// The request is executed, but gets no response.
    HangAfter,
    /// The request is not executed, and its connection is cut.
    Cut,
    /// The request is executed, and its connection is cut before the response.
    CutAfter,
    /// The request is executed, and its connection is cut in the middle of the response; in a watch, in the middle of the first
    /// event. (A bookmark does not count as an event, here and below.)
    CutMid,
    /// The request is executed, but its response is not valid JSON. In a watch, only the first event is invalid.
    Garbage,
    /// The request is executed, but one object is changed wherever the response contains it: alone, in a list, or in all events
    /// of a watch.
    Replace {
        /// The name of the object.
        name: String,
        /// The place in the object, a JSON pointer (RFC 6901). If its parent does not exist, nothing is changed.
        pointer: String,
        /// The value to put there.
        value: Value,
    },
}

impl Fault {
    /// Returns a rejection with this HTTP status.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::Refuse { code, retry_after: None }
    }

    /// Returns a rejection with 422 for these fields, each with its reason: `("metadata.uid", "FieldValueInvalid")`.
    #[must_use]
    pub fn invalid(fields: &[(&str, &'static str)]) -> Self {
        let causes: Vec<_> =
            fields.iter().map(|(field, reason)| Cause::of_reason(reason, field, CHOSEN)).collect();
        let status = Status::invalid_kind("", "Object", "chosen", &causes);
        Self::Answer { code: status.code(), body: status.json().to_string() }
    }

    /// Returns a fault of watches: the watch begins, sends an ERROR event with this code, and ends. A real server sends 410 if
    /// the requested version is not in its history any more.
    #[must_use]
    pub fn watch_error(code: u16) -> Self {
        let event = json!({"type": "ERROR", "object": Status::of_code(code, CHOSEN).json()});
        Self::Answer { code: 200, body: format!("{event}\n") }
    }

    /// Returns a fault that makes an object undecodable: the value at this JSON pointer becomes a string.
    #[must_use]
    pub fn undecodable(name: &str, pointer: &str) -> Self {
        Self::Replace { name: name.into(), pointer: pointer.into(), value: CHOSEN.into() }
    }

    /// The Status of a refusal.
    pub(super) fn refusal(code: u16, retry_after: Option<u64>) -> Status {
        let status = Status::of_code(code, CHOSEN);
        match retry_after {
            Some(seconds) => status.detail("retryAfterSeconds", seconds.into()),
            None => status,
        }
    }
}

const CHOSEN: &str = "this request was chosen to fail";
