//! What can go wrong between a policy and its security groups.

use std::time::Duration;

use staffetta_driver::policy::NotReady;
use staffetta_driver::{DriverError, GroupName, Reason, VifId};
use staffetta_handler::Failure;

/// How long to wait for what somebody else makes at this moment.
const SOON: Duration = Duration::from_millis(200);

/// The step that failed between a policy and its security groups.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The ownership marks could not be read.
    #[error("look for security groups that were made already")]
    Marks(#[source] DriverError),
    /// There is no group.
    #[error("make the security group `{name}`")]
    Make {
        /// The group.
        name: GroupName,
        /// Why not.
        source: DriverError,
    },
    /// A group has not all of its rules, or some that it must not have.
    #[error("change the rules of the security group `{name}`")]
    Rules {
        /// The group.
        name: GroupName,
        /// Why not.
        source: DriverError,
    },
    /// A group that nobody wants is still there.
    #[error("remove the security group `{name}`")]
    Remove {
        /// The group.
        name: GroupName,
        /// Why.
        source: DriverError,
    },
    /// Groups that nobody wants still guard VIFs.
    #[error("{0} security groups that no policy needs any more still guard ports")]
    InUse(usize),
    /// A VIF is not guarded as it ought to be.
    #[error("put the security groups in front of the VIF {vif}")]
    Guard {
        /// The VIF.
        vif: VifId,
        /// Why not.
        source: DriverError,
    },
    /// A group that a pod ought to bear is not there yet.
    #[error(transparent)]
    NotReady(#[from] NotReady),
    /// A group that rules name went away meanwhile.
    #[error("a security group that the rules name is not there")]
    PeersMissing,
}

impl PolicyError {
    pub(super) fn driver(&self) -> Option<&DriverError> {
        match self {
            Self::Marks(source)
            | Self::Make { source, .. }
            | Self::Rules { source, .. }
            | Self::Remove { source, .. }
            | Self::Guard { source, .. } => Some(source),
            Self::InUse(_) | Self::NotReady(_) | Self::PeersMissing => None,
        }
    }
}

impl Failure for PolicyError {
    /// What vanished is made again.
    fn transient(&self) -> bool {
        self.driver().is_none_or(|error| error.transient() || error.reason() == Reason::NotFound)
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotReady(_) => Some(SOON),
            other => other.driver().and_then(DriverError::retry_after),
        }
    }

    fn waits(&self) -> bool {
        matches!(self, Self::InUse(_) | Self::NotReady(_))
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::InUse(_) => "SecurityGroupInUse",
            Self::NotReady(_) | Self::PeersMissing => "SecurityGroupMissing",
            other => other.driver().map_or("HandlingFailed", |error| error.reason().name()),
        }
    }
}
