//! Converts error responses to the form that kube can decode.

use axum::body::{Body as AnyBody, to_bytes};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use staffetta_handler::truncated;
use tower::BoxError;

/// The maximum length of the body of an error response, in bytes. The body of a longer response is ignored.
const MAX_BODY: usize = 1024 * 1024;

/// The maximum delay, in seconds, that the header `Retry-After` can request.
const MAX_RETRY_AFTER: u64 = 300;

/// Makes the body of a 4xx or 5xx response a Kubernetes `Status` that contains a code and the delay in the header `Retry-After`. A `Status`
/// that the server sent is kept, and only what it lacks is added.
///
/// This is needed because kube reads both only from a `Status` in the body. An overloaded server sends plain text with that header, and
/// a proxy may send anything.
pub(super) async fn with_status<B>(response: Response<B>) -> Result<Response<AnyBody>, BoxError>
where
    B: http_body::Body<Data = <Body as http_body::Body>::Data> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let code = response.status();
    let (mut parts, body) = response.map(AnyBody::new).into_parts();
    if !code.is_client_error() && !code.is_server_error() {
        return Ok(Response::from_parts(parts, body));
    }
    // An incomplete body is an error response, too.
    let text = to_bytes(body, MAX_BODY).await.unwrap_or_default();
    let status = status(code, retry_after(&parts.headers), &text);
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(Response::from_parts(parts, AnyBody::from(status.to_string())))
}

/// Returns the delay in seconds that the header `Retry-After` requests, at most [`MAX_RETRY_AFTER`]; `None` if the header is missing, 0 or
/// malformed. A date (RFC 9110, section 10.2.3) is not supported, because API servers send none.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    (seconds > 0).then_some(seconds.min(MAX_RETRY_AFTER))
}

/// Returns the `Status` in `text`, or else one with `text` as its message. Adds `code` and `retry_after` (in seconds) if they are missing.
fn status(code: StatusCode, retry_after: Option<u64>, text: &[u8]) -> Value {
    let read: Option<Value> = serde_json::from_slice(text).ok();
    let mut status = read.filter(|read| read["kind"] == "Status").unwrap_or_else(|| {
        let message = truncated(String::from_utf8_lossy(text).trim().to_owned());
        let reason = code.canonical_reason().unwrap_or_default();
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason })
    });
    let is_set = |value: &Value| value.as_u64().is_some_and(|number| number > 0);
    if !is_set(&status["code"]) {
        status["code"] = code.as_u16().into();
    }
    if let Some(seconds) = retry_after.filter(|_| !is_set(&status["details"]["retryAfterSeconds"])) {
        if !status["details"].is_object() {
            status["details"] = json!({});
        }
        status["details"]["retryAfterSeconds"] = seconds.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Request;
    use kube::Client;
    use staffetta_handler::Failure;
    use tower::{ServiceExt, service_fn};

    use super::*;

    /// Returns the error that results from a response with this code, header and body.
    async fn error(code: u16, header: Option<&'static str>, body: impl Into<String>) -> kube::Error {
        let body = body.into();
        let server = service_fn(move |_: Request<Body>| {
            let mut answer = Response::builder().status(code);
            if let Some(seconds) = header {
                answer = answer.header(RETRY_AFTER, seconds);
            }
            let answer = answer.body(AnyBody::from(body.clone())).unwrap();
            async { Ok::<_, BoxError>(answer) }
        });
        let request = Request::get("/").body(Vec::new()).unwrap();
        Client::new(server.and_then(with_status), "default").request_text(request).await.unwrap_err()
    }

    fn seconds(error: &kube::Error) -> Option<u64> {
        error.retry_after().map(|time| time.as_secs())
    }

    #[tokio::test]
    async fn plain_text_with_a_header_is_a_transient_error_with_a_delay() {
        for code in [429, 503] {
            let error = error(code, Some("7"), "Too many requests, please try again later.\n").await;
            assert!(error.transient() && error.retry_after() == Some(Duration::from_secs(7)), "{error:?}");
            assert!(error.to_string().contains("Too many requests, please try again later."), "{error}");
        }
        let header = |header| error(429, header, "");
        assert_eq!(seconds(&header(Some("86400")).await), Some(MAX_RETRY_AFTER));
        for other in [None, Some("0"), Some("-1"), Some("Wed, 21 Oct 2015 07:28:00 GMT")] {
            assert_eq!(seconds(&header(other).await), None, "{other:?}");
        }
    }

    #[tokio::test]
    async fn json_that_is_no_status_has_the_code_of_the_response() {
        for body in [r#"{"message":"no healthy upstream"}"#, r#"{"code":"UNAVAILABLE"}"#, "[]", "{}", ""] {
            let error = error(503, None, body).await;
            assert!(matches!(&error, kube::Error::Api(status) if status.code == 503), "{body}: {error:?}");
            assert!(error.transient() && error.to_string().contains(body), "{error}");
        }
    }

    #[tokio::test]
    async fn a_status_is_kept_and_missing_fields_are_added() {
        let reported = |details: Value| {
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "wait", "reason": "TooManyRequests",
                "details": details, "code": 429 })
        };
        for (details, header, expected) in [
            (json!({ "name": "web", "retryAfterSeconds": 3 }), Some("9"), Some(3)),
            (json!({ "name": "web" }), Some("9"), Some(9)),
            (Value::Null, Some("9"), Some(9)),
            (json!({ "name": "web" }), None, None),
        ] {
            let error = error(429, header, reported(details.clone()).to_string()).await;
            assert_eq!(seconds(&error), expected, "{details}");
            let kube::Error::Api(status) = error else { panic!("{error}") };
            assert_eq!((&*status.message, &*status.reason, status.code), ("wait", "TooManyRequests", 429));
            let name = status.details.map(|details| details.name).unwrap_or_default();
            assert_eq!(name, details["name"].as_str().unwrap_or_default());
        }
        let lacks = json!({ "kind": "Status", "message": "wait" }).to_string();
        assert!(matches!(error(500, None, lacks).await, kube::Error::Api(status) if status.code == 500));
    }

    #[tokio::test]
    async fn the_length_of_an_error_response_is_bounded() {
        let page = error(502, Some("2"), "x".repeat(10_000)).await;
        assert!(page.transient() && seconds(&page) == Some(2) && page.to_string().len() < 4096, "{page}");
        let endless = error(502, Some("2"), "x".repeat(MAX_BODY + 1)).await;
        assert!(endless.transient() && seconds(&endless) == Some(2), "{endless}");
    }
}
