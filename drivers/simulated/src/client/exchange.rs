//! One request and its answer, and what it means when that does not come.

use reqwest::{RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, Reason};

use super::{Client, header};
use crate::method::Step;
use crate::wire::REQUEST_ID;

/// How much of an answer that was not expected is quoted, in characters.
const QUOTED: usize = 200;

impl Client {
    /// Sends a request and reads its answer.
    ///
    /// Every error names the id of the request. What may have been sent and has no answer that can be understood is
    /// ambiguous where it changes something; what certainly never left is not.
    pub(super) async fn exchange<A: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        step: Step,
    ) -> Result<A, DriverError> {
        let request_id = self.request_ids.next();
        let request = request.header(REQUEST_ID, header(&request_id));
        let answer = async {
            let response = request.send().await.map_err(|error| self.unanswered(step, error))?;
            let status = response.status();
            let body = self.body(response, step).await?;
            read(status, &body, step)
        };
        answer.await.map_err(|error| error.request_id(request_id))
    }

    /// The body, of which no more is read than an answer may have.
    async fn body(&self, mut response: Response, step: Step) -> Result<Vec<u8>, DriverError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unanswered(step, error))? {
            if body.len() + chunk.len() > self.max_answer {
                let detail = format!("the answer has more than {} bytes", self.max_answer);
                return Err(unknown(step).detail(detail));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// There is no answer, or no whole one.
    fn unanswered(&self, step: Step, error: reqwest::Error) -> DriverError {
        let error = error.without_url();
        if error.is_connect() {
            let detail = format!("there is no way to {}", self.url);
            return DriverError::new(Reason::Unavailable, step.text()).detail(detail).because(error);
        }
        let detail = if error.is_timeout() {
            format!("no answer within {} ms", self.timeout.as_millis())
        } else {
            "the connection broke".to_owned()
        };
        unknown(step).detail(detail).because(error)
    }
}

/// What a whole answer says.
fn read<A: DeserializeOwned>(status: StatusCode, body: &[u8], step: Step) -> Result<A, DriverError> {
    if status == StatusCode::OK {
        return serde_json::from_slice(body)
            .map_err(|error| unknown(step).detail("the answer is not what it should be").because(error));
    }
    if status == StatusCode::UNPROCESSABLE_ENTITY
        && let Ok(error) = serde_json::from_slice::<DriverError>(body)
    {
        return Err(error);
    }
    let quoted: String = String::from_utf8_lossy(body).trim().chars().take(QUOTED).collect();
    let detail = format!("HTTP {}: {quoted}", status.as_u16());
    if status.is_client_error() {
        return Err(DriverError::new(Reason::Refused, step.text()).detail(detail));
    }
    Err(unknown(step).detail(detail))
}

/// Nobody knows whether it was done.
fn unknown(step: Step) -> DriverError {
    let error = DriverError::new(Reason::Unavailable, step.text());
    match step {
        Step::Reads(_) => error,
        Step::Changes(_) => error.maybe_done(),
    }
}
