//! One request and its answer.

use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use staffetta_driver::{DriverError, Reason};

use super::Restconf;
use super::error_response::ErrorResponse;

const YANG_DATA: &str = "application/yang-data+json";

/// A request to the device.
#[derive(Clone)]
pub(super) struct Call<'a> {
    pub(super) method: Method,
    /// The step, as an imperative, for errors.
    pub(super) step: &'static str,
    /// The body, in JSON.
    pub(super) body: Option<&'a Value>,
    /// The time limit of an operation that takes long on the device; exceeding it does not mean that the device is
    /// unreachable. `None` for the default of all requests.
    pub(super) limit: Option<Duration>,
}

impl Restconf {
    /// Sends a request, and reads the answer whatever its status.
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

    /// Sends a request. If the device does not answer, the requests that wait behind it fail too.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        step: &'static str,
        changes: bool,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        self.gate.check()?;
        let answer = self.attempt(request, step, changes).await;
        answer.inspect_err(|error| {
            if error.reason() == Reason::Unavailable {
                self.gate.close_after_outage(error);
            }
        })
    }

    /// Sends a request with our credentials. A refused log-in and a missing answer are errors; every other answer is
    /// returned. With `changes`, a request without a complete answer may have taken effect.
    async fn attempt(
        &self,
        request: RequestBuilder,
        step: &'static str,
        changes: bool,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        let request = request.basic_auth(&self.username, Some(self.password.expose()));
        let response = request.send().await.map_err(|error| unanswered(error, step, changes))?;
        let status = response.status();
        let body = self.body(response, step, changes).await?;
        // An account that may not do everything (RFC 8341) is one that the device knows.
        let stranger = status == StatusCode::FORBIDDEN && !self.gate.has_succeeded();
        if status == StatusCode::UNAUTHORIZED || stranger {
            return Err(self.gate.close_after_refusal(ErrorResponse::read(status, &body).to_string()));
        }
        self.gate.open();
        Ok((status, body))
    }

    /// Reads the body, up to the maximum size of an answer.
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

/// Returns the error of a request without a complete answer.
fn unanswered(error: reqwest::Error, step: &'static str, changes: bool) -> DriverError {
    let error = error.without_url();
    let unavailable = DriverError::new(Reason::Unavailable, step);
    if error.is_connect() {
        return unavailable.detail("the device cannot be reached").because(error);
    }
    let detail = if error.is_timeout() { "no answer in time" } else { "the connection broke" };
    let unavailable = unavailable.detail(detail).because(error);
    if changes { unavailable.maybe_applied() } else { unavailable }
}
