//! A complete response: its status, headers and body, and the error for a status other than 2xx.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;

use crate::error::{OpenStackError, Result, StepName, truncated};

/// The longest delay that is accepted from the header `Retry-After`; a longer one is shortened to it.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(300);

/// The headers that carry the id under which the service logged the request.
const REQUEST_IDS: [&str; 2] = ["x-openstack-request-id", "x-compute-request-id"];

/// A complete response of any status.
pub(crate) struct HttpResponse {
    /// The HTTP status.
    pub(crate) status: u16,
    /// The headers of the response.
    pub(crate) headers: HeaderMap,
    /// The complete body.
    pub(crate) body: Vec<u8>,
    /// The id that the service gave the request, or the client's id if the response has none.
    pub(crate) request_id: String,
}

impl HttpResponse {
    /// Creates the response to the request with the id `our_id`, which the client chose.
    pub(super) fn new(status: u16, headers: HeaderMap, body: Vec<u8>, our_id: &str) -> Self {
        let id = REQUEST_IDS.into_iter().find_map(|name| headers.get(name)?.to_str().ok());
        let request_id = truncated(id.unwrap_or(our_id));
        Self { status, headers, body, request_id }
    }

    /// Returns `true` for a status of 200 to 299.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the delay in the header `Retry-After`, which contains seconds or a date (RFC 9110, section 10.2.3), or `None` without a
    /// valid header.
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

    /// Returns `true` if the service asks for fewer requests: for the status 429 or 503, and for 413 with `Retry-After`, the response of a
    /// rate-limiting proxy. Without that header, 413 means that the request itself was too large (RFC 9110, section 15.5.14).
    pub(crate) fn is_throttled(&self) -> bool {
        match self.status {
            429 | 503 => true,
            413 => self.retry_after().is_some(),
            _ => false,
        }
    }

    /// Deserializes the body. If it cannot be deserialized, the error is `Unavailable`. `ambiguous` records in that error that the request
    /// may have taken effect.
    pub(crate) fn json<A: DeserializeOwned>(&self, step: StepName, ambiguous: bool) -> Result<A> {
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(step, ambiguous).because(error))
    }

    /// Returns the error of a response that cannot be deserialized. `ambiguous` records in it that the request may have taken effect.
    pub(crate) fn unreadable(&self, step: StepName, ambiguous: bool) -> OpenStackError {
        let start: String = String::from_utf8_lossy(&self.body).chars().take(80).collect();
        let text = format!("HTTP {} with a body that cannot be read: {}", self.status, truncated(&start));
        OpenStackError::unavailable(step, text).maybe_applied(ambiguous).request_id(&self.request_id)
    }

    /// Returns the error of a response whose status is not 2xx. If the request is not `repeatable`, it may have taken effect in spite of a
    /// status of 500 or more, except 501, and except 503 with `Retry-After`.
    pub(crate) fn into_error(self, step: StepName, repeatable: bool) -> OpenStackError {
        let delay = self.retry_after();
        let is_server_error = self.status >= 500 && self.status != 501;
        let ambiguous = is_server_error && !repeatable && !(self.status == 503 && delay.is_some());
        let error = if self.status == 413 && delay.is_none() {
            OpenStackError::too_large(step, &self.body)
        } else {
            OpenStackError::rejected(step, self.status, &self.body).maybe_applied(ambiguous)
        };
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
