//! The reads of the nodes' network interfaces from the provider: the times at which they are due, and their results.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use staffetta_driver::InstanceId;
use staffetta_driver::prefix::PrimaryInterface;

use super::{Machine, NodeTable, TableState};
use crate::node_pool::{InterfaceDrift, MAX_VISIBILITY_DELAY, NodeEpoch};

/// A machine whose network interface is to be read, and the state of its address pools before the read.
#[derive(Clone, Debug)]
pub struct DueRead {
    /// The machine whose interface is read.
    pub instance: InstanceId,
    /// The state of the machine's pools before the read.
    pub since: NodeEpoch,
}

impl NodeTable {
    /// Schedules a read of a machine's interface after [`MAX_VISIBILITY_DELAY`], because the effect of a call is not known or a read
    /// failed.
    pub(crate) fn schedule_read(&self, instance: &InstanceId) {
        let (now, mut state) = (self.now(), self.state.lock());
        if let Some(machine) = state.machines.get_mut(instance) {
            machine.read_again(now);
            self.reads_changed.notify_one();
        }
    }

    /// Waits until a node is added or a read is scheduled, so that the next read of an interface may be due earlier. Returns at once if
    /// that happened since the last call.
    pub(crate) async fn reads_changed(&self) {
        self.reads_changed.notified().await;
    }

    /// Returns the machines whose interfaces are to be read now: once in each `interval`, or sooner because the effect of a call is not
    /// known, or the last read failed or may be old. Marks them as read, although the caller reads them only afterwards.
    pub(crate) fn take_due_reads(&self, interval: Duration) -> Vec<DueRead> {
        let (now, mut state) = (self.now(), self.state.lock());
        let due = state.machines.iter_mut().filter(|(_, machine)| machine.read_due(interval) <= now);
        let due = due.map(|(instance, machine)| {
            (machine.read, machine.is_uncertain) = (now, false);
            DueRead { instance: instance.clone(), since: machine.pool.epoch() }
        });
        due.collect()
    }

    /// Returns the time until the interface of any machine is to be read next; `None` without machines.
    pub(crate) fn next_read(&self, interval: Duration) -> Option<Duration> {
        let (now, state) = (self.now(), self.state.lock());
        let next = state.machines.values().map(|machine| machine.read_due(interval)).min();
        next.map(|next| next.saturating_sub(now))
    }

    /// Returns the time until the annotations of pods are to be read, which [`confirm_free`](Self::confirm_free) needs; `None` if no address
    /// waits for that.
    pub(crate) fn next_confirmation(&self) -> Option<Duration> {
        let (now, state) = (self.now(), self.state.lock());
        let next = state.machines.values().filter_map(|machine| machine.pool.confirm_at()).min();
        next.map(|next| next.saturating_sub(now))
    }

    /// Returns the present time if the annotations of pods are to be read now.
    pub(crate) fn due_confirmation(&self) -> Option<Duration> {
        let is_due = self.next_confirmation().is_some_and(|remaining| remaining.is_zero());
        is_due.then(|| self.now())
    }

    /// Makes the addresses free that a read of an interface found, whose cool-down had ended at the time `since`, and that are not in
    /// `published`, the annotations of pods that were read after `since`. The others wait for another read, as all do if that failed (`None`).
    pub(crate) fn confirm_free(&self, since: Duration, published: Option<&BTreeSet<Ipv4Addr>>) {
        let (now, mut guard) = (self.now(), self.state.lock());
        let TableState { machines, changed, .. } = &mut *guard;
        for (instance, machine) in machines.iter_mut() {
            if machine.pool.confirm_at().is_some_and(|at| at <= since) {
                machine.pool.confirm(since, now, published);
                changed.insert(instance.clone());
            }
        }
        self.changed.notify_one();
    }

    /// Adapts the pools of a machine to the `interface` that a read has shown. Returns the differences between the pools and the
    /// interface; none if the machine is gone. If the pools changed during the read, or if it lacks a block, the interface is read
    /// again soon.
    pub(crate) fn resync(&self, read: &DueRead, interface: &PrimaryInterface) -> InterfaceDrift {
        let (now, mut guard) = (self.now(), self.state.lock());
        let state = &mut *guard;
        let Some(machine) = state.machines.get_mut(&read.instance) else { return InterfaceDrift::default() };
        let (unplaced, is_complete) =
            (machine.pool.unplaced().cloned().collect::<Vec<_>>(), machine.pool.is_unchanged(read.since));
        machine.is_missing = false;
        machine.pool.limit(interface, now);
        let drift = machine.pool.resync(read.since, &interface.blocks, now);
        if !is_complete || machine.pool.lacks_confirmation() || !drift.lost.is_empty() {
            machine.read_again(now);
        }
        if is_complete && !std::mem::replace(&mut machine.is_confirmed, true) && !unplaced.is_empty() {
            state.woken.pods.extend(unplaced);
            self.woken.notify_one();
        }
        state.changed.insert(read.instance.clone());
        self.changed.notify_one();
        drift
    }
}

impl Machine {
    /// Schedules a read of the interface after [`MAX_VISIBILITY_DELAY`].
    pub(super) fn read_again(&mut self, now: Duration) {
        (self.is_uncertain, self.visible_at) = (true, now + MAX_VISIBILITY_DELAY);
    }

    /// Returns the time at which the interface of this machine is to be read next.
    fn read_due(&self, interval: Duration) -> Duration {
        self.visible_at.max(if self.is_uncertain { Duration::ZERO } else { self.read + interval })
    }
}
