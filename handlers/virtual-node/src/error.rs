//! What can go wrong with a virtual node and its pods.

use std::time::Duration;

use staffetta_driver::{DriverError, Reason};
use staffetta_handler::{Failure, Stale, WriteError};

use crate::environment::EnvironmentError;

/// The step that failed for a virtual node or one of its pods.
#[derive(Debug, thiserror::Error)]
pub enum VirtualNodeError {
    /// There is a node of that name which has a kubelet, or belongs to another handler.
    #[error(
        "keep the node {0}: a node of that name exists, and somebody else keeps it; give the machine another name"
    )]
    NameTaken(String),
    /// The node could not be written.
    #[error("{step} of the node {name}")]
    Node {
        /// What was tried.
        step: &'static str,
        /// The node.
        name: String,
        /// Why not.
        #[source]
        source: Box<kube::Error>,
    },
    /// A status could not be written.
    #[error("write the status")]
    Status(#[source] WriteError),
    /// The event is older than our last write.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The environment of a container could not be made.
    #[error("make the environment of the pod")]
    Environment(#[source] EnvironmentError),
    /// The machine did not bring the pod nearer.
    #[error("bring the pod to its machine")]
    Apply(#[source] DriverError),
    /// The machine tried and failed, and is asked again later.
    #[error("bring the pod to its machine: {reason}: {message}")]
    Failing {
        /// What failed, in one word of CamelCase.
        reason: String,
        /// What the machine says of it.
        message: String,
        /// When it is worth asking again.
        ask_again: Duration,
    },
    /// The machine could not be rid of a pod.
    #[error("rid the machine of the pod")]
    Remove(#[source] DriverError),
    /// It could not be read whether a pod exists.
    #[error("look whether the owner of what runs on the machine exists")]
    Owner(#[source] Box<kube::Error>),
    /// Machines could not be read when it was to be told what would be done with them.
    #[error("read the machines: {0}")]
    Unread(String),
    /// The pod was not deleted.
    #[error("delete the pod, of which nothing is left")]
    Delete(#[source] Box<kube::Error>),
}

impl Failure for VirtualNodeError {
    fn transient(&self) -> bool {
        match self {
            Self::NameTaken(_) | Self::Unread(_) => false,
            Self::Node { source, .. } | Self::Owner(source) | Self::Delete(source) => source.transient(),
            Self::Status(error) => error.transient(),
            Self::Stale(error) => error.transient(),
            Self::Environment(error) => error.transient(),
            Self::Apply(error) | Self::Remove(error) => error.transient(),
            Self::Failing { .. } => true,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::NameTaken(_) | Self::Unread(_) => None,
            Self::Node { source, .. } | Self::Owner(source) | Self::Delete(source) => source.retry_after(),
            Self::Status(error) => error.retry_after(),
            Self::Stale(error) => error.retry_after(),
            Self::Environment(error) => error.retry_after(),
            Self::Apply(error) | Self::Remove(error) => error.retry_after(),
            Self::Failing { ask_again, .. } => Some(*ask_again),
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::NameTaken(_) => "NodeNameTaken",
            Self::Unread(_) => Reason::Unavailable.name(),
            Self::Failing { .. } => "MachineFailed",
            Self::Node { source, .. } | Self::Owner(source) | Self::Delete(source) => source.reason(),
            Self::Status(error) => error.reason(),
            Self::Stale(error) => error.reason(),
            Self::Environment(error) => error.reason(),
            Self::Apply(error) | Self::Remove(error) => error.reason().name(),
        }
    }
}
