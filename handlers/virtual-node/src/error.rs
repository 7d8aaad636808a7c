//! Errors of reconciling virtual nodes and their pods.

use std::borrow::Cow;
use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Failure, Pending, Stale, WriteError};

use crate::environment::EnvironmentError;

/// The reason in the status of a container that cannot start, because an older pod on the same machine has the same
/// container with another image.
pub(crate) const IMAGE_CONFLICT: &str = "ImageConflict";

/// The reason in the status of a container that cannot be created as specified. Kubelets use the same reason.
pub(crate) const REFUSED: &str = "CreateContainerConfigError";

/// An error of reconciling a virtual node or one of its pods: the step that failed.
#[derive(Debug, thiserror::Error)]
pub enum VirtualNodeError {
    /// A node of this name has a kubelet, or belongs to another handler or installation.
    #[error("the node {0} is managed by another controller or a kubelet; rename the machine")]
    NameTaken(String),
    /// A Node object, its lease or the list of its pods could not be read or written.
    #[error("{step} of the node {name}")]
    Node {
        /// The step that failed, as an imperative.
        step: &'static str,
        /// The name of the node.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// The status of a node or a pod could not be written.
    #[error("write the status")]
    Status(#[source] WriteError),
    /// The object from the watch is older than the last write of this process to that object.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The environment variables of a container could not be determined.
    #[error("build the environment of the pod")]
    Environment(#[source] EnvironmentError),
    /// The machine refused or failed a step of the deployment.
    #[error("deploy the pod")]
    Apply(#[source] DriverError),
    /// The machine reported that it fails to run or remove a pod
    /// ([`PodProgress::Failing`](staffetta_driver::virtual_node::PodProgress::Failing)).
    #[error("run or remove the pod: {reason}: {message}")]
    Failing {
        /// The reason of the failure, one word in CamelCase.
        reason: Cow<'static, str>,
        /// The message of the machine about the failure.
        message: String,
        /// The delay before the next step for the pod.
        poll_after: Duration,
    },
    /// A step of the removal of a pod from its machine failed.
    #[error("remove the pod from its machine")]
    Remove(#[source] DriverError),
    /// The API server did not answer the request that checks whether the pod of a workload exists.
    #[error("check whether the pod of a workload exists")]
    Owner(#[source] Box<kube::Error>),
    /// Machines could not be read in a dry run. The text contains the name of each node with the error.
    #[error("read the workloads of the machines: {0}")]
    Unread(String),
    /// The API server did not delete a pod object whose workload was removed.
    #[error("delete the pod object")]
    Delete(#[source] Box<kube::Error>),
}

impl VirtualNodeError {
    /// Returns `true` if only a change of the pod can end the error, whatever becomes of its machine: for example, that of an image name.
    pub(crate) fn is_of_pod_alone(&self) -> bool {
        matches!(self, Self::Apply(error) if !error.transient() && error.name().is_some())
    }

    /// Returns three properties of the error: `true` if it is transient, the delay before the next attempt (`None` for the
    /// default back-off), and the reason, one word in CamelCase.
    fn class(&self) -> (bool, Option<Duration>, &'static str) {
        let of = |error: &dyn Failure| (error.transient(), error.retry_after(), error.reason());
        match self {
            Self::NameTaken(_) => (false, None, "NodeNameTaken"),
            Self::Node { source, .. } | Self::Owner(source) | Self::Delete(source) => of(&**source),
            Self::Status(error) => of(error),
            Self::Stale(error) => of(error),
            Self::Environment(error) => of(error),
            Self::Apply(error) if !error.transient() => (false, None, error.name().unwrap_or(REFUSED)),
            Self::Apply(error) | Self::Remove(error) => {
                (error.transient(), error.retry_after(), error.reason().name())
            }
            Self::Failing { reason, poll_after, .. } => {
                let reason = if let Cow::Borrowed(reason) = reason { reason } else { "MachineFailed" };
                (true, Some(*poll_after), reason)
            }
            Self::Unread(_) => (false, None, Reason::Unavailable.name()),
        }
    }
}

impl Failure for VirtualNodeError {
    fn transient(&self) -> bool {
        self.class().0
    }

    fn retry_after(&self) -> Option<Duration> {
        self.class().1
    }

    fn pending(&self) -> Option<Pending> {
        match self {
            Self::Status(error) => error.pending(),
            Self::Stale(error) => error.pending(),
            _ => None,
        }
    }

    fn reason(&self) -> &'static str {
        self.class().2
    }
}
