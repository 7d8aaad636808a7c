//! Sends HTTP requests to the services of OpenStack, and reports the outcome of each to an observer, for metrics.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, Url};
use staffetta_driver::{Fence, RequestObserver, RequestOutcome, RequestRecord};
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, field, info_span};

use super::response::HttpResponse;
use super::tls::{self, CloudError};
use super::url::host;
use crate::access::TlsOptions;
use crate::error::{OpenStackError, Result, StepName};

/// The maximum size of a response body, in bytes.
const MAX_BODY: usize = 32 << 20;

/// The header that carries the id that this client gives a request. All services that handle the header log the id (`oslo.middleware`).
const REQUEST_ID: HeaderName = HeaderName::from_static("x-openstack-request-id");

/// The HTTP client of all services of a cloud. It reports each request to a [`RequestObserver`] for metrics, and sends requests only while
/// the [`Fence`] says that this process is the leader.
#[derive(Clone)]
pub(crate) struct HttpClient {
    client: Client,
    observer: Arc<dyn RequestObserver>,
    fence: Fence,
}

/// A request to a service.
pub(crate) struct HttpRequest<'a> {
    /// The service type, such as `network`, for logs and metrics.
    pub(crate) service: &'static str,
    /// The operation that errors name, as an imperative such as `create a port`.
    pub(crate) step: StepName,
    /// The HTTP method.
    pub(crate) method: &'a Method,
    /// The complete URL, query included.
    pub(crate) url: Url,
    /// The headers other than the request id.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// The JSON body, if the request has one.
    pub(crate) body: Option<Vec<u8>>,
    /// The time limit of the whole request, including the response body.
    pub(crate) timeout: Duration,
    /// `true` if the request is idempotent: it may be sent twice, and its error is not ambiguous if the response is lost.
    pub(crate) repeatable: bool,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HttpClient")
    }
}

impl HttpClient {
    /// Creates the client with the certificates of `tls`. Fails if the certificate files cannot be read or are invalid.
    pub(crate) fn new(
        tls: &TlsOptions,
        observer: Arc<dyn RequestObserver>,
        fence: Fence,
    ) -> Result<Self, CloudError> {
        Ok(Self { client: tls::client(tls)?, observer, fence })
    }

    /// Sends a request and reads the whole response, regardless of its status. If the connection is closed before the response begins, an
    /// idempotent request is sent once more, because servers sometimes close an idle connection while it is being reused. Without a
    /// complete response of at most 32 MiB, or if this process is not the leader any more, the error is `Unavailable`; it is ambiguous if
    /// the request is not idempotent and may have been sent.
    pub(crate) async fn send(&self, request: &HttpRequest<'_>) -> Result<HttpResponse> {
        let id = request_id();
        let attempt = || self.attempt(request, &id).instrument(span(request, &id));
        let attempts = async {
            match attempt().await {
                Err((Loss::Closed, _)) if request.repeatable => attempt().await,
                result => result,
            }
        };
        let Some(sent) = self.fence.run(attempts).await else {
            let error = OpenStackError::unavailable(request.step, Fence::NOT_LEADER_MESSAGE);
            return Err(error.maybe_applied(!request.repeatable));
        };
        sent.map_err(|(loss, source)| match unanswered(request, loss, source) {
            // Nobody has a log of a request that was not sent.
            error if loss == Loss::Unreachable => error,
            error => error.request_id(id),
        })
    }

    /// Sends the request once, with the request id `id`, and reads the whole response.
    async fn attempt(
        &self,
        request: &HttpRequest<'_>,
        id: &str,
    ) -> Result<HttpResponse, (Loss, Option<reqwest::Error>)> {
        let HttpRequest { service, step, method, url, headers, body, timeout, .. } = request;
        let mut builder = self.client.request((*method).clone(), url.clone()).timeout(*timeout);
        builder = builder.header(REQUEST_ID, id);
        for (name, value) in headers {
            builder = builder.header(name, value);
        }
        if let Some(body) = body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        // A login makes nothing but a token.
        let changes = **method != Method::GET && *service != "identity";
        let mut timer = RequestTimer {
            observer: &*self.observer,
            service,
            method: method_name(method),
            outcome: RequestOutcome::Unanswered,
            started: Instant::now(),
            record: RequestRecord::start(method.as_str(), url.path(), changes),
        };
        timer.record.set_request_id(id);
        let response = builder.send().await.map_err(lost(Loss::Closed))?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = read_body(response).await?;
        timer.outcome = RequestOutcome::of_status(status);
        let response = HttpResponse::new(status, headers, body, id);
        timer.record.set_request_id(&response.request_id);
        timer.record.set_status(status);
        let span = Span::current();
        span.record("http.response.status_code", i64::from(status));
        span.record("request_id", &response.request_id);
        debug!(
            service, %method, path = url.path(), status, request_id = response.request_id, step,
            milliseconds = u64::try_from(timer.started.elapsed().as_millis()).unwrap_or(u64::MAX),
            "OpenStack answered"
        );
        Ok(response)
    }
}

/// Returns the tracing span of one attempt to send a request. `id` is the request id.
fn span(request: &HttpRequest<'_>, id: &str) -> Span {
    info_span!("OpenStack request", otel.name = request.step, otel.kind = "client", service = request.service,
        http.request.method = %request.method, url.path = request.url.path(), global_request_id = id,
        request_id = field::Empty, http.response.status_code = field::Empty)
}

/// Reads a response body of at most [`MAX_BODY`] bytes. A longer body is an error.
async fn read_body(mut response: Response) -> Result<Vec<u8>, (Loss, Option<reqwest::Error>)> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost(Loss::Truncated))? {
        if body.len() + chunk.len() > MAX_BODY {
            return Err((Loss::TooLarge, None));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// A guard that reports one request to the observer when it is dropped. A request that was cancelled is reported as unanswered.
struct RequestTimer<'a> {
    observer: &'a dyn RequestObserver,
    service: &'static str,
    method: &'static str,
    outcome: RequestOutcome,
    started: Instant,
    /// The entry for this request in the request log of the present attempt to handle a Kubernetes object.
    record: RequestRecord,
}

impl Drop for RequestTimer<'_> {
    fn drop(&mut self) {
        self.observer.ended(self.service, self.method, self.outcome, self.started.elapsed());
    }
}

/// The point at which a request failed to get a complete response.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// No connection could be established, and nothing was sent.
    Unreachable,
    /// The connection was closed before the response began.
    Closed,
    /// The connection was lost before the end of the response.
    Truncated,
    /// The timeout of the request passed.
    TimedOut,
    /// The body has more than [`MAX_BODY`] bytes.
    TooLarge,
}

/// Returns a function that classifies an error of the HTTP client: as `Unreachable` if no connection could be established, as `TimedOut`
/// after a timeout, otherwise as the given loss.
fn lost(otherwise: Loss) -> impl FnOnce(reqwest::Error) -> (Loss, Option<reqwest::Error>) {
    move |error| match error.without_url() {
        error if error.is_connect() => (Loss::Unreachable, Some(error)),
        error if error.is_timeout() => (Loss::TimedOut, Some(error)),
        error => (otherwise, Some(error)),
    }
}

/// Returns the error of a request without a complete response. It is ambiguous unless the request is idempotent, or no connection could be
/// established.
fn unanswered(request: &HttpRequest<'_>, loss: Loss, source: Option<reqwest::Error>) -> OpenStackError {
    let (host, service) = (host(&request.url), request.service);
    let text = match loss {
        Loss::Unreachable => format!("cannot connect to the {service} service at {host}"),
        Loss::Closed => format!("the {service} service at {host} closed the connection"),
        Loss::Truncated => format!("the response of the {service} service at {host} broke off"),
        Loss::TimedOut => {
            let limit = request.timeout.as_millis();
            format!("no response of the {service} service at {host} within {limit} ms")
        }
        Loss::TooLarge => format!("the response of the {service} service has more than {MAX_BODY} bytes"),
    };
    let error = OpenStackError::unavailable(request.step, text);
    let error = source.into_iter().fold(error, OpenStackError::because);
    error.maybe_applied(loss != Loss::Unreachable && !request.repeatable)
}

/// Returns a random request id: `req-` and a UUID, the form that services accept. The randomness is that of the standard library's hash
/// maps.
fn request_id() -> String {
    let random = || RandomState::new().hash_one(Instant::now());
    let (high, low) = (random(), random());
    let (version, variant) = (0x4000 | high & 0x0fff, 0x8000 | low >> 48 & 0x3fff);
    format!(
        "req-{:08x}-{:04x}-{version:04x}-{variant:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        low & 0xffff_ffff_ffff
    )
}

/// Returns the name of a method as a static string, for metrics.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}
