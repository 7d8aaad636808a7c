//! The error of a check of a driver: of its readiness, or of a check for `staffetta check`.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_handler::Failure;

/// The error of a driver whose external system does not respond, or rejects the credentials.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(super) struct Unreachable {
    message: &'static str,
    source: DriverError,
}

impl Unreachable {
    /// Makes the error `message` with the cause `source`.
    pub(super) fn new(message: &'static str, source: DriverError) -> Self {
        Self { message, source }
    }
}

impl Failure for Unreachable {
    fn transient(&self) -> bool {
        self.source.transient()
    }

    fn retry_after(&self) -> Option<Duration> {
        self.source.retry_after()
    }
}
