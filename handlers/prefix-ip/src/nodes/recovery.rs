//! Adds nodes to the table and removes them, and recovers the addresses that pods use.

use std::net::Ipv4Addr;
use std::time::Duration;

use staffetta_driver::prefix::PrimaryInterface;
use staffetta_driver::{InstanceId, RequestLog, Uid};
use staffetta_pool::Adopted;

use super::{Machine, NodeTable, TableState};
use crate::node_pool::{MAX_VISIBILITY_DELAY, NodePool};
use crate::settings::Settings;

/// A pod that uses an address according to its status, or claims one in its annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownPod {
    /// The UID of the pod.
    pub uid: Uid,
    /// The IPv4 address of the pod: that in its `status.podIPs`, or else that in its annotation. If both are lost, the last one.
    pub address: Ipv4Addr,
    /// `true` if the address was in the status, so that the pod uses it; `false` if only its annotation names it.
    pub uses_it: bool,
    /// The creation time of the pod, in a form that sorts by time.
    pub created: String,
}

impl NodeTable {
    /// Adds a node, and recovers the addresses of its pods from their status or their annotations. Of two pods with one address, the one
    /// that uses it keeps it, otherwise the older one; if both use it, it is free when both have ended. Returns the pods whose address
    /// belongs to another pod, each with the UID of that pod.
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
    ) -> Vec<(KnownPod, Uid)> {
        let (now, mut state) = (self.now(), self.state.lock());
        state.remove(node);
        let (mut pods, settings) = (pods(), settings());
        // A read may be older than the last change of an earlier process. Before the cool-down ends, another one shows it.
        let may_be_old = !interface.blocks.is_empty() || !pods.is_empty();
        let new = || Machine {
            nodes: [].into(),
            subnet: interface.subnet.clone(),
            pool: NodePool::new(interface, settings, self.cool_down, now),
            capacity: None,
            due: None,
            visible_at: now,
            read: now,
            is_uncertain: false,
            is_confirmed: true,
            is_missing: false,
            failed_requests: RequestLog::default(),
        };
        let machine = state.machines.entry(instance.clone()).or_insert_with(new);
        machine.nodes.insert(node.to_owned(), true);
        machine.configure(settings, now);
        if may_be_old {
            machine.is_confirmed = false;
            machine.read_again(now);
        }
        pods.sort_by(|a, b| (!a.uses_it, &a.created, &a.uid).cmp(&(!b.uses_it, &b.created, &b.uid)));
        let shared = pods.into_iter().filter_map(|pod| {
            let owner = machine.pool.recover(&pod, now)?;
            Some((pod, owner))
        });
        let shared = shared.collect();
        state.nodes.insert(node.to_owned(), instance.clone());
        self.plan_soon(&mut state, node);
        self.reads_changed.notify_one();
        shared
    }

    /// Records that a pod of the node uses the address in its status, whatever it was given, or that it claims one in its annotation that was
    /// found on the interface and is not [confirmed](Self::confirm_free) to be free: the process that led before has given it to the pod.
    /// Returns the UID of another pod that has the address.
    pub fn confirm(&self, node: &str, pod: &KnownPod) -> Option<Uid> {
        let (now, mut state) = (self.now(), self.state.lock());
        let machine = state.machine_of(node)?;
        if !pod.uses_it && !machine.pool.is_unconfirmed(pod.address) {
            return None;
        }
        let held = machine.pool.address_of(&pod.uid).map(|held| held.address);
        if held == Some(pod.address) {
            return None;
        }
        let owner = machine.pool.recover(pod, now);
        self.plan_soon(&mut state, node);
        owner
    }

    /// Removes a deleted node from the table, unless its machine is `except`, the machine of a newer node with the same name. The blocks
    /// of its machine are not unassigned: they end with the machine, or another node has it too.
    pub fn remove(&self, node: &str, except: Option<&InstanceId>) {
        let mut state = self.state.lock();
        if state.nodes.get(node).is_none_or(|instance| Some(instance) != except) {
            state.remove(node);
        }
    }

    /// Records that the network interface of a node that is not in the table could not be read: `is_gone` if the provider answered that it
    /// has no such machine.
    pub(crate) fn record_unread(&self, node: &str, is_gone: bool) {
        let mut state = self.state.lock();
        let reads = state.unread.entry(node.to_owned()).or_default();
        *reads = if is_gone { reads.saturating_add(1) } else { 0 };
    }

    /// Records that a read did not show a machine. After the second one in a row, the machine counts as gone: its nodes are removed from
    /// the table, and are handled again.
    pub(crate) fn record_missing(&self, instance: &InstanceId) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        let Some(machine) = state.machines.get_mut(instance) else { return };
        if !std::mem::replace(&mut machine.is_missing, true) {
            (machine.is_uncertain, machine.visible_at) = (true, self.now() + MAX_VISIBILITY_DELAY);
            self.reads_changed.notify_one();
            return;
        }
        for node in machine.nodes.clone().into_keys() {
            state.remove(&node);
            state.unread.insert(node.clone(), 2);
            state.woken.nodes.insert(node);
        }
        self.woken.notify_one();
    }
}

impl TableState {
    /// Removes a node, and its machine unless another node has it too.
    fn remove(&mut self, node: &str) {
        self.unread.remove(node);
        let Some(instance) = self.nodes.remove(node) else { return };
        let Some(machine) = self.machines.get_mut(&instance) else { return };
        machine.nodes.remove(node);
        if machine.nodes.is_empty() {
            self.machines.remove(&instance);
            let Self { machines, exhausted, .. } = self;
            exhausted.retain(|(subnet, _), _| machines.values().any(|machine| machine.subnet == *subnet));
        }
    }
}

impl NodePool {
    /// Records the address of a pod, in place of the one that it has. Returns the UID of another pod that has the address; a pod that does
    /// not use it, but only claims it, then stays without it.
    fn recover(&mut self, pod: &KnownPod, now: Duration) -> Option<Uid> {
        if let Some(owner) = self.owner_of(pod.address).filter(|owner| !pod.uses_it && *owner != pod.uid) {
            return Some(owner);
        }
        match self.adopt(&pod.uid, pod.address) {
            Adopted::Unknown => None,
            adopted => {
                self.release(&pod.uid, Some(pod.address), now);
                if let Adopted::Shared(owner) = adopted { Some(owner) } else { None }
            }
        }
    }
}
