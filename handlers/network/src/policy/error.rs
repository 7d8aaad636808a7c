//! Errors of the handler `policy`.

use std::time::Duration;

use staffetta_driver::Reason;
use staffetta_handler::{Failure, Pending};

use super::index::GroupNotReady;
use crate::step_error::StepError;

/// The delay before a pod is handled again while one of its security groups is being created.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// An error of the handler `policy`: the security groups of a policy or a pod could not be
/// reconciled.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A driver call, for example to create a security group, failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Security groups that no policy needs any more are still assigned to VIFs, so that they
    /// cannot be deleted. The value is their number.
    #[error("{0} security groups are no longer needed, but ports still use them")]
    InUse(usize),
    /// A security group that a pod must have does not exist yet, or does not have its rules yet.
    #[error(transparent)]
    NotReady(#[from] GroupNotReady),
    /// A security group that a rule refers to as its remote group does not exist.
    #[error("a security group that the rules refer to does not exist")]
    PeersMissing,
}

impl PolicyError {
    /// Returns `true` if the driver reported a missing or conflicting resource, so that the
    /// in-memory state of the security groups may be outdated.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Step(error) if matches!(error.driver_reason(), Some(Reason::NotFound | Reason::Conflict)))
    }
}

impl Failure for PolicyError {
    /// Returns `true` if another attempt may succeed, also if a resource is missing, because the next attempt creates it.
    fn transient(&self) -> bool {
        match self {
            Self::Step(error) => error.transient() || error.driver_reason() == Some(Reason::NotFound),
            _ => true,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotReady(_) => Some(RETRY_DELAY),
            Self::Step(error) => error.retry_after(),
            Self::InUse(_) | Self::PeersMissing => None,
        }
    }

    fn pending(&self) -> Option<Pending> {
        matches!(self, Self::InUse(_) | Self::NotReady(_)).then(Pending::default)
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::InUse(_) => "SecurityGroupInUse",
            Self::NotReady(_) | Self::PeersMissing => "SecurityGroupMissing",
            Self::Step(error) => error.reason(),
        }
    }
}
