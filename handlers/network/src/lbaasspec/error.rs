//! Errors of the handler `lbaasspec`.

use std::time::Duration;

use staffetta_handler::Failure;

use crate::step_error::StepError;

/// An error of the handler `lbaasspec`: the annotation with the spec of a service's load balancer
/// could not be computed or written.
#[derive(Debug, thiserror::Error)]
pub enum LbaasSpecError {
    /// A field of the service is invalid.
    #[error("the field {field} is `{found}`, expected {expected}; correct or remove it")]
    Field {
        /// The path of the field, such as `spec.clusterIP`.
        field: &'static str,
        /// The value found.
        found: String,
        /// The kind of value expected.
        expected: &'static str,
    },
    /// A driver or a write failed, or the current annotation is malformed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The driver of service subnets returned no subnet.
    #[error(
        "no subnet is configured for the service; see the options of the driver named by `service_subnets_driver`"
    )]
    NoSubnet,
}

impl LbaasSpecError {
    /// Returns the error of the failed step, or `None` if the service or the configuration is
    /// invalid.
    fn step(&self) -> Option<&StepError> {
        match self {
            Self::Step(error) => Some(error),
            Self::Field { .. } | Self::NoSubnet => None,
        }
    }
}

impl Failure for LbaasSpecError {
    fn transient(&self) -> bool {
        self.step().is_some_and(Failure::transient)
    }

    fn retry_after(&self) -> Option<Duration> {
        self.step()?.retry_after()
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Field { .. } => "FieldInvalid",
            Self::NoSubnet => "NoSubnet",
            Self::Step(error) => error.reason(),
        }
    }
}
