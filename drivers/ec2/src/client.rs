//! Sends signed requests to the Query API of EC2.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, redirect, retry};
use secrecy::ExposeSecret;
use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, Fence, Reason, RequestObserver, RequestOutcome};
use tokio::time::Instant;
use tracing::debug;

use crate::body::read_body;
use crate::credentials::{AccessKeys, CredentialCache};
use crate::failure::{CodeClass, Ec2Failure};
use crate::options::Ec2Access;
use crate::rate::RateLimit;

/// The version of the API.
const VERSION: &str = "2016-11-15";
/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The user agent that requests carry, for the logs of AWS.
const USER_AGENT: &str = concat!("staffetta/", env!("CARGO_PKG_VERSION"));
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// An action of EC2.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ec2Action {
    /// The name in the API.
    pub(crate) name: &'static str,
    /// The operation that errors name, as an imperative.
    pub(crate) step: &'static str,
    /// `true` if the action changes something.
    pub(crate) changes: bool,
}

/// A client of EC2 in one region.
pub(crate) struct Ec2Client {
    http: Client,
    endpoint: String,
    region: String,
    credentials: CredentialCache,
    reads: RateLimit,
    changes: RateLimit,
    observer: Arc<dyn RequestObserver>,
    fence: Fence,
}

/// The signature of a request cannot be calculated.
#[derive(Debug, thiserror::Error)]
#[error("sign a request: {0}")]
struct SignError(String);

impl Ec2Client {
    /// Creates a client. Sends nothing.
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

    /// Calls an action and parses its response. After throttling, further calls fail for a while without a request.
    pub(crate) async fn call<T: DeserializeOwned>(
        &self,
        action: Ec2Action,
        parameters: &[(String, String)],
    ) -> Result<T, Ec2Failure> {
        let limit = if action.changes { &self.changes } else { &self.reads };
        limit.permit().await.map_err(|wait| {
            let error = DriverError::new(Reason::Unavailable, action.step).after(wait);
            Ec2Failure::without_response(error.detail("the rate of requests to EC2 is limited"))
        })?;
        let Some(sent) = self.fence.run(self.send(action, parameters)).await else {
            let error = DriverError::new(Reason::Unavailable, action.step).detail(Fence::REFUSED);
            let error = if action.changes { error.maybe_applied() } else { error };
            return Err(Ec2Failure::without_response(error));
        };
        let (status, body, keys) = sent.map_err(Ec2Failure::without_response)?;
        if (200..300).contains(&status) {
            limit.accepted();
            return quick_xml::de::from_str(&body).map_err(|source| {
                let error = DriverError::new(Reason::Unavailable, action.step).because(source);
                let error = error.detail("the response of EC2 cannot be parsed");
                Ec2Failure::without_response(if action.changes { error.maybe_applied() } else { error })
            });
        }
        let mut failure = Ec2Failure::of_response(action.step, status, &body, action.changes);
        match CodeClass::of(&failure.code, status) {
            CodeClass::Throttled => failure.error = failure.error.after(limit.throttled()),
            CodeClass::StaleCredentials => self.credentials.refused(&keys).await,
            CodeClass::Other(_) => {}
        }
        Err(failure)
    }

    /// Signs and sends a request, and reads the response, whatever its status.
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
        let headers =
            signature(&keys, &self.region, &self.endpoint, &body, SystemTime::now()).map_err(invalid)?;
        let request = self.http.post(&self.endpoint).headers(headers).body(body).timeout(TIMEOUT);
        let mut timer = Ec2RequestTimer {
            observer: &*self.observer,
            action: action.name,
            outcome: RequestOutcome::Unanswered,
            started: Instant::now(),
        };
        let response = request.send().await.map_err(|error| {
            let sent = action.changes && !error.is_connect() && !error.is_builder();
            let failed = DriverError::new(Reason::Unavailable, action.step).because(error.without_url());
            if sent { failed.maybe_applied() } else { failed }
        })?;
        let status = response.status().as_u16();
        let body = read_body(response).await.map_err(|detail| {
            let failed = DriverError::new(Reason::Unavailable, action.step).detail(detail);
            if action.changes { failed.maybe_applied() } else { failed }
        })?;
        timer.outcome = RequestOutcome::of_status(status);
        debug!(action = action.name, status, "EC2 answered");
        Ok((status, body, keys))
    }
}

/// Returns the headers of a signed `POST` of a form.
fn signature(
    keys: &AccessKeys,
    region: &str,
    url: &str,
    body: &str,
    now: SystemTime,
) -> Result<HeaderMap, SignError> {
    let wrong = |error: &dyn std::fmt::Display| SignError(error.to_string());
    let token = keys.token.as_ref().map(|token| token.expose_secret().to_owned());
    let secret = keys.secret.expose_secret();
    let identity = Credentials::new(&keys.id, secret, token, keys.expires, "staffetta").into();
    let parameters = SigningParams::builder().identity(&identity).region(region).name("ec2").time(now);
    let parameters =
        parameters.settings(SigningSettings::default()).build().map_err(|error| wrong(&error))?;
    let headers = [(CONTENT_TYPE.as_str(), FORM)].into_iter();
    let request = SignableRequest::new("POST", url, headers, SignableBody::Bytes(body.as_bytes()));
    let signed = sign(request.map_err(|error| wrong(&error))?, &parameters.into());
    let (instructions, _) = signed.map_err(|error| wrong(&error))?.into_parts();
    let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(FORM))]);
    for (name, value) in instructions.headers() {
        let name = HeaderName::try_from(name).map_err(|error| wrong(&error))?;
        let mut value = HeaderValue::try_from(value).map_err(|error| wrong(&error))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

/// Reports a request to the observer when it is dropped. A request that was cancelled is reported as unanswered.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The access key of the examples in the AWS documentation.
    fn keys(token: Option<&str>) -> AccessKeys {
        AccessKeys {
            id: "AKIDEXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".into(),
            token: token.map(Into::into),
            expires: None,
        }
    }

    #[test]
    fn a_request_is_signed_with_the_key_the_region_and_the_service() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160);
        let headers = signature(
            &keys(Some("session")),
            "us-east-1",
            "https://ec2.us-east-1.amazonaws.com",
            "Action=A",
            now,
        )
        .unwrap();
        let text = |name: &str| headers[name].to_str().unwrap();
        assert_eq!(text("x-amz-date"), "20150830T123600Z");
        assert_eq!(text("x-amz-security-token"), "session");
        assert!(text("authorization").starts_with(
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/ec2/aws4_request, \
             SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
        ));
        assert!(!format!("{headers:?}").contains("session"), "secrets are not shown");
        let other = signature(
            &keys(Some("session")),
            "us-east-1",
            "https://ec2.us-east-1.amazonaws.com",
            "Action=B",
            now,
        )
        .unwrap();
        assert_ne!(headers["authorization"], other["authorization"]);
    }
}
