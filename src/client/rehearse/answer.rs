//! What the server answers to a write that it does not make.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::response::Parts;
use http::{HeaderValue, Response, StatusCode};
use kube::client::Body;
use serde_json::Value;
use tower::BoxError;

/// An answer that was read to its end.
pub(super) struct Answer {
    parts: Parts,
    bytes: Vec<u8>,
    /// Null where it is not JSON.
    pub(super) body: Value,
}

/// Why a write would not be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The object has changed meanwhile, or is there already.
    Stale,
    /// Whoever asked is told no, and always will be.
    Final(String),
    /// Somebody whom the server asks does not support dry runs.
    NoDryRun(String),
    /// The object is gone, or the server is in trouble: it says nothing of the write.
    Other,
}

impl Answer {
    pub(super) async fn of(response: Response<Body>) -> Result<Self, BoxError> {
        let (parts, body) = response.into_parts();
        let bytes = body.collect_bytes().await?.to_vec();
        let body = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok(Self { parts, bytes, body })
    }

    /// An answer of our own.
    pub(super) fn json(code: u16, body: Value) -> Self {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(code).expect("it is written down here");
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self { parts: response.into_parts().0, bytes: body.to_string().into_bytes(), body }
    }

    pub(super) fn is_success(&self) -> bool {
        self.parts.status.is_success()
    }

    /// None for a success.
    pub(super) fn refusal(&self) -> Option<Refusal> {
        let code = self.parts.status.as_u16();
        let text = |field: &str| self.body[field].as_str().unwrap_or_default();
        let why =
            || [code.to_string().as_str(), text("reason"), text("message")].join(" ").trim_end().to_owned();
        Some(match code {
            200..300 => return None,
            409 => Refusal::Stale,
            400 if text("message").contains("does not support dry run") => Refusal::NoDryRun(why()),
            401 | 404 | 408 | 429 => Refusal::Other,
            400..500 => Refusal::Final(why()),
            _ => Refusal::Other,
        })
    }

    pub(super) fn into_response(self) -> Response<Body> {
        Response::from_parts(self.parts, Body::from(self.bytes))
    }

    /// The same answer with another object in it.
    pub(super) fn with(mut self, object: &Value) -> Response<Body> {
        self.parts.headers.remove(CONTENT_LENGTH);
        self.bytes = object.to_string().into_bytes();
        self.into_response()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_is_told_from_a_passing_trouble() {
        let refusal = |code, message: &str| {
            Answer::json(code, json!({ "reason": "Reason", "message": message })).refusal()
        };
        assert_eq!(refusal(201, ""), None);
        assert_eq!(refusal(409, "changed"), Some(Refusal::Stale));
        for (code, message) in [(400, "bad"), (403, "may not"), (422, "invalid"), (413, "")] {
            let why = format!("{code} Reason {message}").trim_end().to_owned();
            assert_eq!(refusal(code, message), Some(Refusal::Final(why)), "{code}");
        }
        for code in [401, 404, 408, 429, 500, 503] {
            assert_eq!(refusal(code, "later"), Some(Refusal::Other), "{code}");
        }
        let webhook = "admission webhook \"w\" does not support dry run";
        assert_eq!(refusal(400, webhook), Some(Refusal::NoDryRun(format!("400 Reason {webhook}"))));
    }
}
