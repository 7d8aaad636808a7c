//! The connection to a device, as the driver uses it.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use staffetta_driver::DriverError;
use tokio::time::Instant;

use crate::model::operation::Operation;
use crate::model::resource::Resource;

/// The connection to a device: RESTCONF, or a simulated device in tests.
#[async_trait]
pub(crate) trait NetworkClient: Send + Sync {
    /// Reads a resource; `None` if the device has nothing there.
    async fn get(&self, resource: Resource, step: &'static str) -> Result<Option<Vec<u8>>, Fault>;

    /// Adds an application to the configuration.
    async fn configure(&self, body: &Value) -> Result<(), Fault>;

    /// Merges `body` into the configuration of an application.
    async fn amend(&self, id: &str, body: &Value) -> Result<(), Fault>;

    /// Removes an application from the configuration, if it is there.
    async fn remove(&self, id: &str) -> Result<(), Fault>;

    /// Calls an operation. The device may take until `limit` to answer; `None`: no longer than for any other request.
    async fn operate(&self, operation: &Operation, limit: Option<Duration>) -> Result<(), Fault>;

    /// The time of the device's last answer to any request.
    fn last_answer(&self) -> Option<Instant>;
}

/// The failure of a request.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Box<DriverError>,
    /// The device's message, if it understood and refused the request.
    pub(crate) said: Option<String>,
}

impl From<DriverError> for Fault {
    fn from(error: DriverError) -> Self {
        Self { error: Box::new(error), said: None }
    }
}

impl From<Fault> for DriverError {
    fn from(fault: Fault) -> Self {
        *fault.error
    }
}
