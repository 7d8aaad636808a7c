//! Errors of the handler `lbaasspec`, and of the settings that the handler `lb` reads.

use std::time::Duration;

use staffetta_handler::{Failure, Pending};

use crate::step_error::StepError;

/// An error of the desired load balancer of a service: the annotation with its spec could not be
/// computed or written, or a setting that the handler `lb` reads from the service is invalid.
#[derive(Debug, thiserror::Error)]
pub enum LbaasSpecError {
    /// A field or an annotation of the service is invalid.
    #[error("{field} is `{found}`, expected {expected}; correct or remove it")]
    Field {
        /// The path of the field, such as `spec.clusterIP`, or the key of the annotation.
        field: &'static str,
        /// The invalid value, shortened to 60 characters.
        found: String,
        /// The kind of value that is expected, in words, such as "an IP address".
        expected: &'static str,
    },
    /// A driver or a write failed, the current annotation is malformed, or the event is older than the
    /// handler's last write.
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
        if let Self::Step(error) = self { Some(error) } else { None }
    }
}

impl Failure for LbaasSpecError {
    fn transient(&self) -> bool {
        self.step().is_some_and(Failure::transient)
    }

    fn retry_after(&self) -> Option<Duration> {
        self.step()?.retry_after()
    }

    fn pending(&self) -> Option<Pending> {
        self.step()?.pending()
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Field { .. } => "FieldInvalid",
            Self::NoSubnet => "NoSubnet",
            Self::Step(error) => error.reason(),
        }
    }
}
