//! Errors of the handler `policy`.

use std::time::Duration;

use staffetta_driver::Reason;
use staffetta_handler::{Failure, Pending};

use super::index::GroupNotReady;
use crate::step_error::StepError;

/// The delay before the next attempt of a pod whose group is being created.
pub(super) const RETRY_DELAY: Duration = Duration::from_millis(200);

/// A step between a policy and its security groups failed.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// A driver failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// Groups that no policy needs any more are still assigned to VIFs.
    #[error("{0} security groups are no longer needed, but ports still use them")]
    InUse(usize),
    /// A group of a pod does not exist yet.
    #[error(transparent)]
    NotReady(#[from] GroupNotReady),
    /// A group that rules refer to was deleted meanwhile.
    #[error("a security group that the rules refer to does not exist")]
    PeersMissing,
}

impl PolicyError {
    /// Returns `true` if the failed call shows that the recorded state is wrong.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Self::Step(error) if matches!(error.driver_reason(), Some(Reason::NotFound | Reason::Conflict)))
    }
}

impl Failure for PolicyError {
    /// A missing resource is created by the next attempt.
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
