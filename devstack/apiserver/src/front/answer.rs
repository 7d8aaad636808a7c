//! Responses: JSON with an HTTP status, a `Status` object, or a response that a test has chosen.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use crate::status::Status;

/// A JSON body under this code.
pub(crate) fn json(code: StatusCode, body: String) -> Response {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A refusal.
pub(crate) fn refusal(status: &Status) -> Response {
    let code = StatusCode::from_u16(status.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(code, status.json().to_string());
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// Nobody has time to look at the request.
pub(super) fn busy(code: u16, retry_after: u64) -> Response {
    let mut response = chosen(code, "Too many requests, please try again later.\n");
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
    response
}

/// A response chosen by a test: JSON if it is an object, otherwise plain text.
pub(super) fn chosen(code: u16, body: &str) -> Response {
    let code = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    if body.starts_with('{') {
        return json(code, body.into());
    }
    let mut response = text(body.to_owned());
    *response.status_mut() = code;
    response
}

/// Plain text, as the health endpoints give it.
pub(crate) fn text(body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
