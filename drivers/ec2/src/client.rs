//! Sends signed requests to the Query API of EC2.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use reqwest::{Client, redirect, retry};
use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, Fence, Reason, RequestObserver, RequestOutcome, RequestRecord};
use tokio::time::Instant;
use tracing::{Instrument, Span, debug, field, info_span};

use crate::access_keys::AccessKeys;
use crate::body::read_body;
use crate::credentials::CredentialCache;
use crate::failure::{CodeClass, Ec2Failure};
use crate::options::Ec2Access;
use crate::rate::RateLimit;
use crate::signature::{SignError, SigningScope, signature};

/// The version of the EC2 Query API, which each request names.
const VERSION: &str = "2016-11-15";
/// The time limit of a request, including its response.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The user agent that requests carry, for the logs of AWS.
const USER_AGENT: &str = concat!("staffetta/", env!("CARGO_PKG_VERSION"));

/// An action of the EC2 API that the driver calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ec2Action {
    /// The name of the action in the API, such as `DescribeInstances`.
    pub(crate) name: &'static str,
    /// The name of the action in errors, as an imperative, such as `read the instances`.
    pub(crate) step: &'static str,
    /// `true` if the action changes something, so that its error is ambiguous if the response was lost.
    pub(crate) changes: bool,
}

impl Ec2Action {
    /// Returns the error for a call of the action without a readable response. The error is ambiguous if the action changes something.
    fn unanswered(self) -> DriverError {
        let error = DriverError::new(Reason::Unavailable, self.step);
        if self.changes { error.maybe_applied() } else { error }
    }
}

/// A client of the EC2 Query API in one region, with rate limits.
pub(crate) struct Ec2Client {
    http: Client,
    endpoint: String,
    region: String,
    credentials: CredentialCache,
    /// The rate limit of actions that only read.
    reads: RateLimit,
    /// The rate limit of actions that change something.
    changes: RateLimit,
    observer: Arc<dyn RequestObserver>,
    fence: Fence,
}

impl Ec2Client {
    /// Creates a client. It sends nothing before the first call.
    pub(crate) fn new(
        access: Ec2Access,
        observer: Arc<dyn RequestObserver>,
        fence: Fence,
    ) -> Result<Self, reqwest::Error> {
        // Only the first call installs it; all of them install the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            let builder = Client::builder().user_agent(USER_AGENT).connect_timeout(CONNECT_TIMEOUT);
            builder.redirect(redirect::Policy::none()).retry(retry::never())
        };
        let (http, local) = (builder().build()?, builder().no_proxy().build()?);
        Ok(Self {
            credentials: CredentialCache::new(access.source, &access.region, (http.clone(), local)),
            http,
            endpoint: access.endpoint,
            region: access.region,
            reads: RateLimit::new(access.reads_per_second),
            changes: RateLimit::new(access.changes_per_second),
            observer,
            fence,
        })
    }

    /// Calls an action of EC2 and parses its response. After throttling, further calls fail for a while without a request.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        action: Ec2Action,
        parameters: &[(String, String)],
    ) -> Result<T, Ec2Failure> {
        let limit = if action.changes { &self.changes } else { &self.reads };
        limit.permit().await.map_err(|wait| {
            let error = DriverError::new(Reason::Unavailable, action.step).after(wait);
            error.detail("the rate of requests to EC2 is limited")
        })?;
        let span = info_span!(
            "EC2 request",
            otel.name = action.name,
            otel.kind = "client",
            http.response.status_code = field::Empty
        );
        let Some(sent) = self.fence.run(self.send(action, parameters).instrument(span)).await else {
            return Err(action.unanswered().detail(Fence::NOT_LEADER_MESSAGE).into());
        };
        let (status, body, keys) = sent?;
        if (200..300).contains(&status) {
            limit.accepted();
            return quick_xml::de::from_str(&body).map_err(|source| {
                let error = action.unanswered().because(source);
                error.detail("the response of EC2 cannot be parsed").into()
            });
        }
        let mut failure = Ec2Failure::of_response(action.step, status, &body, action.changes);
        match CodeClass::of(&failure.code, status) {
            CodeClass::Throttled => failure.error = failure.error.after(limit.throttled()),
            CodeClass::Credentials(_) => self.credentials.refused(&keys, SystemTime::now()).await,
            CodeClass::Other(_) => {}
        }
        Err(failure)
    }

    /// Signs and sends a request. Returns the HTTP status, whatever it is, the body, and the keys that signed the request.
    async fn send(
        &self,
        action: Ec2Action,
        parameters: &[(String, String)],
    ) -> Result<(u16, String, AccessKeys), DriverError> {
        let keys = self.credentials.keys(SystemTime::now()).await?;
        let body = form_urlencoded::Serializer::new(String::new())
            .append_pair("Action", action.name)
            .append_pair("Version", VERSION)
            .extend_pairs(parameters)
            .finish();
        let invalid = |error: SignError| DriverError::new(Reason::Refused, action.step).because(error);
        let scope = SigningScope { region: &self.region, service: "ec2" };
        let headers = signature(&keys, scope, &self.endpoint, &body, SystemTime::now()).map_err(invalid)?;
        let request = self.http.post(&self.endpoint).headers(headers).body(body).timeout(TIMEOUT);
        let mut timer = Ec2RequestTimer {
            observer: &*self.observer,
            action: action.name,
            outcome: RequestOutcome::Unanswered,
            started: Instant::now(),
        };
        let mut record = RequestRecord::start("POST", action.name, action.changes);
        let response = request.send().await.map_err(|error| {
            let is_unsent = error.is_connect() || error.is_builder();
            let failed = action.unanswered().because(error.without_url());
            if is_unsent { failed.unambiguous() } else { failed }
        })?;
        if let Some(id) = response.headers().get("x-amzn-requestid").and_then(|id| id.to_str().ok()) {
            record.set_request_id(id);
        }
        let status = response.status().as_u16();
        Span::current().record("http.response.status_code", i64::from(status));
        let body = read_body(response).await.map_err(|detail| action.unanswered().detail(detail))?;
        timer.outcome = RequestOutcome::of_status(status);
        record.set_status(status);
        debug!(action = action.name, status, "EC2 answered");
        Ok((status, body, keys))
    }
}

/// Measures the duration of a request, and reports the request to the observer when the timer is dropped. A request that was cancelled is
/// reported as unanswered.
struct Ec2RequestTimer<'a> {
    observer: &'a dyn RequestObserver,
    action: &'static str,
    outcome: RequestOutcome,
    started: Instant,
}

impl Drop for Ec2RequestTimer<'_> {
    fn drop(&mut self) {
        self.observer.ended("ec2", self.action, self.outcome, self.started.elapsed());
    }
}
