//! The errors of the handler.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_driver::pool::Wait;
use staffetta_handler::{Failure, Pending, Stale, WriteError};

// The reasons of Events that are no errors of the handler.
pub(crate) const ADDRESS_DRIFT: &str = "AddressDrift";
pub(crate) const ADDRESS_FOREIGN: &str = "AddressForeign";
pub(crate) const ADDRESS_LOST: &str = "AddressLost";
pub(crate) const ADDRESS_NOT_REQUESTED: &str = "AddressNotRequested";
pub(crate) const ADDRESS_SHARED: &str = "AddressShared";
pub(crate) const ADDRESSES_UNCHANGED: &str = "AddressesUnchanged";
pub(crate) const INTERFACE_FULL: &str = "InterfaceFull";
pub(crate) const MACHINE_NOT_FOUND: &str = "MachineNotFound";
pub(crate) const NO_ADDRESS: &str = "NoAddress";
pub(crate) const OPTION_NOT_USED: &str = "OptionNotUsed";
pub(crate) const SUBNET_EXHAUSTED: &str = "SubnetExhausted";

/// The delay before a machine is searched for again that does not exist.
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
    /// A pod waits for its address. Only a dry run fails with this error.
    #[error(transparent)]
    Wait(#[from] NoAddress),
    /// The annotation of a started pod contains an address that the pod was not given.
    #[error(
        "the pod runs with the annotation of an address that it was not given; delete the pod, so that its successor gets one"
    )]
    ForeignAddress,
    /// The annotation or the capacity cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The node of a pod has no free address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node {node} has no free address: {}", self.remedy())]
pub struct NoAddress {
    /// The name of the node.
    pub node: String,
    /// The reason; `None` if the network interface of the node was not read yet.
    pub wait: Option<Wait>,
}

impl NoAddress {
    /// Returns `true` if the pool of the node is about to assign addresses.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self.wait, None | Some(Wait::Growing))
    }

    /// Returns the reason why the node has no free address, and what helps.
    pub(crate) fn remedy(&self) -> &'static str {
        match self.wait {
            None => "its network interface was not read yet; see the Events of the node",
            Some(Wait::Growing) => "more are being assigned",
            Some(Wait::Pressed(_)) => "the provider assigns no more; see the Events of the node",
            Some(Wait::Cooling(_)) => "those of ended pods are free after their cool-down",
            Some(Wait::Full) => {
                "all slots of its network interface are in use; use more nodes or a larger machine type"
            }
            Some(Wait::Draining) => {
                "the function is switched off; see the ConfigMap kube-system/amazon-vpc-cni"
            }
        }
    }
}

impl Failure for PrefixIpError {
    fn transient(&self) -> bool {
        match self {
            Self::ReadInterface(error) => error.transient(),
            Self::Write(error) => error.transient(),
            Self::ForeignAddress | Self::Wait(_) => false,
            Self::AwaitOwnWrite(_) | Self::NoMachine(_) => true,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::ReadInterface(error) => error.retry_after(),
            Self::Write(error) => error.retry_after(),
            Self::NoMachine(_) => Some(LATER),
            Self::Wait(_) | Self::AwaitOwnWrite(_) | Self::ForeignAddress => None,
        }
    }

    fn pending(&self) -> Option<Pending> {
        matches!(self, Self::AwaitOwnWrite(_)).then(Pending::default)
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::AwaitOwnWrite(error) => error.reason(),
            Self::ReadInterface(_) => "InterfaceUnreadable",
            Self::NoMachine(_) => MACHINE_NOT_FOUND,
            Self::Wait(_) => NO_ADDRESS,
            Self::ForeignAddress => "ForeignAddress",
            Self::Write(error) => error.reason(),
        }
    }
}
