//! Sends a request to a device and reads the response.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use staffetta_driver::{DriverError, Fence, Reason, RequestRecord};
use tracing::{Instrument, Span, field, info_span};

use super::error_response::ErrorResponse;
use super::{NoAnswer, Restconf};

/// The media type of YANG data in JSON (RFC 8040).
const YANG_DATA: &str = "application/yang-data+json";

/// A request to the device, except for its URL.
#[derive(Clone)]
pub(super) struct Call<'a> {
    /// The HTTP method.
    pub(super) method: Method,
    /// The step, as an imperative, for error messages.
    pub(super) step: &'static str,
    /// The JSON body; `None` to send none.
    pub(super) body: Option<&'a Value>,
    /// The time limit of an operation that takes long on the device. If it is exceeded, the device does not count as
    /// unreachable. `None` for the usual time limit of requests.
    pub(super) limit: Option<Duration>,
}

impl Restconf {
    /// Sends a request, and returns the status and the body of the response, even if the status is an error. Returns an error if the device
    /// does not respond or refuses the log-in, or if an earlier failure still makes all requests fail.
    pub(super) async fn exchange(
        &self,
        url: Url,
        call: Call<'_>,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        let changes = call.method != Method::GET;
        let request = self.http.request(call.method, url).header(ACCEPT, YANG_DATA);
        let mut request = request.header(CONTENT_TYPE, YANG_DATA);
        if let Some(body) = call.body {
            request = request.body(body.to_string());
        }
        let answer = match call.limit {
            None => self.send(request, call.step, changes).await?,
            Some(limit) => {
                self.gate.check()?;
                self.attempt(request.timeout(limit), call.step, changes).await?
            }
        };
        if answer.0.is_success() {
            self.gate.record_success();
        }
        Ok(answer)
    }

    /// Sends a request with the usual time limit. If the device cannot be reached, closes the gate, so that waiting requests fail at once.
    /// A request that `changes` the device and is not answered within the time limit does not close the gate, because the request itself
    /// may hang. With `changes`, the error says that the request may have taken effect, unless the gate was closed, there was no
    /// connection, or the log-in was refused.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        step: &'static str,
        changes: bool,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        self.gate.check()?;
        let request = if changes { request } else { request.timeout(self.read_timeout) };
        let answer = self.attempt(request, step, changes).await;
        answer.inspect_err(|error| {
            let hangs = changes && error.is_because_of::<NoAnswer>();
            if error.reason() == Reason::Unavailable && !hangs {
                self.gate.close_after_outage(error);
            }
        })
    }

    /// Sends a request if this process is the leader, and stops it when it no longer is. Returns an error if it is not the leader, or no
    /// longer.
    async fn attempt(
        &self,
        request: RequestBuilder,
        step: &'static str,
        changes: bool,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        let span = info_span!(
            "RESTCONF request",
            otel.name = step,
            otel.kind = "client",
            http.response.status_code = field::Empty
        );
        let sent = self.fence.run(self.send_now(request, step, changes).instrument(span)).await;
        sent.unwrap_or_else(|| {
            let error = DriverError::new(Reason::Unavailable, step).detail(Fence::NOT_LEADER_MESSAGE);
            Err(if changes { error.maybe_applied() } else { error })
        })
    }

    /// Sends a request with the credentials of the device. Returns an error if the log-in is refused or there is no
    /// complete response, and every other response with its status and body. With `changes`, the error of an incomplete
    /// response says that the request may have taken effect.
    async fn send_now(
        &self,
        request: RequestBuilder,
        step: &'static str,
        changes: bool,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        let request = request.basic_auth(&self.username, Some(self.password.expose()));
        let (client, request) = request.build_split();
        let request = request.map_err(|error| unanswered(error, step, changes))?;
        let mut record = RequestRecord::start(request.method().as_str(), request.url().path(), changes);
        let response = client.execute(request).await.map_err(|error| unanswered(error, step, changes))?;
        let status = response.status();
        Span::current().record("http.response.status_code", i64::from(status.as_u16()));
        let body = self.body(response, step, changes).await?;
        record.set_status(status.as_u16());
        // After a success, 403 means that the account lacks a permission (RFC 8341), not that the log-in is refused.
        let stranger = status == StatusCode::FORBIDDEN && !self.gate.has_succeeded();
        if status == StatusCode::UNAUTHORIZED || stranger {
            return Err(self.gate.close_after_refusal(ErrorResponse::read(status, &body).status_only()));
        }
        self.gate.open();
        Ok((status, body))
    }

    /// Reads the body of a response. Returns an error if the body is larger than `max_answer`.
    async fn body(
        &self,
        mut response: Response,
        step: &'static str,
        changes: bool,
    ) -> Result<Vec<u8>, DriverError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| unanswered(error, step, changes))? {
            if body.len() + chunk.len() > self.max_answer {
                let error = DriverError::new(Reason::Unavailable, step);
                let error = error.detail(format!("the answer has more than {} bytes", self.max_answer));
                return Err(if changes { error.maybe_applied() } else { error });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// Returns the error of a request without a complete response. With `changes`, it says that the request may have taken
/// effect, unless there was no connection.
fn unanswered(error: reqwest::Error, step: &'static str, changes: bool) -> DriverError {
    let error = error.without_url();
    let unavailable = DriverError::new(Reason::Unavailable, step);
    if error.is_connect() {
        return unavailable.detail("the device cannot be reached").because(error);
    }
    let unavailable = if error.is_timeout() {
        unavailable.because(NoAnswer)
    } else {
        unavailable.detail("the connection broke").because(error)
    };
    if changes { unavailable.maybe_applied() } else { unavailable }
}
