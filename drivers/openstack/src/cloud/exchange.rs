//! One request and its answer, and what it means when that does not come.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method, Response, Url};
use serde::de::DeserializeOwned;
use staffetta_driver::{RequestObserver, RequestOutcome};
use tokio::time::Instant;
use tracing::debug;

use super::page;
use crate::error::{OpenStackError, Problem, bounded, refused};

/// The largest answer, in bytes: a page of a list is far from it.
const MAX_ANSWER: usize = 32 << 20;

/// The longest wait that a service may ask for.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// The headers in which a service names the request, for its own log.
const REQUEST_IDS: [&str; 2] = ["x-openstack-request-id", "x-compute-request-id"];

/// The header by which we name a request, for all services through which it leads (`oslo.middleware`).
const OUR_REQUEST_ID: HeaderName = HeaderName::from_static("x-openstack-request-id");

/// Sends requests, and tells the observer of each.
#[derive(Clone)]
pub(crate) struct Http {
    client: Client,
    observer: Arc<dyn RequestObserver>,
    max_answer: usize,
}

/// A request as it is sent.
pub(crate) struct Exchange<'a> {
    /// The service, for logs and figures.
    pub(crate) service: &'static str,
    /// What is tried, as an imperative.
    pub(crate) step: &'static str,
    pub(crate) method: &'a Method,
    pub(crate) url: Url,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: Option<Vec<u8>>,
    pub(crate) timeout: Duration,
    /// Whether being done twice is the same as being done once.
    pub(crate) repeatable: bool,
}

/// A whole answer, whatever its status.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// The id that we gave the request.
    our_request_id: String,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http")
    }
}

impl Http {
    pub(crate) fn new(client: Client, observer: Arc<dyn RequestObserver>) -> Self {
        Self { client, observer, max_answer: MAX_ANSWER }
    }

    /// Sends a request and reads its whole answer. A connection that was closed before the answer began is tried once more
    /// where that does no harm: servers close idle connections at the moment at which they are used.
    pub(crate) async fn exchange(&self, exchange: &Exchange<'_>) -> Result<Answer, OpenStackError> {
        let id = request_id();
        match self.attempt(exchange, &id).await {
            Err(Failed::Closed(_)) if exchange.repeatable => self.attempt(exchange, &id).await,
            result => result,
        }
        .map_err(|failed| failed.told(exchange, id))
    }

    async fn attempt(&self, exchange: &Exchange<'_>, id: &str) -> Result<Answer, Failed> {
        let Exchange { service, step, method, url, headers, body, timeout, .. } = exchange;
        let mut request = self.client.request((*method).clone(), url.clone()).timeout(*timeout);
        request = request.header(OUR_REQUEST_ID, id);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        let mut pending = Pending {
            observer: &*self.observer,
            service,
            method: method_name(method),
            outcome: RequestOutcome::Unanswered,
            began: Instant::now(),
        };
        let response = request.send().await.map_err(Failed::before_an_answer)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = self.body(response).await?;
        pending.outcome = RequestOutcome::of_status(status);
        let answer = Answer { status, headers, body, our_request_id: id.to_owned() };
        debug!(
            service, %method, path = url.path(), status, request_id = answer.request_id(), step,
            milliseconds = u64::try_from(pending.began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "OpenStack answered"
        );
        Ok(answer)
    }

    /// The body, of which no more is read than an answer may have.
    async fn body(&self, mut response: Response) -> Result<Vec<u8>, Failed> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(Failed::within_an_answer)? {
            if body.len() + chunk.len() > self.max_answer {
                return Err(Failed::TooLarge(self.max_answer));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// A request under way; it has ended when this is dropped. Who stops to wait for the answer has none.
struct Pending<'a> {
    observer: &'a dyn RequestObserver,
    service: &'static str,
    method: &'static str,
    outcome: RequestOutcome,
    began: Instant,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.observer.ended(self.service, self.method, self.outcome, self.began.elapsed());
    }
}

/// There is no answer, or no whole one.
enum Failed {
    /// Nothing was sent.
    Unreachable(reqwest::Error),
    /// The connection was closed before the answer began.
    Closed(reqwest::Error),
    /// The connection broke within the answer.
    Broken(reqwest::Error),
    /// Time was up.
    TimedOut(reqwest::Error),
    /// There is more than is read.
    TooLarge(usize),
}

impl Failed {
    fn before_an_answer(error: reqwest::Error) -> Self {
        match error.without_url() {
            error if error.is_connect() => Self::Unreachable(error),
            error if error.is_timeout() => Self::TimedOut(error),
            error => Self::Closed(error),
        }
    }

    fn within_an_answer(error: reqwest::Error) -> Self {
        match error.without_url() {
            error if error.is_timeout() => Self::TimedOut(error),
            error => Self::Broken(error),
        }
    }

    fn told(self, exchange: &Exchange<'_>, id: String) -> OpenStackError {
        let (host, service) = (page::host(&exchange.url), exchange.service);
        let unanswered = |text: String| OpenStackError::new(exchange.step, Problem::Unanswered(text));
        let error = match self {
            Self::Unreachable(error) => {
                let text = format!("there is no way to the {service} service at {host}");
                return OpenStackError::new(exchange.step, Problem::Unreachable(text)).because(error);
            }
            Self::Closed(error) => {
                unanswered(format!("the {service} service at {host} closed the connection")).because(error)
            }
            Self::Broken(error) => {
                unanswered(format!("the answer of the {service} service at {host} broke off")).because(error)
            }
            Self::TimedOut(error) => {
                let limit = exchange.timeout.as_millis();
                unanswered(format!("no answer of the {service} service at {host} within {limit} ms"))
                    .because(error)
            }
            Self::TooLarge(limit) => {
                unanswered(format!("the answer of the {service} service has more than {limit} bytes"))
            }
        };
        error.maybe_done(!exchange.repeatable).request_id(Some(id))
    }
}

impl Answer {
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The id by which the service's log names the request, or ours where the answer tells none.
    pub(crate) fn request_id(&self) -> &str {
        let told = REQUEST_IDS.into_iter().find_map(|name| self.headers.get(name)?.to_str().ok());
        told.unwrap_or(&self.our_request_id)
    }

    /// After how long the service wants to be asked again (RFC 9110, section 10.2.3).
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get("retry-after")?.to_str().ok()?.trim();
        let wait = if let Ok(seconds) = text.parse() {
            Duration::from_secs(seconds)
        } else {
            let then = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
            then.duration_since(jiff::Timestamp::now()).try_into().unwrap_or_default()
        };
        Some(wait.min(MAX_WAIT))
    }

    /// Whether the service is asked too much. 413 says so where it says when to come again, as proxies do that limit rates; without
    /// that, the request itself was too large (RFC 9110, section 15.5.14).
    pub(crate) fn throttles(&self) -> bool {
        match self.status {
            429 | 503 => true,
            413 => self.retry_after().is_some(),
            _ => false,
        }
    }

    /// What it says, as `A`.
    pub(crate) fn read<A: DeserializeOwned>(
        &self,
        step: &'static str,
        ambiguous: bool,
    ) -> Result<A, OpenStackError> {
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(step, ambiguous).because(error))
    }

    /// It says nothing that can be understood.
    pub(crate) fn unreadable(&self, step: &'static str, ambiguous: bool) -> OpenStackError {
        let begins: String = String::from_utf8_lossy(&self.body).chars().take(80).collect();
        let text =
            format!("HTTP {} with an answer that cannot be understood: {}", self.status, bounded(&begins));
        self.signed(OpenStackError::new(step, Problem::Unreadable(text)).maybe_done(ambiguous))
    }

    /// The refusal that it is. One of a service in trouble may come after the fact.
    pub(crate) fn refused(&self, step: &'static str, repeatable: bool) -> OpenStackError {
        let wait = self.retry_after();
        let in_trouble = self.status >= 500 && self.status != 501;
        let ambiguous = in_trouble && !repeatable && !(self.status == 503 && wait.is_some());
        let problem = refused(self.status, &self.body);
        self.signed(OpenStackError::new(step, problem).after(wait).maybe_done(ambiguous))
    }

    fn signed(&self, error: OpenStackError) -> OpenStackError {
        error.request_id(Some(bounded(self.request_id())))
    }
}

/// `req-` and a UUID, as services take it. The randomness is the one that the standard library gives its hash maps.
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

fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttles(status: u16, retry_after: Option<&'static str>) -> bool {
        let mut headers = HeaderMap::new();
        if let Some(wait) = retry_after {
            headers.insert("retry-after", HeaderValue::from_static(wait));
        }
        Answer { status, headers, body: Vec::new(), our_request_id: request_id() }.throttles()
    }

    #[test]
    fn what_is_too_large_is_told_from_too_much_by_whether_it_says_when_to_come_again() {
        assert!(throttles(413, Some("7")) && !throttles(413, None));
        assert!([429, 503].into_iter().all(|status| throttles(status, None)));
        assert!([200, 400, 409, 500].into_iter().all(|status| !throttles(status, Some("7"))));
    }
}
