//! A way to a device, as the driver sees it.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::Value;
use staffetta_driver::DriverError;
use tokio::time::Instant;

use crate::model::file::FileOperation;
use crate::model::operation::Operation;
use crate::model::resource::Resource;

/// A way to a device: RESTCONF today.
#[async_trait]
pub(crate) trait NetworkClient: Send + Sync {
    /// A resource; none when the device has nothing there.
    async fn get(&self, resource: Resource, step: &'static str) -> Result<Option<Vec<u8>>, Fault>;

    /// Adds an application to the configuration.
    async fn configure(&self, body: &Value) -> Result<(), Fault>;

    /// Changes the configuration of an application by what `body` says of it; the rest stays.
    async fn amend(&self, id: &str, body: &Value) -> Result<(), Fault>;

    /// Takes an application out of the configuration. One that is not there is taken out.
    async fn remove(&self, id: &str) -> Result<(), Fault>;

    /// Does a step of an application's life. The device has accepted it then, not done.
    async fn operate(&self, operation: &Operation) -> Result<(), Fault>;

    /// Does something with a file. It is done then, for which the device may take until `limit`; none: no longer than for any
    /// other answer.
    async fn handle_file(&self, operation: &FileOperation, limit: Option<Duration>) -> Result<(), Fault>;

    /// When the device answered last, whatever it was asked.
    fn last_answer(&self) -> Option<Instant>;
}

/// Why a request did not do what it was to do.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Box<DriverError>,
    /// What the device said, where it understood the request and did not want to.
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
