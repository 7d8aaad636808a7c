//! Errors of the handler `vif`.

use std::time::Duration;

use staffetta_driver::{Reason, VifId};
use staffetta_handler::{Failure, Pending};

use super::networks::NetworksError;
use crate::step_error::StepError;

/// The delay before an additional network that is missing or invalid is looked up again.
const NETWORK_RETRY: Duration = Duration::from_secs(5);

/// An error of the handler `vif`: the VIFs of a pod could not be created, published, activated or
/// released.
#[derive(Debug, thiserror::Error)]
pub enum VifError {
    /// The additional networks that the pod requests are not available.
    #[error("find the additional networks of the pod")]
    Networks(#[source] NetworksError),
    /// The driver of pod subnets returned no subnet.
    #[error("find the subnets of the pod: the driver of pod subnets returned none; configure at least one")]
    NoSubnet,
    /// The subnets of the pod could not be determined.
    #[error(transparent)]
    Subnets(StepError),
    /// The security groups of the pod could not be determined.
    #[error(transparent)]
    SecurityGroups(StepError),
    /// A VIF in the annotation of the pod could not be activated.
    #[error(transparent)]
    Activate(StepError),
    /// Another driver call or a write to the Kubernetes API failed, the annotation is malformed, or the
    /// event is older than the handler's last write.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The VIF in the annotation belongs to the VIF pool, which did not give it to this pod: another pod
    /// uses the VIF, the pool is deleting it, or the annotation was changed.
    #[error(
        "the VIF in the annotation is one of the pool, and was not given to this pod: another pod uses it, the \
         pool is deleting it, or the annotation was changed; delete this pod"
    )]
    Shared,
    /// The VIF in the annotation does not belong to this pod.
    #[error(
        "the VIF {0} in the annotation does not belong to this pod; it is left alone: remove the annotation, or \
         delete this pod"
    )]
    Foreign(VifId),
    /// The annotation of the pod is missing or malformed, and it is unknown which of its VIFs belongs to which interface.
    #[error(
        "the annotation openstack.org/kuryr-vif was removed or changed, and it is not known which of the pod's VIFs \
         belongs to which interface; they are kept: delete this pod"
    )]
    Lost,
    /// It is not known yet if the VIF in the annotation belongs to the pod. All VIFs are listed again soon.
    #[error("the VIF {vif} in the annotation is not known yet; all VIFs are listed again")]
    Unknown {
        /// The id of the VIF.
        vif: VifId,
        /// The delay before all VIFs are listed again.
        poll_after: Duration,
    },
    /// A VIF of the pod is created and published in the annotation, but not active yet.
    #[error("the VIF {vif} is not active yet")]
    NotActive {
        /// The id of the VIF.
        vif: VifId,
        /// The delay before the next check of the VIF.
        poll_after: Duration,
    },
}

impl VifError {
    /// Returns `true` if the published VIF is unusable, so that the pod needs another one.
    pub(super) fn needs_another_vif(&self) -> bool {
        match self {
            Self::Shared | Self::Foreign(_) => true,
            Self::Activate(error) => error.driver_reason() == Some(Reason::NotFound),
            _ => false,
        }
    }

    /// Returns the error of the failed step, or `None` if the pod or the configuration is at fault.
    fn step(&self) -> Option<&StepError> {
        match self {
            Self::Subnets(error)
            | Self::SecurityGroups(error)
            | Self::Activate(error)
            | Self::Step(error) => Some(error),
            _ => None,
        }
    }
}

impl Failure for VifError {
    fn transient(&self) -> bool {
        match self {
            // The network may appear or be corrected, and looking it up is cheap.
            Self::Networks(error) => {
                !matches!(error, NetworksError::Malformed(_) | NetworksError::Isolated(_))
            }
            Self::Unknown { .. } | Self::NotActive { .. } => true,
            other => other.step().is_some_and(Failure::transient),
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unknown { poll_after, .. } | Self::NotActive { poll_after, .. } => Some(*poll_after),
            Self::Networks(_) => Some(NETWORK_RETRY),
            other => other.step()?.retry_after(),
        }
    }

    fn pending(&self) -> Option<Pending> {
        match self {
            Self::Unknown { .. } | Self::NotActive { .. } => Some(Pending::default()),
            other => other.step()?.pending(),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NoSubnet => "NoSubnet",
            Self::Networks(NetworksError::Isolated(_)) => "NetworkNotAllowed",
            Self::Networks(_) => "NetworkNotFound",
            Self::Shared => "VifShared",
            Self::Foreign(_) => "VifForeign",
            Self::Lost => "VifAnnotationLost",
            Self::Unknown { .. } => "VifUnknown",
            Self::NotActive { .. } => "VifNotActive",
            Self::SecurityGroups(error) if error.pending().is_some() => "SecurityGroupMissing",
            Self::Subnets(error) if error.pending().is_some() => "NamespaceNetworkPending",
            Self::Subnets(error)
            | Self::SecurityGroups(error)
            | Self::Activate(error)
            | Self::Step(error) => error.reason(),
        }
    }
}
