//! The changes of the nodes' network interfaces: plans them, and records their results.

use std::time::Duration;

use ipnet::Ipv4Net;
use staffetta_driver::prefix::BlockKind;
use staffetta_driver::{DriverError, InstanceId, InterfaceId, LoggedRequest, Reason, RequestLog, SubnetId};
use staffetta_pool::Action;

use super::{NodeTable, TableState};
use crate::node_pool::{KINDS, MAX_VISIBILITY_DELAY, NodeAction};

/// The delay before the next request for blocks in a subnet that had no free one.
const EXHAUSTED_RETRY: Duration = Duration::from_secs(30);

/// The result of [`NodeTable::ended`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// The result was recorded.
    Done,
    /// The provider refused the number of blocks as a whole; fewer are requested at once.
    Fewer,
    /// Nothing: the machine is gone, or has another interface.
    Stale,
}

impl NodeTable {
    /// Waits until [`plan`](Self::plan) must be called again, because the state of a machine changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Returns the changes of interfaces that the caller must begin now, each with the machine and the id of its interface, and the delay
    /// after which this must be called again even if nothing changes; `None` if it need not be. Wakes the pods that should request an
    /// address again, and the nodes whose capacity changed.
    pub(crate) fn plan(&self) -> (Vec<(InstanceId, InterfaceId, NodeAction)>, Option<Duration>) {
        let (now, mut guard) = (self.now(), self.state.lock());
        let TableState { machines, changed, exhausted, woken, .. } = &mut *guard;
        let (mut actions, changed) = (Vec::new(), std::mem::take(changed));
        for (instance, machine) in machines.iter_mut() {
            if !changed.contains(instance) && machine.due.is_none_or(|due| due > now) {
                continue;
            }
            for kind in KINDS {
                let until = exhausted.get(&(machine.subnet.clone(), kind));
                if let Some(until) = until.filter(|until| **until > now) {
                    machine.pool.block(kind, *until);
                }
            }
            for action in machine.pool.plan(now) {
                if let Action::Grow { .. } = action.action
                    && let Some(until) = exhausted.get_mut(&(machine.subnet.clone(), action.kind))
                {
                    *until = now + EXHAUSTED_RETRY;
                }
                actions.push((instance.clone(), machine.pool.interface().clone(), action));
            }
            if !machine.pool.needs_change(now) {
                machine.failed_requests = RequestLog::default();
            }
            woken.pods.extend(machine.pool.wake(now));
            let capacity = machine.pool.capacity(now);
            if machine.capacity.replace(capacity).is_some_and(|before| before != capacity) {
                woken.nodes.extend(machine.nodes.keys().cloned());
            }
            machine.due = machine.pool.next(now);
        }
        if !woken.pods.is_empty() || !woken.nodes.is_empty() {
            self.woken.notify_one();
        }
        let next = machines.values().filter_map(|machine| machine.due).min();
        (actions, next.map(|next| next.saturating_sub(now)))
    }

    /// Records the result of the change `action` of a machine: the new blocks `got`, and the error if the change failed. Blocks whose
    /// removal failed stay in use, unless its effect is not known. Has no effect if the machine is gone or `interface` is not its interface.
    pub(crate) fn ended(
        &self,
        instance: &InstanceId,
        interface: &InterfaceId,
        action: &NodeAction,
        got: Vec<Ipv4Net>,
        error: Option<&DriverError>,
    ) -> Recorded {
        let (now, mut guard) = (self.now(), self.state.lock());
        let state = &mut *guard;
        let machine = state.machines.get_mut(instance);
        let machine = machine.filter(|machine| machine.pool.interface() == interface);
        let Some(machine) = machine else { return Recorded::Stale };
        machine.visible_at = now + MAX_VISIBILITY_DELAY;
        let NodeAction { kind, action } = action;
        let mut recorded = Recorded::Done;
        match action {
            Action::Grow { op, count, .. } => {
                let (has_got, subnet) = (!got.is_empty(), machine.subnet.clone());
                let is_exhausted = error.is_some_and(|error| error.reason() == Reason::NoAddress);
                if machine.pool.assigned(*op, *kind, *count, got, error, now) {
                    recorded = Recorded::Fewer;
                    // The subnet may have fewer blocks.
                    if let Some(until) = state.exhausted.get_mut(&(subnet, *kind)) {
                        *until = now;
                    }
                } else {
                    state.share_exhaustion(&subnet, *kind, has_got, is_exhausted, now);
                }
            }
            Action::Shrink { op, groups } => machine.pool.unassigned(*op, *kind, groups, error, now),
        }
        state.changed.insert(instance.clone());
        self.changed.notify_one();
        recorded
    }

    /// Adds `requests`, those of a failed change of a machine's interface, to those of earlier failures. Clears the latter if the change
    /// `succeeded`.
    pub(crate) fn keep_requests(&self, instance: &InstanceId, requests: &RequestLog, succeeded: bool) {
        if let Some(machine) = self.state.lock().machines.get_mut(instance) {
            if succeeded {
                machine.failed_requests = RequestLog::default();
            } else {
                machine.failed_requests.extend(requests);
            }
        }
    }

    /// Returns the last requests of the failed changes of a node's interface; empty if the last change succeeded, if the interface needs no
    /// change, or if the node is unknown.
    pub fn failed_requests(&self, node: &str) -> Vec<LoggedRequest> {
        let mut state = self.state.lock();
        state.machine_of(node).map(|machine| machine.failed_requests.requests()).unwrap_or_default()
    }
}

impl TableState {
    /// Shares the result of one machine's request for blocks of a kind with all machines of its subnet. If the subnet `is_exhausted`, none
    /// of them requests such blocks for 30 s, and then one tries for all. When it has got blocks, all may request them again.
    fn share_exhaustion(
        &mut self,
        subnet: &SubnetId,
        kind: BlockKind,
        has_got: bool,
        is_exhausted: bool,
        now: Duration,
    ) {
        let until = now + EXHAUSTED_RETRY;
        // After any other error, it is not known whether the subnet has blocks, and each machine tries for itself.
        let is_relieved = self.exhausted.remove(&(subnet.clone(), kind)).is_some() && has_got;
        if !is_exhausted && !is_relieved {
            return;
        }
        for (instance, machine) in self.machines.iter_mut().filter(|(_, machine)| machine.subnet == *subnet) {
            if is_exhausted {
                machine.pool.block(kind, until);
            } else {
                machine.pool.end_backoff(kind);
            }
            self.changed.insert(instance.clone());
        }
        if is_exhausted {
            self.exhausted.insert((subnet.clone(), kind), until);
        }
    }
}
