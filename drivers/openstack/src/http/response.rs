//! A response: its body, and the error that a status other than 2xx is.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;

use crate::error::{OpenStackError, Result, Step, truncated};

/// The longest delay that `Retry-After` may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The headers that carry the service's own id of a request.
const REQUEST_IDS: [&str; 2] = ["x-openstack-request-id", "x-compute-request-id"];

/// A complete response of any status.
pub(crate) struct HttpResponse {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// The service's id of the request, or the client's if the response has none.
    pub(crate) request_id: String,
}

impl HttpResponse {
    /// A response to the request with the client's id `our_id`.
    pub(super) fn new(status: u16, headers: HeaderMap, body: Vec<u8>, our_id: &str) -> Self {
        let id = REQUEST_IDS.into_iter().find_map(|name| headers.get(name)?.to_str().ok());
        let request_id = truncated(id.unwrap_or(our_id));
        Self { status, headers, body, request_id }
    }

    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The delay of `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3).
    fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get("retry-after")?.to_str().ok()?.trim();
        let delay = if let Ok(seconds) = text.parse() {
            Duration::from_secs(seconds)
        } else {
            let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            date.duration_since(jiff::Timestamp::now()).try_into().unwrap_or_default()
        };
        Some(delay.min(MAX_RETRY_AFTER))
    }

    /// Returns `true` if the service asks for fewer requests. With `Retry-After`, 413 is the answer of a rate-limiting proxy; without,
    /// the request itself was too large (RFC 9110, section 15.5.14).
    pub(crate) fn is_throttled(&self) -> bool {
        match self.status {
            429 | 503 => true,
            413 => self.retry_after().is_some(),
            _ => false,
        }
    }

    /// Deserializes the body. `ambiguous`: the request may have taken effect although its response cannot be read.
    pub(crate) fn json<A: DeserializeOwned>(&self, step: Step, ambiguous: bool) -> Result<A> {
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(step, ambiguous).because(error))
    }

    /// The error of a response that cannot be deserialized.
    pub(crate) fn unreadable(&self, step: Step, ambiguous: bool) -> OpenStackError {
        let start: String = String::from_utf8_lossy(&self.body).chars().take(80).collect();
        let text = format!("HTTP {} with a body that cannot be read: {}", self.status, truncated(&start));
        OpenStackError::unavailable(step, text).maybe_applied(ambiguous).request_id(&self.request_id)
    }

    /// The error of a response that is not a success. After most 5xx, a request may have taken effect all the same.
    pub(crate) fn into_error(self, step: Step, repeatable: bool) -> OpenStackError {
        let delay = self.retry_after();
        let is_server_error = self.status >= 500 && self.status != 501;
        let ambiguous = is_server_error && !repeatable && !(self.status == 503 && delay.is_some());
        let error = OpenStackError::rejected(step, self.status, &self.body).maybe_applied(ambiguous);
        delay.into_iter().fold(error, OpenStackError::after).request_id(self.request_id)
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn is_throttled(status: u16, retry_after: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(delay) = retry_after {
            headers.insert("retry-after", HeaderValue::from_static(delay));
        }
        HttpResponse::new(status, headers, Vec::new(), "").is_throttled()
    }

    #[test]
    fn a_413_is_throttling_only_with_a_retry_after() {
        assert!(is_throttled(413, Some("7")) && !is_throttled(413, None));
        assert!([429, 503].into_iter().all(|status| is_throttled(status, None)));
        assert!([200, 400, 409, 500].into_iter().all(|status| !is_throttled(status, Some("7"))));
    }
}
