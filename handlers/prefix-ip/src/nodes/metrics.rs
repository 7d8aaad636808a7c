//! The metrics of all nodes together.

use std::collections::BTreeSet;

use crate::node_pool::KINDS;

use super::NodeTable;

/// The metrics of all nodes together, all of them gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTableMetrics {
    /// The number of nodes with the configured label whose network interface was read.
    pub nodes: usize,
    /// The number of prefixes, and then the number of single addresses, on the interfaces of all nodes.
    pub blocks: [usize; 2],
    /// The number of addresses that pods use.
    pub used: usize,
    /// The number of free addresses, which pods can get without a wait.
    pub free: usize,
    /// The number of addresses in their cool-down: those of ended pods, and those that were found on an interface.
    pub cooling: usize,
    /// The number of subnets that had no free block of a kind at a request of the last 30 seconds.
    pub exhausted_subnets: usize,
}

impl NodeTable {
    /// Returns the current numbers of blocks and addresses of all nodes together, for metrics.
    pub fn metrics(&self) -> NodeTableMetrics {
        let (now, state, mut sum) = (self.now(), self.state.lock(), NodeTableMetrics::default());
        // An entry whose time has passed remains if no node requests blocks of its kind any more.
        let exhausted = state.exhausted.iter().filter(|(_, until)| **until > now);
        sum.exhausted_subnets = exhausted.map(|((subnet, _), _)| subnet).collect::<BTreeSet<_>>().len();
        for machine in state.machines.values() {
            sum.nodes += machine.nodes.values().filter(|managed| **managed).count();
            for (index, kind) in KINDS.into_iter().enumerate() {
                let counts = machine.pool.counts(kind, now);
                sum.blocks[index] += counts.groups;
                sum.used += counts.used;
                sum.free += counts.warm;
                sum.cooling += counts.cooling;
            }
        }
        sum
    }
}
