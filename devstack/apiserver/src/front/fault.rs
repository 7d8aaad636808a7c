//! Faults of requests.

use std::time::Duration;

use serde_json::{Value, json};

use crate::status::{Cause, Status};

/// The fate of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is refused with this HTTP status, and nothing is done.
    Refuse {
        /// The HTTP status.
        code: u16,
        /// Seconds for the `Retry-After` header.
        retry_after: Option<u64>,
    },
    /// It is refused before anybody looks at it, as a real server does that has too much to do or ends: in plain text, and when
    /// to come again stands in the header alone.
    Busy {
        /// The HTTP status: 429 or 503.
        code: u16,
        /// Seconds for the `Retry-After` header.
        retry_after: u64,
    },
    /// It is answered with this, and nothing is done. Text that is no JSON object goes out as plain text.
    Answer {
        /// The HTTP status.
        code: u16,
        /// The body.
        body: String,
    },
    /// It is done, after this time.
    Delay(Duration),
    /// It is done when the test says so: [`Faults::let_go`](crate::Faults::let_go).
    Hold,
    /// It is not done, and never answered.
    Hang,
    /// It is done, and never answered.
    HangAfter,
    /// It is not done, and the connection is cut.
    Cut,
    /// It is done, and the connection is cut before the answer.
    CutAfter,
    /// It is done, and the connection is cut in the middle of the answer; in a watch in the middle of its first event.
    /// (A bookmark is no event, here and below.)
    CutMid,
    /// It is done, and the answer is no JSON; in a watch the first event is not, and the others follow.
    Garbage,
    /// It is done, and one object looks otherwise wherever the answer shows it: alone, in a list, in all events of a watch.
    Replace {
        /// The name of the object.
        name: String,
        /// The place in the object, a JSON pointer (RFC 6901). Where its parent is absent, nothing is changed.
        pointer: String,
        /// The value that replaces it.
        value: Value,
    },
}

impl Fault {
    /// A refusal with this HTTP status.
    #[must_use]
    pub fn status(code: u16) -> Self {
        Self::Refuse { code, retry_after: None }
    }

    /// A refusal with 422 for these fields, each with its reason: `("metadata.uid", "FieldValueInvalid")`.
    #[must_use]
    pub fn invalid(fields: &[(&str, &'static str)]) -> Self {
        let causes: Vec<_> =
            fields.iter().map(|(field, reason)| Cause::of_reason(reason, field, CHOSEN)).collect();
        let status = Status::invalid_kind("", "Object", "chosen", &causes);
        Self::Answer { code: status.code(), body: status.json().to_string() }
    }

    /// For a watch: it begins, says an ERROR event with this code, and ends. 410 is how a real server says that the
    /// version asked for has left its history.
    #[must_use]
    pub fn watch_error(code: u16) -> Self {
        let event = json!({"type": "ERROR", "object": Status::of_code(code, CHOSEN).json()});
        Self::Answer { code: 200, body: format!("{event}\n") }
    }

    /// An object that nobody can decode: what stands at this JSON pointer is a string.
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
