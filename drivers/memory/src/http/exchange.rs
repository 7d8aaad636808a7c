//! Sends one HTTP request of a [`Client`] and reads its response, or returns the error if there is none.

use reqwest::{RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use staffetta_driver::{DriverError, Reason, RequestRecord};
use tracing::{Instrument, info_span};

use super::REQUEST_ID;
use super::client::Client;
use super::method::CallStep;

/// The maximum length of the part of a response that an error quotes, in characters.
const QUOTED: usize = 200;

impl Client {
    /// Sends a request and deserializes its response. Every error names the id of the request. If a request that changes something may have
    /// been sent, and has no readable response, the error is ambiguous. If it was certainly not sent, the error is not.
    pub(super) async fn exchange<A: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        step: CallStep,
    ) -> Result<A, DriverError> {
        let request_id = self.next_request_id();
        let request = request.header(REQUEST_ID, request_id.as_str());
        let (client, request) = request.build_split();
        let answer = async {
            let request = request.map_err(|error| self.unanswered(step, error))?;
            let changes = matches!(step, CallStep::Changes(_));
            let mut record = RequestRecord::start(request.method().as_str(), request.url().path(), changes);
            record.set_request_id(&request_id);
            let response = client.execute(request).await.map_err(|error| self.unanswered(step, error))?;
            let status = response.status();
            let body = self.body(response, step).await?;
            record.set_status(status.as_u16());
            read(status, &body, step)
        };
        let span = info_span!(
            "request to the simulated cloud",
            otel.name = step.text(),
            otel.kind = "client",
            request_id
        );
        answer.instrument(span).await.map_err(|error| error.request_id(request_id))
    }

    /// Reads a response body. A body above the maximum size of a response is an error.
    async fn body(&self, mut response: Response, step: CallStep) -> Result<Vec<u8>, DriverError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.unanswered(step, error))? {
            if body.len() + chunk.len() > self.max_response {
                let detail = format!("the answer has more than {} bytes", self.max_response);
                return Err(unknown(step).detail(detail));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Returns the error of a request without a complete response. It is ambiguous if the request changes something, unless no connection
    /// could be established.
    fn unanswered(&self, step: CallStep, error: reqwest::Error) -> DriverError {
        let error = error.without_url();
        if error.is_connect() {
            let detail = format!("cannot connect to {}", self.url);
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

/// Deserializes the body of a complete response, or returns the error that it contains.
fn read<A: DeserializeOwned>(status: StatusCode, body: &[u8], step: CallStep) -> Result<A, DriverError> {
    if status == StatusCode::OK {
        return serde_json::from_slice(body)
            .map_err(|error| unknown(step).detail("the response cannot be decoded").because(error));
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

/// Returns the error of a request whose outcome is not known. It is ambiguous if the request changes something.
fn unknown(step: CallStep) -> DriverError {
    let error = DriverError::new(Reason::Unavailable, step.text());
    match step {
        CallStep::Reads(_) => error,
        CallStep::Changes(_) => error.maybe_applied(),
    }
}
