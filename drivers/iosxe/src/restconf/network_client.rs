//! The interface between the driver and a device, which tests replace by a simulated device.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use staffetta_driver::DriverError;
use tokio::time::Instant;

use crate::model::operation::DeviceOperation;
use crate::model::resource::RestconfResource;

/// The interface of the driver to a device: RESTCONF, or a simulated device in tests. Errors are returned as [`RequestFailure`].
#[async_trait]
pub(crate) trait NetworkClient: Send + Sync {
    /// Reads a resource and returns the body of the response; `None` if the resource is empty. `step` is an imperative
    /// for error messages.
    async fn get(
        &self,
        resource: RestconfResource,
        step: &'static str,
    ) -> Result<Option<Vec<u8>>, RequestFailure>;

    /// Adds an application to the configuration. `body` is the complete request body.
    async fn configure(&self, body: &Value) -> Result<(), RequestFailure>;

    /// Merges `body` into the configuration of the application `id`.
    async fn amend(&self, id: &str, body: &Value) -> Result<(), RequestFailure>;

    /// Removes the application `id` from the configuration. Succeeds if it is not there.
    async fn remove(&self, id: &str) -> Result<(), RequestFailure>;

    /// Calls an operation. `limit` is the time limit of the response; `None` for the usual time limit of requests.
    async fn operate(
        &self,
        operation: &DeviceOperation,
        limit: Option<Duration>,
    ) -> Result<(), RequestFailure>;

    /// Returns the time of the last response of the device, other than a refused log-in; `None` before the first.
    fn last_answer(&self) -> Option<Instant>;
}

/// The failure of a request to a device, with what the driver needs to choose the next step.
#[derive(Debug)]
pub(crate) struct RequestFailure {
    /// The error with its reason, for the caller of the driver.
    pub(crate) error: Box<DriverError>,
    /// The error response of the device in words, for a read only its HTTP status; `None` for any other failure, a refused log-in, or a
    /// resource that the device does not serve.
    pub(crate) device_text: Option<String>,
    /// `true` if the request reached the device, which did not answer within the time limit.
    pub(crate) timed_out: bool,
}

/// The cause (`Error::source`) in the error of a request that reached the device and was not answered within the time limit.
#[derive(Debug, thiserror::Error)]
#[error("no answer in time")]
pub(crate) struct NoAnswer;

impl From<DriverError> for RequestFailure {
    fn from(error: DriverError) -> Self {
        let timed_out = error.is_because_of::<NoAnswer>();
        Self { error: Box::new(error), device_text: None, timed_out }
    }
}

impl From<RequestFailure> for DriverError {
    fn from(fault: RequestFailure) -> Self {
        *fault.error
    }
}
