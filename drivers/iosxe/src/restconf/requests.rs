//! Implements [`NetworkClient`] by RESTCONF requests, and interprets the responses.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Method, StatusCode};
use serde_json::Value;
use staffetta_driver::{DriverError, Reason};
use tokio::time::Instant;

use super::error_response::ErrorResponse;
use super::exchange::Call;
use super::{NetworkClient, RequestFailure, Restconf};
use crate::model::APPS;
use crate::model::operation::{DeviceOperation, in_envelope};
use crate::model::resource::RestconfResource;

#[async_trait]
impl NetworkClient for Restconf {
    async fn get(
        &self,
        resource: RestconfResource,
        step: &'static str,
    ) -> Result<Option<Vec<u8>>, RequestFailure> {
        let Some(fine) = resource.fine.filter(|_| !self.coarse.load(Ordering::Relaxed)) else {
            return self.read(resource.path, resource.coarse, step).await;
        };
        let answer = self.read(resource.path, Some(fine), step).await;
        // What was no error of a part that is asked for alone would be one of the whole too.
        let misunderstood =
            |fault: &RequestFailure| fault.device_text.is_some() && fault.error.reason() == Reason::Refused;
        if resource.coarse == Some(fine) || !answer.as_ref().is_err_and(misunderstood) {
            return answer;
        }
        let whole = self.read(resource.path, resource.coarse, step).await?;
        self.coarse.store(true, Ordering::Relaxed);
        Ok(whole)
    }

    async fn configure(&self, body: &Value) -> Result<(), RequestFailure> {
        const STEP: &str = "configure an app";
        let call = Call { method: Method::POST, step: STEP, body: Some(body), limit: None };
        accepted(self.change(APPS, call).await?, STEP)
    }

    async fn amend(&self, id: &str, body: &Value) -> Result<(), RequestFailure> {
        const STEP: &str = "change the configuration of an app";
        let call = Call { method: Method::PATCH, step: STEP, body: Some(body), limit: None };
        accepted(self.change(&path_of(id), call).await?, STEP)
    }

    async fn remove(&self, id: &str) -> Result<(), RequestFailure> {
        const STEP: &str = "remove the configuration of an app";
        let call = Call { method: Method::DELETE, step: STEP, body: None, limit: None };
        let refusal = self.change(&path_of(id), call).await?;
        let is_there = |it: &ErrorResponse| !it.is_nothing_there() && !it.has_tag("data-missing");
        accepted(refusal.filter(is_there), STEP)
    }

    async fn operate(
        &self,
        operation: &DeviceOperation,
        limit: Option<Duration>,
    ) -> Result<(), RequestFailure> {
        let (path, step, input) = (operation.path(), operation.step(), operation.input());
        let (bare_input, enveloped) = (self.bare_input.load(Ordering::Relaxed), in_envelope(&input));
        let (usual, other) = if bare_input { (&input, &enveloped) } else { (&enveloped, &input) };
        let call = |body| Call { method: Method::POST, step, body: Some(body), limit };
        let refusal = self.change(path, call(usual)).await?;
        // What was malformed was not done: the other form may be sent at once.
        if !refusal.as_ref().is_some_and(|refusal| refusal.has_tag("malformed-message")) {
            return accepted(refusal, step);
        }
        match self.change(path, call(other)).await? {
            Some(again) if again.has_tag("malformed-message") => accepted(refusal, step),
            again => {
                self.bare_input.store(!bare_input, Ordering::Relaxed);
                accepted(again, step)
            }
        }
    }

    fn last_answer(&self) -> Option<Instant> {
        self.gate.answered()
    }
}

impl Restconf {
    /// Reads a resource, with an optional query. Returns the body of the response; `None` if the resource has no data. Returns an error
    /// if the device does not serve the resource, which does not mean that there is no data.
    async fn read(
        &self,
        path: &'static str,
        query: Option<&'static str>,
        step: &'static str,
    ) -> Result<Option<Vec<u8>>, RequestFailure> {
        let call = Call { method: Method::GET, step, body: None, limit: None };
        let mut url = self.url(path).await?;
        url.set_query(query);
        let (status, body) = self.exchange(url, call).await?;
        let served = || self.served.lock();
        if status.is_success() {
            served().insert(path);
            return Ok((!body.is_empty()).then_some(body));
        }
        let refusal = ErrorResponse::read(status, &body);
        let silent = status == StatusCode::NOT_FOUND && body.is_empty();
        if refusal.is_nothing_there() || (silent && served().contains(path)) {
            return Ok(None);
        }
        if status == StatusCode::NOT_FOUND {
            self.forget_root();
            let error = DriverError::new(Reason::Unavailable, step);
            let detail = format!("the device does not serve {path}: {}", refusal.status_only());
            return Err(error.detail(detail).into());
        }
        Err(refusal.fault(step, false))
    }

    /// Sends a request that changes the device. Returns the error response if the device refused it; `None` if it
    /// succeeded.
    async fn change(&self, path: &str, call: Call<'_>) -> Result<Option<ErrorResponse>, DriverError> {
        let url = self.url(path).await?;
        let (status, answer) = self.exchange(url, call).await?;
        if status.is_success() {
            Ok(ErrorResponse::in_output(status, &answer))
        } else {
            Ok(Some(ErrorResponse::read(status, &answer)))
        }
    }
}

/// Returns the result of a request that changes the device: the failure with the error response `refusal`, or success without one.
fn accepted(refusal: Option<ErrorResponse>, step: &'static str) -> Result<(), RequestFailure> {
    refusal.map_or(Ok(()), |refusal| Err(refusal.fault(step, true)))
}

/// Returns the path of the configuration of the application `id`.
fn path_of(id: &str) -> String {
    format!("{}/app={}", APPS, encoded(id))
}

/// Returns a list key in the percent-encoding that a path requires (RFC 8040, section 3.5.3).
fn encoded(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes whatever is written");
        }
    }
    encoded
}
