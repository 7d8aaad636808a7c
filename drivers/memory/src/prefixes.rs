//! A simulated cloud that assigns prefixes and single addresses to the network interfaces of machines, as EC2 does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ipnet::Ipv4Net;
use staffetta_driver::prefix::{Assigned, BlockKind, PREFIX_LENGTH, PrefixProvider, PrimaryInterface};
use staffetta_driver::{DriverError, InstanceId, InterfaceId, Reason, SubnetId};

const ASSIGN: &str = "assign addresses to a network interface";
const UNASSIGN: &str = "remove addresses from a network interface";

/// The number of addresses that EC2 reserves at the start of a subnet; one more is reserved at its end (VPC User Guide, "Subnet CIDR
/// blocks").
const RESERVED: u32 = 4;

/// The failure of one future call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixFault {
    /// The cloud limits the rate of calls, and nothing changes.
    Throttled(Duration),
    /// The cloud fails, and nothing changes.
    Failed,
    /// The call takes effect, but the response is lost.
    Lost,
    /// At most this number of blocks is assigned.
    Partial(usize),
}

/// A simulated cloud with subnets and machines. Each machine has one network interface.
#[derive(Default)]
pub struct MemoryPrefixes(Mutex<PrefixCloud>);

#[derive(Default)]
struct PrefixCloud {
    subnets: BTreeMap<SubnetId, PrefixSubnet>,
    interfaces: BTreeMap<InstanceId, PrimaryInterface>,
    faults: VecDeque<PrefixFault>,
    calls: PrefixCalls,
}

/// A subnet, and its addresses that are in use outside of the blocks of interfaces.
struct PrefixSubnet {
    range: Ipv4Net,
    taken: BTreeSet<Ipv4Addr>,
}

/// The number of calls so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCalls {
    /// The number of reads of interfaces.
    pub interfaces: usize,
    /// The number of assignments.
    pub assign: usize,
    /// The number of removals.
    pub unassign: usize,
}

impl MemoryPrefixes {
    /// Adds a subnet. Its first four addresses and its last one are reserved.
    pub fn add_subnet(&self, id: &SubnetId, range: Ipv4Net) {
        let first = range.network();
        let reserved = (0..RESERVED).map(|offset| Ipv4Addr::from(u32::from(first) + offset));
        let taken = reserved.chain([range.broadcast()]).collect();
        self.cloud().subnets.insert(id.clone(), PrefixSubnet { range, taken });
    }

    /// Takes an address of a subnet, as another user of the subnet does. It splits the free prefixes.
    pub fn take_address(&self, subnet: &SubnetId, address: Ipv4Addr) {
        if let Some(subnet) = self.cloud().subnets.get_mut(subnet) {
            subnet.taken.insert(address);
        }
    }

    /// Adds a machine, whose interface has the lowest free address of the subnet as its primary address.
    pub fn add_machine(
        &self,
        id: &InstanceId,
        subnet: &SubnetId,
        addresses_per_interface: usize,
        delegates_prefixes: bool,
    ) {
        let mut cloud = self.cloud();
        let primary = cloud.free(subnet, 32).next();
        let Some(known) = cloud.subnets.get_mut(subnet) else { return };
        known.taken.extend(primary.map(|block| block.network()));
        let interface = PrimaryInterface {
            id: format!("eni-{id}").into(),
            subnet: subnet.clone(),
            subnet_length: known.range.prefix_len(),
            addresses_per_interface,
            delegates_prefixes,
            blocks: BTreeSet::new(),
        };
        cloud.interfaces.insert(id.clone(), interface);
    }

    /// Removes a machine with its interface.
    pub fn remove_machine(&self, id: &InstanceId) {
        self.cloud().interfaces.remove(id);
    }

    /// Removes a block from an interface, as another user of the cloud does.
    pub fn remove_block(&self, block: Ipv4Net) {
        for interface in self.cloud().interfaces.values_mut() {
            interface.blocks.remove(&block);
        }
    }

    /// Makes the next calls fail, each with one of `faults`.
    pub fn fail_next(&self, faults: impl IntoIterator<Item = PrefixFault>) {
        self.cloud().faults.extend(faults);
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> PrefixCalls {
        self.cloud().calls
    }

    /// Returns the blocks of all interfaces.
    pub fn blocks(&self) -> BTreeSet<Ipv4Net> {
        self.cloud().interfaces.values().flat_map(|interface| interface.blocks.clone()).collect()
    }

    fn cloud(&self) -> MutexGuard<'_, PrefixCloud> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PrefixCloud {
    /// Returns the free blocks of this length in a subnet, the lowest first.
    fn free(&self, subnet: &SubnetId, length: u8) -> impl Iterator<Item = Ipv4Net> + use<> {
        let blocks = self.interfaces.values().filter(|interface| interface.subnet == *subnet);
        let assigned: Vec<_> = blocks.flat_map(|interface| interface.blocks.clone()).collect();
        let taken = self.subnets.get(subnet).map(|subnet| (subnet.range, subnet.taken.clone()));
        let all = taken.into_iter().filter_map(move |(range, taken)| {
            let blocks = range.subnets(length.max(range.prefix_len())).ok()?;
            Some(blocks.filter(move |block| !taken.iter().any(|address| block.contains(address))))
        });
        all.flatten()
            .filter(move |block| !assigned.iter().any(|other| other.contains(block) || block.contains(other)))
    }

    /// Returns the next failure, unless it changes only the result of a call.
    fn failure(&mut self, step: &'static str) -> Result<Option<PrefixFault>, DriverError> {
        let unavailable = DriverError::new(Reason::Unavailable, step);
        match self.faults.pop_front() {
            Some(PrefixFault::Throttled(wait)) => Err(unavailable.after(wait)),
            Some(PrefixFault::Failed) => Err(unavailable),
            other => Ok(other),
        }
    }

    fn assign(&mut self, id: &InterfaceId, kind: BlockKind, count: usize) -> Assigned {
        self.calls.assign += 1;
        let refused = |error| Assigned { blocks: Vec::new(), error: Some(error) };
        let fault = match self.failure(ASSIGN) {
            Ok(fault) => fault,
            Err(error) => return refused(error),
        };
        let Some(interface) = self.interfaces.values().find(|interface| interface.id == *id) else {
            return refused(DriverError::new(Reason::NotFound, ASSIGN));
        };
        if interface.slots().saturating_sub(interface.blocks.len()) < count {
            return refused(DriverError::new(Reason::Quota, ASSIGN).detail("the interface has no free slot"));
        }
        let length = if kind == BlockKind::Prefix { PREFIX_LENGTH } else { 32 };
        let granted = if let Some(PrefixFault::Partial(most)) = fault { count.min(most) } else { count };
        let blocks: Vec<_> = self.free(&interface.subnet.clone(), length).take(granted).collect();
        // EC2 assigns all requested blocks or none.
        if blocks.len() < granted {
            return refused(DriverError::new(Reason::NoAddress, ASSIGN));
        }
        let interface = self.interfaces.values_mut().find(|interface| interface.id == *id);
        if let Some(interface) = interface {
            interface.blocks.extend(&blocks);
        }
        match fault {
            Some(PrefixFault::Lost) => refused(lost(ASSIGN)),
            _ => Assigned { blocks, error: None },
        }
    }

    fn unassign(&mut self, id: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), DriverError> {
        self.calls.unassign += 1;
        let fault = self.failure(UNASSIGN)?;
        let interface = self.interfaces.values_mut().find(|interface| interface.id == *id);
        let Some(interface) = interface else { return Ok(()) };
        interface.blocks.retain(|block| !blocks.contains(block));
        if fault == Some(PrefixFault::Lost) { Err(lost(UNASSIGN)) } else { Ok(()) }
    }
}

/// Returns the error of a call whose response was lost.
fn lost(step: &'static str) -> DriverError {
    DriverError::new(Reason::Unavailable, step).maybe_applied()
}

#[async_trait]
impl PrefixProvider for MemoryPrefixes {
    async fn interfaces(
        &self,
        instances: &[InstanceId],
    ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError> {
        let mut cloud = self.cloud();
        cloud.calls.interfaces += 1;
        cloud.failure("read the network interfaces of machines")?;
        let known = instances.iter().filter_map(|id| Some((id.clone(), cloud.interfaces.get(id)?.clone())));
        Ok(known.collect())
    }

    async fn assign(&self, interface: &InterfaceId, kind: BlockKind, count: usize) -> Assigned {
        self.cloud().assign(interface, kind, count)
    }

    async fn unassign(&self, interface: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), DriverError> {
        self.cloud().unassign(interface, blocks)
    }
}
