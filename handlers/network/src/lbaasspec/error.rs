//! What can go wrong when a spec is written.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_handler::{Failure, Stale, WriteError};

use crate::annotation::AnnotationError;

/// Why a service did not get its spec; each variant is a step.
#[derive(Debug, thiserror::Error)]
pub enum LbaasSpecError {
    /// A field of the service is not as it must be.
    #[error("the field {field} is `{found}`, which is no {expected}; correct or remove it")]
    Field {
        /// The field.
        field: &'static str,
        /// What it holds.
        found: String,
        /// What it must hold.
        expected: &'static str,
    },
    /// The spec that stands on the service cannot be read.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// The driver `service_project` failed.
    #[error("find the project of the service")]
    Project(#[source] DriverError),
    /// The driver `service_subnets` failed.
    #[error("find the subnet of the service")]
    Subnets(#[source] DriverError),
    /// The driver `service_subnets` named no subnet.
    #[error(
        "no subnet is configured for the service; see the options of the driver named by `service_subnets_driver`"
    )]
    NoSubnet,
    /// The driver `service_security_groups` failed.
    #[error("find the security groups of the service")]
    SecurityGroups(#[source] DriverError),
    /// The event is older than our last write.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The annotation could not be written.
    #[error("write the spec of the load balancer")]
    Write(#[from] WriteError),
}

impl Failure for LbaasSpecError {
    fn transient(&self) -> bool {
        match self {
            Self::Project(error) | Self::Subnets(error) | Self::SecurityGroups(error) => error.transient(),
            Self::Stale(error) => error.transient(),
            Self::Write(error) => error.transient(),
            Self::Field { .. } | Self::Annotation(_) | Self::NoSubnet => false,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Project(error) | Self::Subnets(error) | Self::SecurityGroups(error) => error.retry_after(),
            Self::Stale(error) => error.retry_after(),
            Self::Write(error) => error.retry_after(),
            Self::Field { .. } | Self::Annotation(_) | Self::NoSubnet => None,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Field { .. } => "FieldInvalid",
            Self::Annotation(_) => "AnnotationMalformed",
            Self::NoSubnet => "NoSubnet",
            Self::Project(error) | Self::Subnets(error) | Self::SecurityGroups(error) => {
                error.reason().name()
            }
            Self::Stale(error) => error.reason(),
            Self::Write(error) => error.reason(),
        }
    }
}
