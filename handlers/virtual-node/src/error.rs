//! Errors of virtual nodes and their pods.

use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Failure, Stale, WriteError};

use crate::environment::EnvironmentError;

/// The step that failed for a virtual node or one of its pods.
#[derive(Debug, thiserror::Error)]
pub enum VirtualNodeError {
    /// A node of that name has a kubelet, or belongs to another handler.
    #[error("the node {0} is managed by another controller or a kubelet; rename the machine")]
    NameTaken(String),
    /// The node could not be written.
    #[error("{step} of the node {name}")]
    Node {
        /// The step that failed.
        step: &'static str,
        /// The node.
        name: String,
        /// The cause.
        #[source]
        source: Box<kube::Error>,
    },
    /// A status could not be written.
    #[error("write the status")]
    Status(#[source] WriteError),
    /// The event is older than our last write.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The environment of a container could not be built.
    #[error("build the environment of the pod")]
    Environment(#[source] EnvironmentError),
    /// The machine refused or failed the step.
    #[error("deploy the pod")]
    Apply(#[source] DriverError),
    /// The machine tried and failed, and is called again later.
    #[error("deploy the pod: {reason}: {message}")]
    Failing {
        /// The reason, in CamelCase.
        reason: String,
        /// The machine's message.
        message: String,
        /// The delay before the machine is called again.
        poll_after: Duration,
    },
    /// A pod could not be removed from its machine.
    #[error("remove the pod from its machine")]
    Remove(#[source] DriverError),
    /// The existence of a pod could not be read.
    #[error("check whether the pod of a workload exists")]
    Owner(#[source] Box<kube::Error>),
    /// Machines could not be read for a dry run.
    #[error("read the workloads of the machines: {0}")]
    Unread(String),
    /// The API server did not delete the pod object.
    #[error("delete the pod object")]
    Delete(#[source] Box<kube::Error>),
}

impl VirtualNodeError {
    /// The properties of the failure: `true` if it is transient, the delay before the next attempt, and its reason.
    fn class(&self) -> (bool, Option<Duration>, &'static str) {
        let of = |error: &dyn Failure| (error.transient(), error.retry_after(), error.reason());
        match self {
            Self::NameTaken(_) => (false, None, "NodeNameTaken"),
            Self::Node { source, .. } | Self::Owner(source) | Self::Delete(source) => of(&**source),
            Self::Status(error) => of(error),
            // The next attempt looks at the newest state, so it need not wait until the event is given up.
            Self::Stale(error) => (true, None, error.reason()),
            Self::Environment(error) => of(error),
            Self::Apply(error) | Self::Remove(error) => {
                (error.transient(), error.retry_after(), error.reason().name())
            }
            Self::Failing { poll_after, .. } => (true, Some(*poll_after), "MachineFailed"),
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

    fn reason(&self) -> &'static str {
        self.class().2
    }
}
