//! Prefixes and single addresses that a cloud assigns to the network interface of a machine, and that pods of
//! that node then use.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ipnet::Ipv4Net;

use crate::error::DriverError;
use crate::id::{InstanceId, InterfaceId, SubnetId};

/// The length of a delegated prefix: 28 bits, which leaves 16 addresses (EC2 User Guide, "Prefix delegation for Amazon EC2 network
/// interfaces").
pub const PREFIX_LENGTH: u8 = 28;

/// The unit in which a provider assigns addresses. Each unit takes one of the interface's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlockKind {
    /// A prefix of [`PREFIX_LENGTH`] bits.
    Prefix,
    /// A single secondary address, as a block of 32 bits.
    Address,
}

impl BlockKind {
    /// Returns the kind of `block`; `None` if no provider assigns blocks of this length.
    pub fn of(block: Ipv4Net) -> Option<Self> {
        match block.prefix_len() {
            PREFIX_LENGTH => Some(Self::Prefix),
            32 => Some(Self::Address),
            _ => None,
        }
    }

    /// Returns the number of addresses in one block.
    pub fn size(self) -> usize {
        match self {
            Self::Prefix => 16,
            Self::Address => 1,
        }
    }
}

/// The primary network interface of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryInterface {
    /// The id of the interface in the cloud.
    pub id: InterfaceId,
    /// The subnet of the interface. Machines in the same subnet share its addresses.
    pub subnet: SubnetId,
    /// The length of the subnet's prefix in bits, 0 to 32.
    pub subnet_length: u8,
    /// The number of IPv4 addresses that this type of machine allows for one interface, its primary address included.
    pub addresses_per_interface: usize,
    /// `true` if this type of machine supports prefixes. Otherwise only single addresses can be assigned.
    pub delegates_prefixes: bool,
    /// The assigned blocks: prefixes, and secondary addresses with 32 bits. The primary address is not among them.
    pub blocks: BTreeSet<Ipv4Net>,
}

impl PrimaryInterface {
    /// Returns the number of blocks that the interface can have: every address except for the primary one takes a slot.
    pub fn slots(&self) -> usize {
        self.addresses_per_interface.saturating_sub(1)
    }
}

/// The result of an assignment. Fewer blocks than requested are normal, with or without an error.
#[derive(Clone, Debug, Default)]
pub struct Assigned {
    /// The blocks that are new on the interface.
    pub blocks: Vec<Ipv4Net>,
    /// The error that prevented the assignment of further blocks; `None` if there was none, even if fewer blocks than requested were
    /// assigned.
    pub error: Option<DriverError>,
}

/// Assigns blocks of addresses to the primary network interfaces of machines.
///
/// Guarantees of every implementation:
///
/// * One call of [`assign`](Self::assign) or [`unassign`](Self::unassign) is at most one change request to the cloud, whatever the
///   number of blocks.
/// * An exhausted or fragmented subnet is [`Reason::NoAddress`](crate::Reason::NoAddress), an interface without a free slot
///   [`Reason::Quota`](crate::Reason::Quota), and a rate limit of the cloud
///   [`Reason::Unavailable`](crate::Reason::Unavailable) with the delay before the next call.
/// * After an [ambiguous](DriverError::ambiguous) error the blocks may be assigned: [`interfaces`](Self::interfaces) shows them.
///
/// ```
/// use std::collections::BTreeMap;
/// use async_trait::async_trait;
/// use ipnet::Ipv4Net;
/// use staffetta_driver::prefix::{Assigned, BlockKind, PrefixProvider, PrimaryInterface};
/// use staffetta_driver::{DriverError, InstanceId, InterfaceId, Reason};
///
/// /// A cloud without machines.
/// struct Empty;
///
/// #[async_trait]
/// impl PrefixProvider for Empty {
///     async fn interfaces(
///         &self,
///         _: &[InstanceId],
///     ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError> {
///         Ok(BTreeMap::new())
///     }
///     async fn assign(&self, _: &InterfaceId, _: BlockKind, _: usize) -> Assigned {
///         let error = DriverError::new(Reason::NotFound, "assign addresses");
///         Assigned { error: Some(error), ..Assigned::default() }
///     }
///     async fn unassign(&self, _: &InterfaceId, _: &[Ipv4Net]) -> Result<(), DriverError> {
///         Ok(())
///     }
/// }
/// ```
#[async_trait]
pub trait PrefixProvider: Send + Sync + 'static {
    /// Reads the primary interfaces of machines. A machine that does not exist is missing in the result.
    async fn interfaces(
        &self,
        instances: &[InstanceId],
    ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError>;

    /// Assigns up to `count` further blocks of the kind `kind` to an interface. The result contains the assigned blocks, and an error if
    /// one occurred.
    async fn assign(&self, interface: &InterfaceId, kind: BlockKind, count: usize) -> Assigned;

    /// Removes blocks from an interface. A block that is not assigned counts as removed.
    async fn unassign(&self, interface: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), DriverError>;
}
