//! The errors of the handler `prefix_ip`, and the reasons of its Events.

use std::time::Duration;

use staffetta_driver::DriverError;
use staffetta_handler::{Failure, Pending, Stale, WriteError};
use staffetta_pool::Wait;

// The reasons of Events that are no errors of the handler.
/// The reason of the Event on a node whose interface another program has changed.
pub(crate) const ADDRESS_DRIFT: &str = "AddressDrift";
/// The reason of the Event on a node about addresses of pods that another program removed.
pub(crate) const ADDRESS_LOST: &str = "AddressLost";
/// The reason of the Event for a pod that needs an address and does not request it.
pub(crate) const ADDRESS_NOT_REQUESTED: &str = "AddressNotRequested";
/// The reason of the Event for a pod whose annotation was lost or changed, and was written again.
pub(crate) const ADDRESS_RESTORED: &str = "AddressRestored";
/// The reason of the Event on a node about a pod whose address belongs to another pod.
pub(crate) const ADDRESS_SHARED: &str = "AddressShared";
/// The reason of the Event on a node whose blocks could not be changed; the call is repeated.
pub(crate) const ADDRESSES_UNCHANGED: &str = "AddressesUnchanged";
/// The reason of the Event on a node whose interface has no free slot.
pub(crate) const INTERFACE_FULL: &str = "InterfaceFull";
/// The reason of the Event for a node whose machine does not exist.
pub(crate) const MACHINE_NOT_FOUND: &str = "MachineNotFound";
/// The reason of the Event for a pod that waits for an address.
pub(crate) const NO_ADDRESS: &str = "NoAddress";
/// The reason of the Event for an option in the `ConfigMap` that is not used.
pub(crate) const OPTION_NOT_USED: &str = "OptionNotUsed";
/// The reason of the Event on a deleted `ConfigMap`, whose options stay in force.
pub(crate) const OPTIONS_DELETED: &str = "OptionsDeleted";
/// The reason of the Event on a node whose subnet has no free block.
pub(crate) const SUBNET_EXHAUSTED: &str = "SubnetExhausted";
/// The reason of the Event on a node whose machine does not support prefixes, although the options choose them.
pub(crate) const UNSUPPORTED: &str = "Unsupported";

/// The delay before the next search for a machine that was not found.
const SEARCH_RETRY: Duration = Duration::from_secs(20);

/// An error of the handler `prefix_ip`: the capacity of a node or the address of a pod could not be
/// reconciled.
#[derive(Debug, thiserror::Error)]
pub enum PrefixIpError {
    /// The event of the node or pod is older than the last write of this process to it.
    #[error("await the event of the last write")]
    AwaitOwnWrite(#[from] Stale),
    /// The network interface of a node cannot be read.
    #[error("read the network interface of the node")]
    ReadInterface(#[source] DriverError),
    /// The machine of the node does not exist. The value is its id.
    #[error(
        "the provider has no machine {0}; check `spec.providerID` of the node, and its region and account"
    )]
    NoMachine(String),
    /// A pod waits for an address of its node. Only a dry run fails with this error.
    #[error(transparent)]
    Wait(#[from] NoAddress),
    /// A pod that has started has the annotation of an address that this handler did not give it.
    #[error(
        "the pod runs with the annotation of an address that it was not given; delete the pod, so that its successor gets one"
    )]
    ForeignAddress,
    /// The annotation of a pod or the capacity of a node cannot be written to the Kubernetes API.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The error for a pod whose node has no free address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the node {node} has no free address: {}", self.remedy())]
pub struct NoAddress {
    /// The name of the pod's node.
    pub node: String,
    /// The reason for the wait; `None` if the network interface of the node was not read yet.
    pub wait: Option<Wait>,
}

impl NoAddress {
    /// Returns the reason why the node has no free address, and what helps.
    pub(crate) fn remedy(&self) -> &'static str {
        match self.wait {
            None => "its network interface was not read yet; see the Events of the node",
            Some(Wait::Growing) => "more are being assigned",
            Some(Wait::BackingOff(_)) => "the provider assigns no more; see the Events of the node",
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
            Self::NoMachine(_) => Some(SEARCH_RETRY),
            Self::Wait(_) | Self::AwaitOwnWrite(_) | Self::ForeignAddress => None,
        }
    }

    fn pending(&self) -> Option<Pending> {
        match self {
            Self::AwaitOwnWrite(error) => error.pending(),
            Self::Write(error) => error.pending(),
            _ => None,
        }
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
