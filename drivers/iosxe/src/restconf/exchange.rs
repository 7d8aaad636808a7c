//! One request and its answer.

use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde_json::Value;
use staffetta_driver::{DriverError, Reason};

use super::Restconf;
use super::complaint::Complaint;

const YANG_DATA: &str = "application/yang-data+json";

impl Restconf {
    /// Sends a request with a body in JSON, and reads the answer whatever its status.
    pub(super) async fn exchange(
        &self,
        method: Method,
        url: Url,
        body: Option<&Value>,
        step: &'static str,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        let changes = method != Method::GET;
        let request = self.http.request(method, url).header(ACCEPT, YANG_DATA);
        let request = request.header(CONTENT_TYPE, YANG_DATA);
        let request = match body {
            Some(body) => request.body(body.to_string()),
            None => request,
        };
        self.send(request, step, changes).await
    }

    /// Sends a request as who we are. A refused log-in and a device that does not answer are errors; every other answer is
    /// one. What may have been sent and has no whole answer may have been done, where it changes something.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        step: &'static str,
        changes: bool,
    ) -> Result<(StatusCode, Vec<u8>), DriverError> {
        self.gate.pass()?;
        let request = request.basic_auth(&self.username, Some(self.password.expose()));
        let answer = async {
            let response = request.send().await.map_err(|error| unanswered(error, step, changes))?;
            let status = response.status();
            Ok((status, self.body(response, step, changes).await?))
        };
        let answer = answer.await.inspect_err(|error| self.gate.outage(error))?;
        if matches!(answer.0, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(self.gate.refused(Complaint::read(answer.0, &answer.1).to_string()));
        }
        self.gate.open();
        Ok(answer)
    }

    /// The body, of which no more is read than an answer may have.
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
                return Err(if changes { error.maybe_done() } else { error });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }
}

/// There is no answer, or no whole one.
fn unanswered(error: reqwest::Error, step: &'static str, changes: bool) -> DriverError {
    let error = error.without_url();
    let unavailable = DriverError::new(Reason::Unavailable, step);
    if error.is_connect() {
        return unavailable.detail("the device cannot be reached").because(error);
    }
    let detail = if error.is_timeout() { "no answer in time" } else { "the connection broke" };
    let unavailable = unavailable.detail(detail).because(error);
    if changes { unavailable.maybe_done() } else { unavailable }
}
