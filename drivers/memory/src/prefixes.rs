//! A simulated cloud that assigns prefixes and single addresses to the network interfaces of machines, as EC2 does.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ipnet::Ipv4Net;
use parking_lot::{Mutex, MutexGuard};
use staffetta_driver::prefix::{Assigned, BlockKind, PREFIX_LENGTH, PrefixProvider, PrimaryInterface};
use staffetta_driver::{DriverError, InstanceId, InterfaceId, Reason, SubnetId};

use crate::faults::Faults;
use crate::options::MemoryOptions;

/// The number of addresses that EC2 reserves at the start of a subnet; one more is reserved at its end (VPC User Guide, "Subnet CIDR
/// blocks").
const RESERVED: u32 = 4;

/// A method of a [`PrefixProvider`], for planned faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixMethod {
    /// The method [`PrefixProvider::interfaces`].
    Interfaces,
    /// The method [`PrefixProvider::assign`].
    Assign,
    /// The method [`PrefixProvider::unassign`].
    Unassign,
}

/// The part of the data that an incomplete read lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadCut {
    /// All machines.
    Machines,
    /// The blocks of each interface, except for this number.
    Blocks(usize),
}

/// A simulated cloud with subnets and machines. Each machine has one network interface, which gets prefixes and single addresses.
#[derive(Default)]
pub struct MemoryPrefixes {
    cloud: Mutex<PrefixCloud>,
    faults: Faults<PrefixMethod>,
}

/// The state of the simulated cloud: subnets, and machines with their interfaces.
#[derive(Default)]
struct PrefixCloud {
    subnets: BTreeMap<SubnetId, PrefixSubnet>,
    interfaces: BTreeMap<InstanceId, PrimaryInterface>,
    /// The maximum number of blocks of the next assignment; `None` without a limit.
    next_limit: Option<usize>,
    /// The interfaces that reads return while their result is [frozen](MemoryPrefixes::freeze_reads); `None` if reads return the current
    /// interfaces.
    shown: Option<BTreeMap<InstanceId, PrimaryInterface>>,
    /// The incompleteness of the next read; `None` if it is complete.
    next_cut: Option<ReadCut>,
    calls: PrefixCalls,
    template: Option<MachineTemplate>,
}

/// A subnet with the ranges of addresses that are in use, each by its first and its last address.
struct PrefixSubnet {
    range: Ipv4Net,
    used: BTreeSet<(u32, u32)>,
}

/// The template of the machines that are created when they are first read: the subnet and the number of addresses of their interface.
struct MachineTemplate {
    subnet: SubnetId,
    addresses_per_interface: usize,
}

/// The numbers of calls so far, failed ones included, of the methods that [`MemoryPrefixes`] has as a [`PrefixProvider`], for checks in
/// tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCalls {
    /// The number of calls of [`PrefixProvider::interfaces`].
    pub interfaces: usize,
    /// The number of calls of [`PrefixProvider::assign`].
    pub assign: usize,
    /// The number of calls of [`PrefixProvider::unassign`].
    pub unassign: usize,
}

impl MemoryPrefixes {
    /// Creates a cloud with the subnet of `options`, in which every machine exists as soon as it is read.
    pub fn of_options(options: &MemoryOptions) -> Self {
        let (cloud, subnet) = (Self::default(), SubnetId::from("subnet-memory"));
        cloud.add_subnet(&subnet, options.prefix_subnet);
        let addresses_per_interface = options.addresses_per_interface.get();
        cloud.cloud().template = Some(MachineTemplate { subnet, addresses_per_interface });
        cloud
    }

    /// Adds a subnet. Its first four addresses and its last one are reserved.
    pub fn add_subnet(&self, id: &SubnetId, range: Ipv4Net) {
        let (first, last) = (u32::from(range.network()), u32::from(range.broadcast()));
        let used = [(first, first + (RESERVED - 1)), (last, last)].into();
        self.cloud().subnets.insert(id.clone(), PrefixSubnet { range, used });
    }

    /// Adds a machine, whose interface has the lowest free address of the subnet as its primary address. Does nothing if the subnet does
    /// not exist.
    pub fn add_machine(
        &self,
        id: &InstanceId,
        subnet: &SubnetId,
        addresses_per_interface: usize,
        delegates_prefixes: bool,
    ) {
        self.cloud().add_machine(id, subnet, addresses_per_interface, delegates_prefixes);
    }

    /// Removes a machine with its interface and blocks. The primary address of the interface stays in use.
    pub fn remove_machine(&self, id: &InstanceId) {
        let mut cloud = self.cloud();
        let Some(PrimaryInterface { subnet, blocks, .. }) = cloud.interfaces.remove(id) else { return };
        if let Some(subnet) = cloud.subnets.get_mut(&subnet) {
            for block in &blocks {
                subnet.release(*block);
            }
        }
    }

    /// Deletes a subnet. The interfaces in it keep their blocks.
    pub fn remove_subnet(&self, id: &SubnetId) {
        self.cloud().subnets.remove(id);
    }

    /// Removes a block (a prefix or a single address) from the interface that has it, as another user of the cloud could.
    pub fn remove_block(&self, block: Ipv4Net) {
        let mut cloud = self.cloud();
        for interface in cloud.interfaces.values_mut() {
            interface.blocks.remove(&block);
        }
        cloud.subnets.values_mut().for_each(|subnet| subnet.release(block));
    }

    /// Returns the faults that are planned for later calls of this provider. [`Faults::inject`] adds others.
    pub fn faults(&self) -> &Faults<PrefixMethod> {
        &self.faults
    }

    /// Makes the next assignment to an interface with enough free slots assign at most this number of blocks.
    pub fn limit_next_assignment(&self, most: usize) {
        self.cloud().next_limit = Some(most);
    }

    /// Makes reads return the interfaces as they are now, without later changes (`true`), or the current ones again (`false`). This
    /// simulates the eventual consistency of EC2, whose reads may return an old state.
    pub fn freeze_reads(&self, late: bool) {
        let mut cloud = self.cloud();
        cloud.shown = late.then(|| cloud.interfaces.clone());
    }

    /// Makes the next read incomplete.
    pub fn cut_next_read(&self, cut: ReadCut) {
        self.cloud().next_cut = Some(cut);
    }

    /// Returns the numbers of calls so far, by method.
    pub fn calls(&self) -> PrefixCalls {
        self.cloud().calls
    }

    /// Returns the blocks (prefixes and single addresses) of all interfaces.
    pub fn blocks(&self) -> BTreeSet<Ipv4Net> {
        self.cloud().interfaces.values().flat_map(|interface| interface.blocks.clone()).collect()
    }

    fn cloud(&self) -> MutexGuard<'_, PrefixCloud> {
        self.cloud.lock()
    }
}

impl PrefixSubnet {
    /// Returns up to `count` free blocks with this prefix length in bits, the lowest first.
    fn free(&self, length: u8, count: usize) -> Vec<Ipv4Net> {
        let size = 1_u64 << (32 - length);
        let (mut next, mut free) = (u64::from(u32::from(self.range.network())), Vec::new());
        let end = u64::from(u32::from(self.range.broadcast())) + 1;
        let used = self.used.iter().map(|&(first, last)| (first.into(), last.into()));
        for (first, last) in used.chain([(end, end)]) {
            while next + size <= first && free.len() < count {
                let block = u32::try_from(next).ok().and_then(|next| Ipv4Net::new(next.into(), length).ok());
                free.extend(block);
                next += size;
            }
            next = next.max((last + 1).next_multiple_of(size));
        }
        free
    }

    /// Marks the addresses of a block as in use.
    fn take(&mut self, block: Ipv4Net) {
        self.used.insert((block.network().into(), block.broadcast().into()));
    }

    /// Marks the addresses of a block as free.
    fn release(&mut self, block: Ipv4Net) {
        self.used.remove(&(block.network().into(), block.broadcast().into()));
    }
}

impl PrefixCloud {
    /// Adds a machine, whose interface takes the lowest free address of the subnet. Does nothing if the subnet does not exist.
    fn add_machine(
        &mut self,
        id: &InstanceId,
        subnet: &SubnetId,
        addresses_per_interface: usize,
        delegates_prefixes: bool,
    ) {
        let Some(known) = self.subnets.get_mut(subnet) else { return };
        for primary in known.free(32, 1) {
            known.take(primary);
        }
        let interface = PrimaryInterface {
            id: format!("eni-{id}").into(),
            subnet: subnet.clone(),
            subnet_length: known.range.prefix_len(),
            addresses_per_interface,
            delegates_prefixes,
            blocks: BTreeSet::new(),
        };
        self.interfaces.insert(id.clone(), interface);
    }

    /// Adds those of the machines `instances` that do not exist yet, if the cloud has a [`MachineTemplate`].
    fn add_read(&mut self, instances: &[InstanceId]) {
        let Some(MachineTemplate { subnet, addresses_per_interface }) = &self.template else { return };
        let (subnet, addresses) = (subnet.clone(), *addresses_per_interface);
        for id in instances {
            if !self.interfaces.contains_key(id) {
                self.add_machine(id, &subnet, addresses, true);
            }
        }
    }

    /// Assigns `count` blocks to an interface, or as many as [the limit](MemoryPrefixes::limit_next_assignment) allows. If the
    /// interface has too few slots, or the subnet too few blocks, it fails and assigns none, as EC2 does.
    fn assign(
        &mut self,
        id: &InterfaceId,
        kind: BlockKind,
        count: usize,
    ) -> Result<Vec<Ipv4Net>, DriverError> {
        let failed = |reason| DriverError::new(reason, "assign addresses to a network interface");
        let interface = self.interfaces.values_mut().find(|interface| interface.id == *id);
        let interface = interface.ok_or_else(|| failed(Reason::NotFound))?;
        if interface.slots().saturating_sub(interface.blocks.len()) < count {
            return Err(failed(Reason::Quota).detail("the interface has no free slot"));
        }
        let length = if kind == BlockKind::Prefix { PREFIX_LENGTH } else { 32 };
        let granted = self.next_limit.take().map_or(count, |most| count.min(most));
        let subnet = self.subnets.get_mut(&interface.subnet);
        let subnet = subnet.ok_or_else(|| failed(Reason::NotFound).detail("the subnet does not exist"))?;
        let blocks = subnet.free(length, granted);
        // EC2 assigns all requested blocks or none.
        if blocks.len() < granted {
            return Err(failed(Reason::NoAddress));
        }
        interface.blocks.extend(&blocks);
        for block in &blocks {
            subnet.take(*block);
        }
        Ok(blocks)
    }

    /// Removes blocks from an interface. A block that is not assigned counts as removed.
    fn unassign(&mut self, id: &InterfaceId, blocks: &[Ipv4Net]) {
        let interface = self.interfaces.values_mut().find(|interface| interface.id == *id);
        let Some(interface) = interface else { return };
        let mut subnet = self.subnets.get_mut(&interface.subnet);
        for block in blocks.iter().filter(|block| interface.blocks.remove(block)) {
            if let Some(subnet) = &mut subnet {
                subnet.release(*block);
            }
        }
    }
}

#[async_trait]
impl PrefixProvider for MemoryPrefixes {
    async fn interfaces(
        &self,
        instances: &[InstanceId],
    ) -> Result<BTreeMap<InstanceId, PrimaryInterface>, DriverError> {
        self.cloud().calls.interfaces += 1;
        let work = || {
            let mut cloud = self.cloud();
            cloud.add_read(instances);
            let cut = cloud.next_cut.take();
            let shown = cloud.shown.as_ref().unwrap_or(&cloud.interfaces);
            let read = instances.iter().filter(|_| cut != Some(ReadCut::Machines)).filter_map(|id| {
                let mut interface = shown.get(id)?.clone();
                if let Some(ReadCut::Blocks(left)) = cut {
                    interface.blocks = interface.blocks.into_iter().take(left).collect();
                }
                Some((id.clone(), interface))
            });
            Ok(read.collect())
        };
        self.faults.call(PrefixMethod::Interfaces, work).await
    }

    async fn assign(&self, interface: &InterfaceId, kind: BlockKind, count: usize) -> Assigned {
        self.cloud().calls.assign += 1;
        let work = || self.cloud().assign(interface, kind, count);
        match self.faults.call(PrefixMethod::Assign, work).await {
            Ok(blocks) => Assigned { blocks, error: None },
            Err(error) => Assigned { blocks: Vec::new(), error: Some(error) },
        }
    }

    async fn unassign(&self, interface: &InterfaceId, blocks: &[Ipv4Net]) -> Result<(), DriverError> {
        self.cloud().calls.unassign += 1;
        let work = || {
            self.cloud().unassign(interface, blocks);
            Ok(())
        };
        self.faults.call(PrefixMethod::Unassign, work).await
    }
}
