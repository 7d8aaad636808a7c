//! The table of all nodes: their address pools, the reads of their network interfaces, and the subnets without free blocks.

mod metrics;
mod reads;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::Ipv4Net;
use staffetta_driver::pool::{Action, Adopted, Grown, Shortfall, Wait};
use staffetta_driver::prefix::{BlockKind, PrimaryInterface};
use staffetta_driver::{InstanceId, InterfaceId, LoggedRequest, RequestLog, SubnetId, Uid};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::node_pool::{KINDS, NodeAction, NodePool, PodAddress};
use crate::settings::Settings;

pub use metrics::NodeTableMetrics;
pub use reads::DueRead;
pub(crate) use reads::MAX_VISIBILITY_DELAY;

/// The delay before the next request for blocks in a subnet that had no free one.
const EXHAUSTED_RETRY: Duration = Duration::from_secs(30);

/// A pod that uses an address according to its status, or claims one in its annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    /// The UID of the pod.
    pub uid: Uid,
    /// The address of the pod: that in its `status.podIP`, or else that in its annotation.
    pub address: Ipv4Addr,
    /// `true` if the address is in `status.podIP`, so that the pod uses it; `false` if only its annotation names it.
    pub uses_it: bool,
    /// The creation time of the pod, in a form that sorts by time.
    pub created: String,
}

/// The result of [`NodeTable::add`]: the pods whose address could not be recovered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The pods whose address belongs to another pod, each with the UID of that pod.
    pub shared: Vec<(KnownPod, Uid)>,
    /// The pods whose address is in no block of the node.
    pub foreign: Vec<KnownPod>,
}

/// The address pools and network interfaces of all nodes, by the node's name. The methods do no I/O; only those that are `async` wait.
pub struct NodeTable {
    state: Mutex<TableState>,
    cool_down: Duration,
    /// The creation time of the table, from which the times of its nodes are counted.
    start: Instant,
    /// Notified when [`plan`](Self::plan) must be called again, because the state of a node changed.
    changed: Notify,
    /// Notified when the time of the next read of a network interface may have changed.
    reads_changed: Notify,
    /// Notified when pods that wait for an address should request one again.
    woken: Notify,
}

/// The state of a [`NodeTable`], under one lock: a change of one node may concern all nodes of its subnet.
#[derive(Default)]
struct TableState {
    nodes: BTreeMap<String, KnownNode>,
    /// The nodes whose pools changed, so that the next call of [`NodeTable::plan`] plans changes of their interfaces.
    changed: BTreeSet<String>,
    /// The subnets without a free block of a kind, each with the time of the next request for such blocks, by one node for all.
    exhausted: BTreeMap<(SubnetId, BlockKind), Duration>,
    /// The pods that should request an address again: one may be free for them, or the reason for their wait has changed.
    woken: BTreeSet<Uid>,
}

/// A node whose interface was read. All times are since the creation of the table.
struct KnownNode {
    instance: InstanceId,
    subnet: SubnetId,
    pool: NodePool,
    /// The time at which changes of the interface must be planned even if the node has not changed until then; `None` if no such plan is
    /// needed.
    due: Option<Duration>,
    /// The time before which the interface is not read, because a read may not show its last change yet.
    visible_at: Duration,
    /// The time of the last read of the node's network interface.
    read: Duration,
    /// `true` if the interface is to be read at `visible_at`, without waiting for the usual interval: the effect of a change is not
    /// known, or the last read failed or may be old.
    is_uncertain: bool,
    /// `true` while the node has the configured label; `false` once it has lost it, so that its pool is emptied.
    managed: bool,
    /// `true` if a read has surely shown all blocks of the interface; `false` while there was only a first read, which may not show the
    /// last changes of an earlier process.
    is_confirmed: bool,
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
        self.state().nodes.get(node).is_some_and(|node| node.instance == *instance)
    }

    /// Adds a node, and recovers the addresses of its pods from their status or their annotations. Of two pods with one address, the one
    /// that uses it keeps it, otherwise the older one.
    ///
    /// `settings` and `pods` are called under the lock of the table: options that change meanwhile are applied afterwards, and a pod whose
    /// end is noticed meanwhile is either missing in the result, or returns its address afterwards.
    pub fn add(
        &self,
        node: &str,
        instance: &InstanceId,
        interface: &PrimaryInterface,
        settings: impl FnOnce() -> Settings,
        pods: impl FnOnce() -> Vec<KnownPod>,
    ) -> Recovery {
        let mut state = self.state();
        let mut pods = pods();
        let mut pool = NodePool::new(interface, settings(), self.cool_down, self.now());
        pods.sort_by(|a, b| (!a.uses_it, &a.created, &a.uid).cmp(&(!b.uses_it, &b.created, &b.uid)));
        let (mut recovery, mut owners) = (Recovery::default(), BTreeMap::<Ipv4Addr, Uid>::new());
        for pod in pods {
            if let Some(owner) = owners.get(&pod.address) {
                recovery.shared.push((pod, owner.clone()));
            } else if pool.adopt(&pod.uid, pod.address) == Adopted::Unknown {
                recovery.foreign.push(pod);
            } else {
                owners.insert(pod.address, pod.uid);
            }
        }
        let (instance, subnet) = (instance.clone(), interface.subnet.clone());
        let read = self.now();
        // A read may be older than the last change of an earlier process. Before the cool-down ends, another one shows it.
        let may_be_old =
            !interface.blocks.is_empty() || !owners.is_empty() || recovery != Recovery::default();
        let known = KnownNode {
            instance,
            subnet,
            pool,
            due: None,
            visible_at: if may_be_old { read + MAX_VISIBILITY_DELAY } else { read },
            read,
            is_uncertain: may_be_old,
            managed: true,
            is_confirmed: !may_be_old,
            failed_requests: RequestLog::default(),
        };
        state.nodes.insert(node.to_owned(), known);
        self.plan_soon(&mut state, node);
        self.reads_changed.notify_one();
        recovery
    }

    /// Removes a deleted node from the table, unless its machine is `except`, the machine of a newer node with the same name. The blocks
    /// of the removed node are not unassigned: they end with its machine.
    pub fn remove(&self, node: &str, except: Option<&InstanceId>) {
        let mut state = self.state();
        let TableState { nodes, exhausted, .. } = &mut *state;
        if nodes.get(node).is_some_and(|known| Some(&known.instance) == except) {
            return;
        }
        nodes.remove(node);
        exhausted.retain(|(subnet, _), _| nodes.values().any(|node| node.subnet == *subnet));
    }

    /// Records that a node got or lost its label (`managed`), and applies the options `settings` to it, which are read under the lock of
    /// the table. Without the label, its pods get no more addresses, and its blocks are removed as soon as no pod uses them. Does nothing
    /// for an unknown node, or without a change.
    pub fn manage(&self, node: &str, managed: bool, settings: impl FnOnce() -> Settings) {
        let (now, mut state) = (self.now(), self.state());
        if let Some(known) = state.nodes.get_mut(node).filter(|known| known.managed != managed) {
            known.managed = managed;
            known.configure(settings(), now);
            self.plan_soon(&mut state, node);
        }
    }

    /// Replaces the options of all nodes by `settings`, those that the `ConfigMap` contains now.
    pub fn configure(&self, settings: Settings) {
        let (now, mut state) = (self.now(), self.state());
        state.nodes.values_mut().for_each(|node| node.configure(settings, now));
        self.plan_all(&mut state);
    }

    /// Returns the number of pods of the node that can have an address; `None` if the node is unknown.
    pub fn capacity(&self, node: &str) -> Option<usize> {
        let now = self.now();
        self.state().nodes.get(node).map(|node| node.pool.capacity(now))
    }

    /// Takes an address from the pool of a node for a pod; `None` if the node is unknown. An error is the reason why the pod must wait
    /// until it is `woken`. A pod whose address is in no known block waits until a second read of the interface shows no such block either.
    pub fn take(&self, node: &str, pod: &Uid) -> Option<Result<PodAddress, Wait>> {
        let (now, mut state) = (self.now(), self.state());
        let known = state.nodes.get_mut(node)?;
        if known.awaits_read(pod) {
            return Some(Err(Wait::Growing));
        }
        let waiting = known.pool.waiting();
        let taken = known.pool.take(pod, now);
        // A pod that waits as before changes nothing; planning again would wake it again, without an end.
        if taken.is_ok() || known.pool.waiting() > waiting {
            self.plan_soon(&mut state, node);
        }
        Some(taken)
    }

    /// Returns `true` if the address that a pod already has is in no known block of its node, but a second read of the interface may show
    /// it.
    pub fn awaits_read(&self, node: &str, pod: &Uid) -> bool {
        self.state().nodes.get(node).is_some_and(|known| known.awaits_read(pod))
    }

    /// Gives the address of a pod that is finished or deleted back to the pool of its node.
    pub fn give_back(&self, node: &str, pod: &Uid) {
        let (now, mut state) = (self.now(), self.state());
        if let Some(known) = state.nodes.get_mut(node) {
            known.pool.give_back(pod, now);
            self.plan_soon(&mut state, node);
        }
    }

    /// Gives the address of a deleted pod back to the pool that it is from, on any node: the node of the pod is not known any more.
    pub fn give_back_anywhere(&self, pod: &Uid) {
        let (now, mut state) = (self.now(), self.state());
        state.nodes.values_mut().for_each(|node| node.pool.give_back(pod, now));
        self.plan_all(&mut state);
    }

    /// Returns the address that a pod of the node has; `None` if it has none, or the node is unknown.
    pub fn address_of(&self, node: &str, pod: &Uid) -> Option<PodAddress> {
        self.state().nodes.get(node)?.pool.address_of(pod)
    }

    /// Adds pods to those that [`woken`](Self::woken) returns, so that they request an address again: their node is in the table now.
    pub(crate) fn wake(&self, pods: Vec<Uid>) {
        self.state().woken.extend(pods);
        self.woken.notify_one();
    }

    /// Waits until there are pods that should request an address again, and returns their UIDs.
    pub(crate) async fn woken(&self) -> BTreeSet<Uid> {
        loop {
            let woken = std::mem::take(&mut self.state().woken);
            if !woken.is_empty() {
                return woken;
            }
            self.woken.notified().await;
        }
    }

    /// Waits until a node is added or a read is scheduled, so that the next read of an interface may be due earlier. Returns at once if
    /// that happened since the last call.
    pub(crate) async fn reads_changed(&self) {
        self.reads_changed.notified().await;
    }

    /// Waits until [`plan`](Self::plan) must be called again, because the state of a node changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the changes of interfaces that the caller must begin now, each with the name of the node and the id of its interface, and
    /// the delay after which this must be called again even if no node changes; `None` if it need not be. Wakes the pods that should
    /// request an address again.
    pub(crate) fn plan(&self) -> (Vec<(String, InterfaceId, NodeAction)>, Option<Duration>) {
        let (now, mut guard) = (self.now(), self.state());
        let TableState { nodes, changed, exhausted, woken } = &mut *guard;
        let (mut actions, changed) = (Vec::new(), std::mem::take(changed));
        for (name, node) in nodes.iter_mut() {
            if !changed.contains(name) && node.due.is_none_or(|due| due > now) {
                continue;
            }
            for kind in KINDS {
                let until = exhausted.get(&(node.subnet.clone(), kind));
                if let Some(until) = until.filter(|until| **until > now) {
                    node.pool.block(kind, *until);
                }
            }
            for action in node.pool.plan(now) {
                if let Action::Grow { .. } = action.action
                    && let Some(until) = exhausted.get_mut(&(node.subnet.clone(), action.kind))
                {
                    *until = now + EXHAUSTED_RETRY;
                }
                actions.push((name.clone(), node.pool.interface().clone(), action));
            }
            if !node.pool.needs_change(now) {
                node.failed_requests = RequestLog::default();
            }
            woken.extend(node.pool.wake(now));
            node.due = node.pool.next(now);
        }
        if !woken.is_empty() {
            self.woken.notify_one();
        }
        let next = nodes.values().filter_map(|node| node.due).min();
        (actions, next.map(|next| next.saturating_sub(now)))
    }

    /// Records the result of the change `action` of the node `name`: the new blocks `got`, and the `shortfall` if the change failed. Blocks
    /// whose removal failed may still exist. Returns `false`, without an effect, if the node is gone or `interface` is not its interface.
    pub(crate) fn ended(
        &self,
        name: &str,
        interface: &InterfaceId,
        action: &NodeAction,
        got: Vec<Ipv4Net>,
        shortfall: Option<Shortfall>,
    ) -> bool {
        let (now, mut guard) = (self.now(), self.state());
        let state = &mut *guard;
        let node = state.nodes.get_mut(name).filter(|node| node.pool.interface() == interface);
        let Some(node) = node else { return false };
        node.visible_at = now + MAX_VISIBILITY_DELAY;
        let NodeAction { kind, action } = action;
        match action {
            Action::Grow { op, .. } => {
                let (has_got, subnet) = (!got.is_empty(), node.subnet.clone());
                node.pool.assigned(*op, *kind, Grown { got, rest: 0, shortfall }, now);
                state.share_exhaustion(subnet, *kind, has_got, shortfall == Some(Shortfall::Exhausted), now);
            }
            Action::Shrink { op, groups } => {
                let left: &[Ipv4Net] = if shortfall.is_none() { &[] } else { groups };
                node.pool.unassigned(*op, *kind, left, now);
            }
        }
        self.plan_soon(state, name);
        true
    }

    /// Adds `requests`, those of a failed change of the node's interface, to those of earlier failures. Clears the latter if the change
    /// `succeeded`.
    pub(crate) fn keep_requests(&self, name: &str, requests: &RequestLog, succeeded: bool) {
        if let Some(node) = self.state().nodes.get_mut(name) {
            if succeeded {
                node.failed_requests = RequestLog::default();
            } else {
                node.failed_requests.extend(requests);
            }
        }
    }

    /// Returns the last requests of the failed changes of a node's interface; empty if the last change succeeded, if the interface needs no
    /// change, or if the node is unknown.
    pub fn failed_requests(&self, name: &str) -> Vec<LoggedRequest> {
        self.state().nodes.get(name).map(|node| node.failed_requests.requests()).unwrap_or_default()
    }

    /// Marks a node as changed, so that the next [`plan`](Self::plan) includes its interface, and wakes the task that calls it.
    fn plan_soon(&self, state: &mut TableState, node: &str) {
        if !state.changed.contains(node) {
            state.changed.insert(node.to_owned());
        }
        self.changed.notify_one();
    }

    /// Marks all nodes as changed, so that the next [`plan`](Self::plan) includes their interfaces, and wakes the task that calls it.
    fn plan_all(&self, state: &mut TableState) {
        state.changed = state.nodes.keys().cloned().collect();
        self.changed.notify_one();
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TableState {
    /// Shares the result of one node's request for blocks of a kind with all nodes of its subnet. If the subnet `is_exhausted`, none of
    /// them requests such blocks for 30 s, and then one node tries for all. When it has got blocks, all nodes may request them again.
    fn share_exhaustion(
        &mut self,
        subnet: SubnetId,
        kind: BlockKind,
        has_got: bool,
        is_exhausted: bool,
        now: Duration,
    ) {
        let until = now + EXHAUSTED_RETRY;
        // After any other error, it is not known whether the subnet has blocks, and each node tries for itself.
        let is_relieved = self.exhausted.remove(&(subnet.clone(), kind)).is_some() && has_got;
        if !is_exhausted && !is_relieved {
            return;
        }
        for (name, node) in self.nodes.iter_mut().filter(|(_, node)| node.subnet == subnet) {
            if is_exhausted {
                node.pool.block(kind, until);
            } else {
                node.pool.end_backoff(kind);
            }
            self.changed.insert(name.clone());
        }
        if is_exhausted {
            self.exhausted.insert((subnet, kind), until);
        }
    }
}

impl KnownNode {
    /// Returns `true` if the address that a pod already has is in no known block, but a second read of the interface may show it.
    fn awaits_read(&self, pod: &Uid) -> bool {
        !self.is_confirmed && self.pool.unplaced().any(|unplaced| unplaced == pod)
    }

    /// Applies the options to the pool. Without its label, the node counts as one for which addresses are switched off.
    fn configure(&mut self, settings: Settings, now: Duration) {
        let enabled = settings.enabled && self.managed;
        self.pool.configure(Settings { enabled, ..settings }, now);
    }
}
