//! The addresses of one node: a pool of prefixes and a pool of single addresses, which share the slots of its network interface.

mod results;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::Ipv4Net;
use staffetta_driver::prefix::{BlockKind, PREFIX_LENGTH, PrimaryInterface};
use staffetta_driver::{InterfaceId, Uid};
use staffetta_pool::{
    Action, Adopted, Drift, Epoch, Existing, PoolCounts, SizeChange, SizePolicy, Take, Wait, WarmPool,
};

use crate::address::{Addresses, BlockAddress};
use crate::settings::Settings;
use crate::targets::{TargetPolicy, Targets};

pub(crate) use results::MAX_VISIBILITY_DELAY;

/// A change of the interface that a node requires: blocks are to be assigned or removed. The caller executes it and reports the result to
/// [`NodePool::assigned`] or [`NodePool::unassigned`], with the same `op` and kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAction {
    /// The kind of the blocks to assign or remove: prefixes or single addresses.
    pub kind: BlockKind,
    /// The change itself: an assignment with the number of blocks, or a removal with the blocks.
    pub action: Action<Ipv4Net, ()>,
}

/// The address that a pod has, in the form of its annotation `address/length`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PodAddress {
    /// The address itself.
    pub address: Ipv4Addr,
    /// The prefix length in the annotation: 32 for an address from a prefix, that of the subnet for a single address.
    pub length: u8,
}

/// The differences between the interface of a node and what this process knew of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InterfaceDrift {
    /// Blocks of the interface that were unknown. Their addresses are handed out after the cool-down, once they are confirmed.
    pub found: Vec<Ipv4Net>,
    /// Blocks that were known and are not on the interface any more.
    pub lost: Vec<Ipv4Net>,
    /// The addresses in `lost` blocks that pods use, each with the UID of the pod.
    pub lost_in_use: Vec<(Ipv4Addr, Uid)>,
    /// Blocks of another length than those of prefixes and of single addresses. They take slots, and no pod gets an address of them.
    pub unusable: Vec<Ipv4Net>,
}

/// The states of the pool of prefixes and the pool of single addresses when a read of the interface began. Blocks that changed later are
/// not compared with the result of the read.
#[derive(Clone, Copy, Debug)]
pub struct NodeEpoch([Epoch; 2]);

/// The addresses of one node.
///
/// It does no I/O and has no clock: all times are durations since the same moment in the past. One of the two pools is active and hands
/// out addresses. The other one is drained: pods keep their addresses, and its blocks are removed as soon as no pod uses them.
pub struct NodePool {
    interface: InterfaceId,
    subnet_length: u8,
    /// The maximum number of blocks of the interface: prefixes and single addresses together.
    slots: usize,
    delegates_prefixes: bool,
    /// `true` if the last call of [`newly_lacks_prefixes`](Self::newly_lacks_prefixes) found that the machine lacks them.
    lacks_prefixes: bool,
    settings: Settings,
    /// The pools of prefixes and of single addresses, in the order of [`KINDS`].
    pools: [WarmPool<Addresses>; 2],
    /// The pods whose address is in no known block of the interface, each with that address: the block was removed, or no read shows it
    /// yet. If the block appears, the pods have their addresses again, and no other pod gets them.
    unplaced: Vec<(Uid, Ipv4Addr)>,
    /// The delay before an address that a pod gave back is handed out again.
    cool_down: Duration,
    /// The time since which each pool, in the order of [`KINDS`], has had more blocks than it needs; `None` for a pool without a surplus.
    surplus_since: [Option<Duration>; 2],
    /// `true` for each pool, in the order of [`KINDS`], that needed more blocks when its size policy was last set.
    lacks_blocks: [bool; 2],
    /// The maximum number of blocks of each kind, in the order of [`KINDS`], in the next assignment: the provider assigns all or none.
    largest: [usize; 2],
    /// The blocks with addresses in use that the last read lacked. They are lost if the next one lacks them too.
    absent: BTreeSet<Ipv4Net>,
    /// The blocks that an attempted removal may have removed; no read has shown yet whether it did.
    unclear: BTreeSet<Ipv4Net>,
    /// The blocks of other lengths.
    unusable: BTreeSet<Ipv4Net>,
    /// Those of them that were reported.
    reported: BTreeSet<Ipv4Net>,
}

/// The time, as a multiple of the cool-down, for which a pool keeps blocks that it does not need, because the next pods may need them.
const SURPLUS_COOL_DOWNS: u32 = 4;

/// The two kinds of blocks, in the order of their discriminants, which index the pools.
pub(crate) const KINDS: [BlockKind; 2] = [BlockKind::Prefix, BlockKind::Address];

impl NodePool {
    /// Creates the state of a node from its interface. The addresses of existing blocks are in their cool-down until pods
    /// [adopt](Self::adopt) them, or until they are [confirmed](Self::confirm). A returned address is handed out again after `cool_down`.
    pub fn new(interface: &PrimaryInterface, settings: Settings, cool_down: Duration, now: Duration) -> Self {
        let policy = TargetPolicy {
            targets: Targets::Blocks(0),
            block_size: 1,
            slots: 0,
            largest: 0,
            may_shrink: false,
        };
        let pool = || WarmPool::new(Arc::new(policy), cool_down);
        let mut node = Self {
            interface: interface.id.clone(),
            subnet_length: interface.subnet_length,
            slots: interface.slots(),
            delegates_prefixes: interface.delegates_prefixes,
            lacks_prefixes: false,
            settings,
            pools: [pool(), pool()],
            unplaced: Vec::new(),
            cool_down,
            surplus_since: [None; 2],
            lacks_blocks: [false; 2],
            largest: [usize::MAX; 2],
            absent: BTreeSet::new(),
            unclear: BTreeSet::new(),
            unusable: BTreeSet::new(),
            reported: BTreeSet::new(),
        };
        node.configure(settings, now);
        let epoch = node.epoch();
        node.resync(epoch, &interface.blocks, now);
        // The second read reports them.
        node.reported.clear();
        node
    }

    /// Returns the id of the node's network interface.
    pub fn interface(&self) -> &InterfaceId {
        &self.interface
    }

    /// Returns the kind of blocks from which pods get new addresses: prefixes if the options choose them and the machine supports them,
    /// otherwise single addresses.
    pub fn active(&self) -> BlockKind {
        if self.settings.prefix_delegation && self.delegates_prefixes {
            BlockKind::Prefix
        } else {
            BlockKind::Address
        }
    }

    /// Returns `true` if the options choose prefixes, and the machine does not support them: once, until that has changed.
    pub(crate) fn newly_lacks_prefixes(&mut self) -> bool {
        let lacks = self.settings.enabled && self.settings.prefix_delegation && !self.delegates_prefixes;
        let before = std::mem::replace(&mut self.lacks_prefixes, lacks);
        lacks && !before
    }

    /// Returns the number of pods that can have an address of the active kind: what the node advertises as its capacity. Blocks of the
    /// other kind take slots until they are removed. 0 if addresses are switched off.
    pub fn capacity(&self, now: Duration) -> usize {
        if !self.settings.enabled {
            return 0;
        }
        let other = KINDS.into_iter().filter(|kind| *kind != self.active());
        let taken: usize = other.map(|kind| self.counts(kind, now).groups).sum();
        self.slots.saturating_sub(taken + self.unusable.len()) * self.active().size()
    }

    /// Applies changed options to both pools. Pods keep their addresses.
    pub fn configure(&mut self, settings: Settings, now: Duration) {
        self.settings = settings;
        for kind in KINDS {
            let drained = !settings.enabled || kind != self.active();
            let pool = &mut self.pools[kind as usize];
            if drained { pool.drain() } else { pool.resume() }
        }
        self.share_slots(now);
    }

    /// Takes an address for a pod, or returns the reason for its wait. A pod that has an address of either kind gets the same one
    /// again.
    pub fn take(&mut self, pod: &Uid, now: Duration) -> Result<PodAddress, Wait> {
        if let Some(held) = self.address_of(pod) {
            return Ok(held);
        }
        let (active, length) = (self.active(), self.length(self.active()));
        // It may have waited for the other kind, before the options changed.
        KINDS
            .into_iter()
            .filter(|kind| *kind != active)
            .for_each(|kind| self.pools[kind as usize].leave(pod));
        match self.pools[active as usize].take(pod, &(), now) {
            Take::Got(item) | Take::Adapt(item) => {
                self.unplaced.retain(|(unplaced, _)| unplaced != pod);
                Ok(PodAddress { address: item.address, length })
            }
            Take::Wait(wait) => Err(wait),
        }
    }

    /// Returns the address that a pod has; `None` if it has none.
    pub fn address_of(&self, pod: &Uid) -> Option<PodAddress> {
        KINDS.into_iter().find_map(|kind| {
            let mut held = self.pools[kind as usize].held();
            let (item, _) = held.find(|(_, owner)| *owner == pod)?;
            Some(PodAddress { address: item.address, length: self.length(kind) })
        })
    }

    /// Records that a pod has `address`, according to its status or its annotation. [`Adopted::Unknown`] means that no block of the
    /// interface contains the address. If such a block appears later, the pod has the address then.
    pub fn adopt(&mut self, pod: &Uid, address: Ipv4Addr) -> Adopted<Uid> {
        let [prefix, single] = KINDS.map(|kind| self.pools[kind as usize].adopt(pod, &item(kind, address)));
        let adopted = if prefix == Adopted::Unknown { single } else { prefix };
        if adopted == Adopted::Unknown
            && !self.unplaced.iter().any(|unplaced| *unplaced == (pod.clone(), address))
        {
            self.unplaced.push((pod.clone(), address));
        }
        adopted
    }

    /// Returns the UID of the pod that has `address`; `None` if no pod has it.
    pub(crate) fn owner_of(&self, address: Ipv4Addr) -> Option<Uid> {
        let mut held = self.pools.iter().flat_map(WarmPool::held);
        held.find(|(item, _)| item.address == address).map(|(_, owner)| owner.clone())
    }

    /// Returns the UIDs of the pods whose address is in no known block of the interface.
    pub(crate) fn unplaced(&self) -> impl Iterator<Item = &Uid> {
        self.unplaced.iter().map(|(pod, _)| pod)
    }

    /// Gives the pods in `unplaced` their addresses, as far as the blocks are known now and no other pod has the address.
    fn place(&mut self) {
        for (pod, address) in std::mem::take(&mut self.unplaced) {
            if !KINDS.iter().any(|kind| self.pools[*kind as usize].is_used(&item(*kind, address))) {
                self.adopt(&pod, address);
            }
        }
    }

    /// Gives the address of a pod that is finished or deleted back to its pool, which hands it out again after the cool-down. Returns
    /// `false`, without an effect, if the pod has no address and waits for none.
    pub fn give_back(&mut self, pod: &Uid, now: Duration) -> bool {
        let before = (self.unplaced.len(), self.waiting());
        self.unplaced.retain(|(unplaced, _)| unplaced != pod);
        self.release(pod, None, now) || before != (self.unplaced.len(), self.waiting())
    }

    /// Ends the wait of a pod, and returns its addresses except for `kept` to their pools. Returns `true` if there were any.
    pub(crate) fn release(&mut self, pod: &Uid, kept: Option<Ipv4Addr>, now: Duration) -> bool {
        let mut released = false;
        for pool in &mut self.pools {
            pool.leave(pod);
            let held = pool.held().filter(|(item, owner)| *owner == pod && Some(item.address) != kept);
            for item in held.map(|(item, _)| *item).collect::<Vec<_>>() {
                released |= pool.give_back(pod, &item, now);
            }
        }
        released
    }

    /// Returns the number of pods that wait for an address.
    pub fn waiting(&self) -> usize {
        self.pools.iter().map(|pool| pool.waiting().count()).sum()
    }

    /// Returns the changes of the interface to begin now. For each kind of block, at most one assignment and one removal are in progress.
    pub fn plan(&mut self, now: Duration) -> Vec<NodeAction> {
        self.share_slots(now);
        let mut actions = Vec::new();
        for kind in KINDS {
            while let Some(action) = self.pools[kind as usize].plan(now) {
                actions.push(NodeAction { kind, action });
            }
        }
        actions
    }

    /// Returns `true` if the interface needed more blocks when the size policies were last set, or if a change is in progress or to be
    /// repeated.
    pub fn needs_change(&self, now: Duration) -> bool {
        let mut counts = self.pools.iter().map(|pool| pool.counts(now));
        self.lacks_blocks != [false; 2] || counts.any(|counts| counts.growing > 0 || counts.shrinking > 0)
    }

    /// Prevents assignments of blocks of this kind before the time `until`, because the subnet, which other nodes use too, has no free
    /// one.
    pub fn block(&mut self, kind: BlockKind, until: Duration) {
        self.pools[kind as usize].block(until);
    }

    /// Ends the effect of [`block`](Self::block) and of failed assignments of this kind: blocks may be assigned at once, because the subnet
    /// has free ones again.
    pub fn end_backoff(&mut self, kind: BlockKind) {
        self.pools[kind as usize].end_backoff();
    }

    /// Adapts the pools to the limits of the interface, which change with the type of the machine.
    pub fn limit(&mut self, interface: &PrimaryInterface, now: Duration) {
        (self.slots, self.delegates_prefixes) = (interface.slots(), interface.delegates_prefixes);
        self.configure(self.settings, now);
    }

    /// Returns the current state of the pools, for the [`resync`](Self::resync) after a read of the interface that begins now.
    pub fn epoch(&self) -> NodeEpoch {
        NodeEpoch(self.pools.each_ref().map(WarmPool::epoch))
    }

    /// Returns `true` if the blocks have not changed since `since`, nor were about to change then: a read that began then shows all blocks.
    pub fn is_unchanged(&self, since: NodeEpoch) -> bool {
        self.pools.iter().zip(since.0).all(|(pool, since)| pool.is_unchanged(since))
    }

    /// Adapts the pools to `blocks`, which the interface had at some moment between `since` and now. Returns the differences between the
    /// pools and `blocks`. A block with addresses in use is lost when two reads in a row lack it.
    pub fn resync(&mut self, since: NodeEpoch, blocks: &BTreeSet<Ipv4Net>, now: Duration) -> InterfaceDrift {
        let of_kind = |kind| move |block: &&Ipv4Net| BlockKind::of(**block) == kind;
        let unusable: BTreeSet<_> = blocks.iter().filter(of_kind(None)).copied().collect();
        let mut drift = InterfaceDrift {
            unusable: unusable.difference(&self.reported).copied().collect(),
            ..Default::default()
        };
        (self.reported, self.unusable) = (unusable.clone(), unusable);
        let in_use = self.pools.iter().flat_map(WarmPool::held).map(|(item, _)| item.block);
        let absent: BTreeSet<_> = in_use.filter(|block| !blocks.contains(block)).collect();
        let absent: BTreeSet<_> = absent.difference(&std::mem::take(&mut self.absent)).copied().collect();
        for (kind, epoch) in KINDS.into_iter().zip(since.0) {
            let existing: BTreeMap<_, _> = blocks
                .union(&absent)
                .filter(of_kind(Some(kind)))
                .map(|block| (*block, Existing { config: (), ready: true }))
                .collect();
            let pool = &mut self.pools[kind as usize];
            let is_complete = pool.is_unchanged(epoch);
            let Drift { found, lost, lost_in_use } = pool.resync(epoch, &existing, now);
            if is_complete {
                pool.keep(blocks, now);
                self.unclear.retain(|block| BlockKind::of(*block) != Some(kind));
            }
            drift.found.extend(found);
            drift.lost.extend(lost);
            drift.lost_in_use.extend(lost_in_use.into_iter().map(|(item, pod)| (item.address, pod)));
        }
        self.absent = absent;
        self.unplaced.extend(drift.lost_in_use.iter().map(|(address, pod)| (pod.clone(), *address)));
        self.place();
        self.share_slots(now);
        drift
    }

    /// Returns the time from which on [`confirm`](Self::confirm) makes an address free; `None` if there is nothing to confirm.
    pub(crate) fn confirm_at(&self) -> Option<Duration> {
        self.pools.iter().filter_map(WarmPool::confirm_at).min()
    }

    /// Makes the addresses free that [`resync`](Self::resync) found, whose cool-down had ended at the time `since`, and that are not in
    /// `published`, the annotations that were read after `since`. The others wait for another read, as all do if that failed (`None`).
    pub(crate) fn confirm(&mut self, since: Duration, now: Duration, published: Option<&BTreeSet<Ipv4Addr>>) {
        for pool in &mut self.pools {
            match published {
                Some(published) => pool.confirm(since, now, |item| !published.contains(&item.address)),
                None => pool.postpone(since, now),
            }
        }
    }

    /// Returns `true` if [`resync`](Self::resync) found this address, and it was neither adopted nor confirmed yet.
    pub(crate) fn is_unconfirmed(&self, address: Ipv4Addr) -> bool {
        KINDS.iter().any(|kind| self.pools[*kind as usize].is_unconfirmed(&item(*kind, address)))
    }

    /// Returns `true` if the last read lacked blocks with addresses in use, so that the interface must be read again.
    pub(crate) fn lacks_confirmation(&self) -> bool {
        !self.absent.is_empty()
    }

    /// Returns the waiting pods that should request an address again: there is one for them now, or no more addresses are being assigned.
    pub fn wake(&mut self, now: Duration) -> Vec<Uid> {
        self.pools.iter_mut().flat_map(|pool| pool.tick(now)).map(|(pod, ())| pod).collect()
    }

    /// Returns the time at which [`plan`](Self::plan) and [`wake`](Self::wake) must be called next even without a change; `None` if they
    /// need not be called.
    pub fn next(&self, now: Duration) -> Option<Duration> {
        let surplus =
            self.surplus_since.iter().flatten().map(|since| *since + self.cool_down * SURPLUS_COOL_DOWNS);
        let pools = self.pools.iter().filter_map(|pool| pool.next(now));
        pools.chain(surplus.filter(|due| *due > now)).min()
    }

    /// Returns the numbers of blocks and addresses of one kind, for metrics.
    pub fn counts(&self, kind: BlockKind, now: Duration) -> PoolCounts {
        self.pools[kind as usize].counts(now)
    }

    /// Sets the size policy of both pools: each may use the slots that the other one does not use, and removes surplus blocks only when
    /// the surplus has lasted for 4 cool-downs, so that pods that come and go do not cause calls again and again.
    fn share_slots(&mut self, now: Duration) {
        let counts = self.pools.each_mut().map(|pool| {
            pool.tick(now);
            pool.counts(now)
        });
        let targets = [self.settings.prefixes, self.settings.addresses];
        for (index, kind) in KINDS.into_iter().enumerate() {
            let others = counts[1 - index].groups + counts[1 - index].growing + self.unusable.len();
            let slots = self.slots.saturating_sub(others);
            let (targets, block_size, largest) = (targets[index], kind.size(), self.largest[index]);
            let policy = TargetPolicy { targets, block_size, slots, largest, may_shrink: true };
            let planned = policy.plan(&counts[index]);
            self.lacks_blocks[index] =
                matches!(planned, SizeChange::Grow(_)) && !self.pools[index].is_draining();
            let has_surplus = matches!(planned, SizeChange::Shrink(_));
            let since = has_surplus.then(|| self.surplus_since[index].unwrap_or(now));
            self.surplus_since[index] = since;
            let may_shrink = since.is_some_and(|since| now >= since + self.cool_down * SURPLUS_COOL_DOWNS);
            self.pools[index].set_policy(Arc::new(TargetPolicy { may_shrink, ..policy }));
        }
    }

    /// Returns the prefix length that an annotation shows for an address of this kind.
    fn length(&self, kind: BlockKind) -> u8 {
        match kind {
            BlockKind::Prefix => 32,
            BlockKind::Address => self.subnet_length,
        }
    }
}

/// Returns `address` as an item of the pool of this kind, with the block that contains it.
fn item(kind: BlockKind, address: Ipv4Addr) -> BlockAddress {
    let length = if kind == BlockKind::Prefix { PREFIX_LENGTH } else { 32 };
    let block = Ipv4Net::new(address, length).expect("the length is at most 32").trunc();
    BlockAddress { block, address }
}

#[cfg(test)]
mod tests;
