//! Responses: data, no content, or an error (RFC 8040, section 7).

use std::time::Duration;

use serde_json::{Value, json};

use super::YANG_JSON;
use crate::options::ErrorForm;
use crate::schema::Invalid;

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: String,
    /// The path of what was made.
    pub(crate) location: Option<String>,
    /// The delay before the answer.
    pub(crate) after: Duration,
}

impl Answer {
    /// Without a body.
    pub(crate) fn code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// 200 with data.
    pub(crate) fn json(data: &Value) -> Self {
        Self { content_type: Some(YANG_JSON), body: data.to_string(), ..Self::code(200) }
    }
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    code: u16,
    tag: String,
    app_tag: Option<&'static str>,
    path: Option<String>,
    message: String,
}

impl Problem {
    pub(crate) fn new(code: u16, tag: &str, message: String) -> Self {
        Self { code, tag: tag.to_owned(), app_tag: None, path: None, message }
    }

    pub(crate) fn not_found(path: &str) -> Self {
        Self {
            path: Some(path.to_owned()),
            ..Self::new(404, "invalid-value", "uri keypath not found".into())
        }
    }

    pub(crate) fn method() -> Self {
        Self::new(405, "operation-not-supported", "this resource does not have this method".into())
    }

    pub(crate) fn malformed(message: &str) -> Self {
        Self::new(400, "malformed-message", message.into())
    }

    pub(crate) fn denied() -> Self {
        Self::new(401, "access-denied", "access denied".into())
    }

    pub(crate) fn answer(&self, form: ErrorForm) -> Answer {
        let mut error = json!({
            "error-type": if self.code == 401 || self.tag == "malformed-message" { "protocol" } else { "application" },
            "error-tag": self.tag,
            "error-message": self.message,
        });
        if let Some(path) = &self.path {
            error["error-path"] = path.clone().into();
        }
        if let Some(tag) = self.app_tag {
            error["error-app-tag"] = tag.into();
        }
        let error = match form {
            ErrorForm::Array => json!([error]),
            ErrorForm::Object => error,
        };
        let body = json!({ "ietf-restconf:errors": { "error": error } }).to_string();
        Answer { content_type: Some(YANG_JSON), body, ..Answer::code(self.code) }
    }
}

impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        let Invalid { tag, app_tag, path, message } = invalid;
        let code = if tag == "operation-failed" { 412 } else { 400 };
        Self { app_tag, path: Some(path), ..Self::new(code, tag, message) }
    }
}
