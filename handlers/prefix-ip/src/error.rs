//! The errors of the handler.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_driver::pool::Wait;
use staffetta_handler::{Failure, Pending, Stale, WriteError};

/// The delay before an address is requested again that is about to arrive.
const SOON: Duration = Duration::from_millis(500);
/// The delay before an address is requested again that only the end of another pod can free.
const LATER: Duration = Duration::from_secs(20);

/// An error of the handler of prefixes.
#[derive(Debug, thiserror::Error)]
pub enum PrefixIpError {
    /// The event is older than the last write of this process.
    #[error("await the event of the last write")]
    AwaitOwnWrite(#[from] Stale),
    /// The network interface of a node cannot be read.
    #[error("read the network interface of the node")]
    ReadInterface(#[source] DriverError),
    /// The machine of a node does not exist.
    #[error(
        "the provider has no machine {0}; check `spec.providerID` of the node, and its region and account"
    )]
    NoMachine(String),
    /// The interface of the pod's node was not read yet.
    #[error("the addresses of the node {0} are not known yet")]
    NodeNotReady(String),
    /// The node has no free address.
    #[error("the node {node} has no free address: {}", remedy(*wait))]
    NoAddress {
        /// The name of the node.
        node: String,
        /// The reason.
        wait: Wait,
    },
    /// The annotation of a started pod contains an address that the pod was not given.
    #[error(
        "the pod runs with the annotation of an address that it was not given; delete the pod, so that its successor gets one"
    )]
    ForeignAddress,
    /// The annotation or the capacity cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Failure for PrefixIpError {
    fn transient(&self) -> bool {
        match self {
            Self::ReadInterface(error) => error.transient(),
            Self::Write(error) => error.transient(),
            Self::ForeignAddress => false,
            Self::AwaitOwnWrite(_) | Self::NoMachine(_) | Self::NodeNotReady(_) | Self::NoAddress { .. } => {
                true
            }
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ReadInterface(error) => error.retry_after(),
            Self::Write(error) => error.retry_after(),
            Self::NoMachine(_) => Some(LATER),
            Self::NodeNotReady(_) => Some(SOON),
            Self::NoAddress { wait, .. } => Some(match wait {
                Wait::Growing => SOON,
                Wait::Pressed(remaining) | Wait::Cooling(remaining) => (*remaining).max(SOON),
                Wait::Full | Wait::Draining => LATER,
            }),
            Self::AwaitOwnWrite(_) | Self::ForeignAddress => None,
        }
    }

    fn pending(&self) -> Option<Pending> {
        let expected = match self {
            Self::NodeNotReady(_) | Self::AwaitOwnWrite(_) => true,
            Self::NoAddress { wait, .. } => matches!(wait, Wait::Growing | Wait::Cooling(_)),
            _ => false,
        };
        expected.then(Pending::default)
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::AwaitOwnWrite(error) => error.reason(),
            Self::ReadInterface(_) => "InterfaceUnreadable",
            Self::NoMachine(_) => "MachineNotFound",
            Self::NodeNotReady(_) => "NodeNotReady",
            Self::NoAddress { .. } => "NoAddress",
            Self::ForeignAddress => "ForeignAddress",
            Self::Write(error) => error.reason(),
        }
    }
}

/// Returns the reason why a node has no free address, and what helps.
fn remedy(wait: Wait) -> &'static str {
    match wait {
        Wait::Growing => "more are being assigned",
        Wait::Pressed(_) => "the provider assigns no more; see the Events of the node",
        Wait::Cooling(_) => "those of ended pods are free after their cool-down",
        Wait::Full => {
            "all slots of its network interface are in use; use more nodes or a larger machine type"
        }
        Wait::Draining => "the function is switched off; see the ConfigMap kube-system/amazon-vpc-cni",
    }
}
