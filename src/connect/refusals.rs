//! Answers by which a server refuses, in the one form that is read further on.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body as AnyBody, to_bytes};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use kube::client::Body;
use serde_json::{Value, json};
use staffetta_handler::shortened;
use tower::{BoxError, Service};

/// How much of such an answer is read, in bytes; of a longer one nothing is known but its code and its headers.
const BYTES: usize = 1024 * 1024;

/// For how long a server is left alone at most when its header asks for that, in seconds.
const LONGEST: u64 = 3600;

/// Makes a `Status` of each answer with 4xx or 5xx, with the code of the answer and the time of its header `Retry-After`.
///
/// Whoever gets an error from kube reads both from the `Status` in the body alone. But a server that has too much to do, or
/// ends, sends plain text and that header, and a proxy before it sends what it likes.
pub(super) struct Refusals<S>(S);

impl<S> Refusals<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S, B> Service<Request<Body>> for Refusals<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: http_body::Body<Data = <Body as http_body::Body>::Data> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<AnyBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            let answer = answer.await?.map(AnyBody::new);
            let code = answer.status();
            if !code.is_client_error() && !code.is_server_error() {
                return Ok(answer);
            }
            let (mut parts, body) = answer.into_parts();
            // An answer that breaks off refuses all the same.
            let text = to_bytes(body, BYTES).await.unwrap_or_default();
            let status = status(code, retry_after(&parts.headers), &text);
            parts.headers.remove(CONTENT_LENGTH);
            parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            Ok(Response::from_parts(parts, AnyBody::from(status.to_string())))
        })
    }
}

/// For how many seconds the server asks to be left alone. It may name a date too (RFC 9110, section 10.2.3), but none does.
fn retry_after(headers: &HeaderMap) -> Option<u64> {
    let seconds: u64 = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    (seconds > 0).then_some(seconds.min(LONGEST))
}

/// The Status that this text is, or the one that says it.
fn status(code: StatusCode, retry_after: Option<u64>, text: &[u8]) -> Value {
    let read: Option<Value> = serde_json::from_slice(text).ok();
    let mut status = read.filter(|read| read["kind"] == "Status").unwrap_or_else(|| {
        let message = shortened(String::from_utf8_lossy(text).trim().to_owned());
        let reason = code.canonical_reason().unwrap_or_default();
        json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason })
    });
    let says = |value: &Value| value.as_u64().is_some_and(|number| number > 0);
    if !says(&status["code"]) {
        status["code"] = code.as_u16().into();
    }
    if let Some(seconds) = retry_after.filter(|_| !says(&status["details"]["retryAfterSeconds"])) {
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

    use kube::Client;
    use staffetta_handler::Failure;
    use tower::service_fn;

    use super::*;

    /// What becomes of an answer with this code, header and body.
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
        Client::new(Refusals::new(server), "default").request_text(request).await.unwrap_err()
    }

    fn seconds(error: &kube::Error) -> Option<u64> {
        error.retry_after().map(|time| time.as_secs())
    }

    #[tokio::test]
    async fn plain_text_with_a_header_is_a_passing_refusal_that_says_when_to_ask_again() {
        for code in [429, 503] {
            let error = error(code, Some("7"), "Too many requests, please try again later.\n").await;
            assert!(error.transient() && error.retry_after() == Some(Duration::from_secs(7)), "{error:?}");
            assert!(error.to_string().contains("Too many requests, please try again later."), "{error}");
        }
        let header = |header| error(429, header, "");
        assert_eq!(seconds(&header(Some("86400")).await), Some(LONGEST));
        for other in [None, Some("0"), Some("-1"), Some("Wed, 21 Oct 2015 07:28:00 GMT")] {
            assert_eq!(seconds(&header(other).await), None, "{other:?}");
        }
    }

    #[tokio::test]
    async fn json_that_is_no_status_has_the_code_of_its_answer() {
        for body in [r#"{"message":"no healthy upstream"}"#, r#"{"code":"UNAVAILABLE"}"#, "[]", "{}", ""] {
            let error = error(503, None, body).await;
            assert!(matches!(&error, kube::Error::Api(status) if status.code == 503), "{body}: {error:?}");
            assert!(error.transient() && error.to_string().contains(body), "{error}");
        }
    }

    #[tokio::test]
    async fn a_status_stays_as_it_is_and_only_what_it_lacks_is_added() {
        let told = |details: Value| {
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "wait", "reason": "TooManyRequests",
                "details": details, "code": 429 })
        };
        for (details, header, expected) in [
            (json!({ "name": "web", "retryAfterSeconds": 3 }), Some("9"), Some(3)),
            (json!({ "name": "web" }), Some("9"), Some(9)),
            (Value::Null, Some("9"), Some(9)),
            (json!({ "name": "web" }), None, None),
        ] {
            let error = error(429, header, told(details.clone()).to_string()).await;
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
    async fn no_more_of_a_refusal_is_read_or_kept_than_anybody_reads() {
        let page = error(502, Some("2"), "x".repeat(10_000)).await;
        assert!(page.transient() && seconds(&page) == Some(2) && page.to_string().len() < 4096, "{page}");
        let endless = error(502, Some("2"), "x".repeat(BYTES + 1)).await;
        assert!(endless.transient() && seconds(&endless) == Some(2), "{endless}");
    }
}
