//! The reads of the nodes' network interfaces from the provider: the times at which they are due, and their results.

use std::time::Duration;

use staffetta_driver::InstanceId;
use staffetta_driver::prefix::PrimaryInterface;

use super::{KnownNode, NodeTable};
use crate::node_pool::{InterfaceDrift, NodeEpoch};

/// The maximum delay until a read of a network interface shows a change of it (the provider is eventually consistent).
pub(crate) const MAX_VISIBILITY_DELAY: Duration = Duration::from_secs(15);

/// A node whose network interface is to be read, and the state of its address pools before the read.
#[derive(Clone, Debug)]
pub struct DueRead {
    /// The name of the node.
    pub node: String,
    /// The machine whose interface is read.
    pub instance: InstanceId,
    /// The state of the node's pools before the read.
    pub since: NodeEpoch,
}

impl NodeTable {
    /// Schedules a read of a node's interface after [`MAX_VISIBILITY_DELAY`], because the effect of a call is not known or a read failed.
    pub(crate) fn schedule_read(&self, name: &str) {
        let (now, mut state) = (self.now(), self.state());
        if let Some(node) = state.nodes.get_mut(name) {
            (node.is_uncertain, node.visible_at) = (true, now + MAX_VISIBILITY_DELAY);
            self.reads_changed.notify_one();
        }
    }

    /// Returns the nodes whose interfaces are to be read now: once in each `interval`, or sooner because the effect of a call is not known,
    /// or the last read failed or may be old. Marks them as read, although the caller reads them only afterwards.
    pub(crate) fn take_due_reads(&self, interval: Duration) -> Vec<DueRead> {
        let (now, mut state) = (self.now(), self.state());
        let due = state.nodes.iter_mut().filter(|(_, node)| node.read_due(interval) <= now);
        let due = due.map(|(name, node)| {
            (node.read, node.is_uncertain) = (now, false);
            DueRead { node: name.clone(), instance: node.instance.clone(), since: node.pool.epoch() }
        });
        due.collect()
    }

    /// Returns the time until the interface of any node is to be read next; `None` without nodes.
    pub(crate) fn next_read(&self, interval: Duration) -> Option<Duration> {
        let (now, state) = (self.now(), self.state());
        let next = state.nodes.values().map(|node| node.read_due(interval)).min();
        next.map(|next| next.saturating_sub(now))
    }

    /// Adapts the pools of a node to the `interface` that a read has shown. Returns the differences between the pools and the interface;
    /// none if the node is gone or has another machine. If the pools changed during the read, the interface is read again soon.
    pub(crate) fn resync(&self, read: &DueRead, interface: &PrimaryInterface) -> InterfaceDrift {
        let (now, mut state) = (self.now(), self.state());
        let node = state.nodes.get_mut(&read.node).filter(|node| node.instance == read.instance);
        let Some(node) = node else { return InterfaceDrift::default() };
        let (unplaced, is_complete) =
            (node.pool.unplaced().cloned().collect::<Vec<_>>(), node.pool.is_unchanged(read.since));
        node.pool.limit(interface, now);
        let drift = node.pool.resync(read.since, &interface.blocks, now);
        if !is_complete {
            (node.is_uncertain, node.visible_at) = (true, now + MAX_VISIBILITY_DELAY);
        } else if !std::mem::replace(&mut node.is_confirmed, true) && !unplaced.is_empty() {
            state.woken.extend(unplaced);
            self.woken.notify_one();
        }
        self.plan_soon(&mut state, &read.node);
        drift
    }
}

impl KnownNode {
    /// Returns the time at which the interface of this node is to be read next.
    fn read_due(&self, interval: Duration) -> Duration {
        self.visible_at.max(if self.is_uncertain { Duration::ZERO } else { self.read + interval })
    }
}
