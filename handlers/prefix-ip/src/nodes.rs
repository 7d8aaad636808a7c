//! The table of all nodes: the address pools of their machines, the reads of their network interfaces, and the subnets without free blocks.

mod changes;
mod metrics;
mod reads;
mod recovery;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_driver::prefix::BlockKind;
use staffetta_driver::{InstanceId, RequestLog, SubnetId, Uid};
use staffetta_pool::Wait;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::node_pool::{NodePool, PodAddress};
use crate::settings::Settings;

pub(crate) use changes::Recorded;
pub use metrics::NodeTableMetrics;
pub use reads::DueRead;
pub use recovery::KnownPod;

/// The address pools and network interfaces of the machines of all nodes. The methods do no I/O; only those that are `async` wait.
///
/// A pool belongs to a machine, not to a node: while a node is renamed, two Node objects have the same machine, and their pods share its
/// addresses.
pub struct NodeTable {
    state: Mutex<TableState>,
    cool_down: Duration,
    /// The creation time of the table, from which the times of its machines are counted.
    start: Instant,
    /// Notified when [`plan`](Self::plan) must be called again, because the state of a machine changed.
    changed: Notify,
    /// Notified when the time of the next read of a network interface may have changed.
    reads_changed: Notify,
    /// Notified when there are objects to handle again.
    woken: Notify,
}

/// The state of a [`NodeTable`], under one lock: a change of one machine may concern all machines of its subnet.
#[derive(Default)]
struct TableState {
    machines: BTreeMap<InstanceId, Machine>,
    /// The machine of each node, by the node's name.
    nodes: BTreeMap<String, InstanceId>,
    /// The nodes whose network interface could not be read, each with the number of reads in a row that showed no machine.
    unread: BTreeMap<String, usize>,
    /// The machines whose pools changed, so that the next call of [`NodeTable::plan`] plans changes of their interfaces.
    changed: BTreeSet<InstanceId>,
    /// The subnets without a free block of a kind, each with the time of the next request for such blocks, by one machine for all.
    exhausted: BTreeMap<(SubnetId, BlockKind), Duration>,
    woken: Woken,
}

/// The objects that should be handled again without an event of their own.
#[derive(Default)]
pub(crate) struct Woken {
    /// The pods that should request an address again: one may be free for them, or the reason for their wait has changed.
    pub(crate) pods: BTreeSet<Uid>,
    /// The nodes whose capacity changed, or whose machine is gone.
    pub(crate) nodes: BTreeSet<String>,
}

/// A machine whose interface was read. All times are since the creation of the table.
struct Machine {
    /// The names of the nodes of the machine; `true` for those that have the configured label. Without one, the pool is emptied.
    nodes: BTreeMap<String, bool>,
    subnet: SubnetId,
    pool: NodePool,
    /// The capacity at the last plan; `None` before the first one and after a change of the options, after which the handler reads it
    /// itself.
    capacity: Option<usize>,
    /// The time at which changes of the interface must be planned even if the pool has not changed until then; `None` if no such plan is
    /// needed.
    due: Option<Duration>,
    /// The time before which the interface is not read, because a read may not show its last change yet.
    visible_at: Duration,
    /// The time of the last read of the network interface.
    read: Duration,
    /// `true` if the interface is to be read at `visible_at`, without waiting for the usual interval: the effect of a change is not
    /// known, or the last read failed or may be old.
    is_uncertain: bool,
    /// `true` if a read has surely shown all blocks of the interface; `false` while there was only a first read, which may not show the
    /// last changes of an earlier process.
    is_confirmed: bool,
    /// `true` if the last read did not show the machine.
    is_missing: bool,
    /// The requests to the provider for changes of the interface that failed since the last successful change. Emptied when the
    /// interface needs no change.
    failed_requests: RequestLog,
}

impl NodeTable {
    /// Creates an empty table. A returned address is handed out again after `cool_down`.
    pub fn new(cool_down: Duration) -> Self {
        let [changed, reads_changed, woken] = std::array::from_fn(|_| Notify::new());
        Self { state: Mutex::default(), cool_down, start: Instant::now(), changed, reads_changed, woken }
    }

    /// Returns `true` if the table has the node `node` and its machine is `instance`.
    pub fn contains(&self, node: &str, instance: &InstanceId) -> bool {
        self.state.lock().nodes.get(node) == Some(instance)
    }

    /// Returns the names of the nodes of a machine; none if the table does not have it.
    pub(crate) fn nodes_of(&self, instance: &InstanceId) -> Vec<String> {
        let state = self.state.lock();
        state.machines.get(instance).into_iter().flat_map(|machine| machine.nodes.keys().cloned()).collect()
    }

    /// Records that a node got or lost its label (`managed`), and applies the options `settings` to it, which are read under the lock of
    /// the table. Without the label, its pods get no more addresses, and its blocks are removed as soon as no pod uses them. Does nothing
    /// for an unknown node, or without a change.
    pub fn manage(&self, node: &str, managed: bool, settings: impl FnOnce() -> Settings) {
        let (now, mut state) = (self.now(), self.state.lock());
        let Some(machine) = state.machine_of(node) else { return };
        if machine.nodes.insert(node.to_owned(), managed) != Some(managed) {
            machine.configure(settings(), now);
            self.plan_soon(&mut state, node);
        }
    }

    /// Replaces the options of all nodes by `settings`, those that the `ConfigMap` contains now.
    pub fn configure(&self, settings: Settings) {
        let (now, mut state) = (self.now(), self.state.lock());
        state.machines.values_mut().for_each(|machine| machine.configure(settings, now));
        state.changed = state.machines.keys().cloned().collect();
        self.changed.notify_one();
    }

    /// Returns the number of pods of the node that can have an address; `None` if the node is unknown. 0 if several reads in a row showed
    /// no machine of the node.
    pub fn capacity(&self, node: &str) -> Option<usize> {
        let (now, mut state) = (self.now(), self.state.lock());
        let is_gone = state.unread.get(node).is_some_and(|reads| *reads > 1);
        state.machine_of(node).map(|machine| machine.pool.capacity(now)).or(is_gone.then_some(0))
    }

    /// Returns `true` if the options require prefixes, and the type of the node's machine does not support them: once, until that has
    /// changed.
    pub(crate) fn newly_lacks_prefixes(&self, node: &str) -> bool {
        self.state.lock().machine_of(node).is_some_and(|machine| machine.pool.newly_lacks_prefixes())
    }

    /// Takes an address from the pool of a node for a pod; `None` if the node is unknown. An error is the reason why the pod must wait
    /// until it is `woken`. A pod whose address is in no known block waits until a second read of the interface shows no such block either.
    pub fn take(&self, node: &str, pod: &Uid) -> Option<Result<PodAddress, Wait>> {
        let (now, mut state) = (self.now(), self.state.lock());
        let machine = state.machine_of(node)?;
        if machine.awaits_read(pod) {
            return Some(Err(Wait::Growing));
        }
        let waiting = machine.pool.waiting();
        let taken = machine.pool.take(pod, now);
        // A pod that waits as before changes nothing; planning again would wake it again, without an end.
        if taken.is_ok() || machine.pool.waiting() > waiting {
            self.plan_soon(&mut state, node);
        }
        Some(taken)
    }

    /// Returns `true` if the addresses of the node's pods are not known for sure: its interface was not read yet, or the address that this
    /// pod already has is in no known block, but a second read may show it.
    pub fn awaits_read(&self, node: &str, pod: &Uid) -> bool {
        self.state.lock().machine_of(node).is_none_or(|machine| machine.awaits_read(pod))
    }

    /// Returns `true` if the last read of the network interface of an unknown node failed.
    pub(crate) fn is_unread(&self, node: &str) -> bool {
        self.state.lock().unread.contains_key(node)
    }

    /// Gives the address of a pod that is finished or deleted back to the pool of its node, or, if that has none of the pod, to the one
    /// that it is from.
    pub fn give_back(&self, node: &str, pod: &Uid) {
        let (now, mut state) = (self.now(), self.state.lock());
        if state.machine_of(node).is_some_and(|machine| machine.pool.give_back(pod, now)) {
            self.plan_soon(&mut state, node);
        } else {
            drop(state);
            self.give_back_anywhere(pod);
        }
    }

    /// Gives the address of a deleted pod back to the pool that it is from, on any node: the node of the pod is not known any more.
    pub fn give_back_anywhere(&self, pod: &Uid) {
        let (now, mut guard) = (self.now(), self.state.lock());
        let state = &mut *guard;
        for (instance, machine) in &mut state.machines {
            if machine.pool.give_back(pod, now) {
                state.changed.insert(instance.clone());
                self.changed.notify_one();
            }
        }
    }

    /// Returns the address that a pod of the node has; `None` if it has none, or the node is unknown.
    pub fn address_of(&self, node: &str, pod: &Uid) -> Option<PodAddress> {
        self.state.lock().machine_of(node)?.pool.address_of(pod)
    }

    /// Adds pods to those that [`woken`](Self::woken) returns, so that they request an address again: their node is in the table now.
    pub(crate) fn wake(&self, pods: Vec<Uid>) {
        self.state.lock().woken.pods.extend(pods);
        self.woken.notify_one();
    }

    /// Waits until there are objects that should be handled again, and returns them.
    pub(crate) async fn woken(&self) -> Woken {
        loop {
            let woken = std::mem::take(&mut self.state.lock().woken);
            if !woken.pods.is_empty() || !woken.nodes.is_empty() {
                return woken;
            }
            self.woken.notified().await;
        }
    }

    /// Marks the machine of a node as changed, so that the next [`plan`](Self::plan) includes its interface, and wakes the task that calls
    /// it.
    fn plan_soon(&self, state: &mut TableState, node: &str) {
        if let Some(instance) = state.nodes.get(node).filter(|instance| !state.changed.contains(*instance)) {
            state.changed.insert(instance.clone());
        }
        self.changed.notify_one();
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }
}

impl TableState {
    /// Returns the machine of a node; `None` if the node is unknown.
    fn machine_of(&mut self, node: &str) -> Option<&mut Machine> {
        self.machines.get_mut(self.nodes.get(node)?)
    }
}

impl Machine {
    /// Returns `true` if the address that a pod already has is in no known block, but a second read of the interface may show it.
    fn awaits_read(&self, pod: &Uid) -> bool {
        !self.is_confirmed && self.pool.unplaced().any(|unplaced| unplaced == pod)
    }

    /// Applies the options to the pool. If none of its nodes has the label, addresses count as switched off.
    fn configure(&mut self, settings: Settings, now: Duration) {
        let enabled = settings.enabled && self.nodes.values().any(|managed| *managed);
        self.pool.configure(Settings { enabled, ..settings }, now);
        self.capacity = None;
    }
}
