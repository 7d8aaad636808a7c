//! What can go wrong between a pod and its VIF.

use std::time::Duration;

use staffetta_driver::{DriverError, Reason, VifId};
use staffetta_handler::{Failure, Stale, WriteError};

use super::networks::NetworksError;
use crate::annotation::AnnotationError;

/// The time until it is looked again whether a network has appeared.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The step that failed between a pod and its VIF.
#[derive(Debug, thiserror::Error)]
pub enum VifError {
    /// The pod's annotation says nothing that can be understood.
    #[error("read the VIFs of the pod")]
    Annotation(#[source] AnnotationError),
    /// The project is not known.
    #[error("find the project of the pod")]
    Project(#[source] DriverError),
    /// The subnets are not known.
    #[error("find the subnets of the pod")]
    Subnets(#[source] DriverError),
    /// The further networks for which the pod asks cannot be had.
    #[error("find the further networks of the pod")]
    Networks(#[source] NetworksError),
    /// A further network's subnet is not known.
    #[error("find the subnet of interface {interface}")]
    Further {
        /// The interface.
        interface: String,
        /// Why not.
        #[source]
        source: DriverError,
    },
    /// The driver named no subnet.
    #[error("find the subnets of the pod: the driver of pod subnets names none; configure at least one")]
    NoSubnet,
    /// The security groups are not known.
    #[error("find the security groups of the pod")]
    SecurityGroups(#[source] DriverError),
    /// No VIF was made.
    #[error("request a VIF")]
    Request(#[source] DriverError),
    /// The ownership marks could not be read.
    #[error("look for VIFs that were made already")]
    Marks(#[source] DriverError),
    /// The status of a VIF could not be read.
    #[error("activate the VIF")]
    Activate(#[source] DriverError),
    /// The VIF was made and is written down; packets do not pass yet.
    #[error("the VIF {vif} is not active yet")]
    NotActive {
        /// The VIF.
        vif: VifId,
        /// When it is worth asking again.
        ask_again: Duration,
    },
    /// The VIF was not given back.
    #[error("release the VIF {vif}")]
    Release {
        /// The VIF.
        vif: VifId,
        /// Why not.
        #[source]
        source: DriverError,
    },
    /// The event is older than our last write.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The pod could not be written.
    #[error("write the VIFs down")]
    Write(#[source] WriteError),
}

impl Failure for VifError {
    fn transient(&self) -> bool {
        match self {
            Self::Annotation(_) | Self::NoSubnet => false,
            // It may appear, or be put right; to look costs nothing.
            Self::Networks(error) => !matches!(error, NetworksError::Malformed(_)),
            Self::NotActive { .. } => true,
            Self::Stale(error) => error.transient(),
            Self::Write(error) => error.transient(),
            other => other.driver().is_some_and(DriverError::transient),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NotActive { ask_again, .. } => Some(*ask_again),
            Self::Networks(_) => Some(LOOK_AGAIN),
            Self::Stale(error) => error.retry_after(),
            Self::Write(error) => error.retry_after(),
            other => other.driver().and_then(DriverError::retry_after),
        }
    }

    fn waits(&self) -> bool {
        match self {
            Self::NotActive { .. } => true,
            other => other.driver().is_some_and(|error| error.reason() == Reason::Awaited),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Annotation(_) => "AnnotationMalformed",
            Self::NoSubnet => "NoSubnet",
            Self::Networks(_) => "NetworkNotFound",
            Self::NotActive { .. } => "VifNotActive",
            Self::SecurityGroups(error) if error.reason() == Reason::Awaited => "SecurityGroupMissing",
            Self::Stale(error) => error.reason(),
            Self::Write(error) => error.reason(),
            Self::Project(error)
            | Self::Subnets(error)
            | Self::SecurityGroups(error)
            | Self::Request(error)
            | Self::Marks(error)
            | Self::Activate(error)
            | Self::Further { source: error, .. }
            | Self::Release { source: error, .. } => error.reason().name(),
        }
    }
}

impl VifError {
    fn driver(&self) -> Option<&DriverError> {
        match self {
            Self::Project(error)
            | Self::Subnets(error)
            | Self::SecurityGroups(error)
            | Self::Request(error)
            | Self::Marks(error)
            | Self::Activate(error)
            | Self::Further { source: error, .. }
            | Self::Release { source: error, .. } => Some(error),
            Self::Annotation(_)
            | Self::Networks(_)
            | Self::NoSubnet
            | Self::NotActive { .. }
            | Self::Stale(_)
            | Self::Write(_) => None,
        }
    }
}
