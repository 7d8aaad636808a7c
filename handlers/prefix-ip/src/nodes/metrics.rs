//! The metrics of all nodes together.

use staffetta_driver::prefix::BlockKind;

use super::NodeTable;

/// The metrics of all nodes together, all of them gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTableMetrics {
    /// The number of nodes with the configured label whose network interface was read.
    pub nodes: usize,
    /// The numbers of prefixes and of single addresses on the interfaces of nodes.
    pub blocks: [usize; 2],
    /// The number of addresses that pods have.
    pub used: usize,
    /// The number of addresses that pods can get at once.
    pub free: usize,
    /// The number of addresses in their cool-down: those of ended pods, and those that were found on an interface.
    pub cooling: usize,
    /// The number of subnets that had no free block at the last request.
    pub exhausted_subnets: usize,
}

impl NodeTable {
    /// Returns the current numbers of all nodes together.
    pub fn metrics(&self) -> NodeTableMetrics {
        let (now, state, mut sum) = (self.now(), self.state(), NodeTableMetrics::default());
        sum.exhausted_subnets = state.exhausted.len();
        for node in state.nodes.values() {
            sum.nodes += usize::from(node.managed);
            for (index, kind) in [BlockKind::Prefix, BlockKind::Address].into_iter().enumerate() {
                let counts = node.pool.counts(kind, now);
                sum.blocks[index] += counts.groups;
                sum.used += counts.used;
                sum.free += counts.warm;
                sum.cooling += counts.cooling;
            }
        }
        sum
    }
}
