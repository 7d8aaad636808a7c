//! The numbers of all nodes together.

use staffetta_driver::prefix::BlockKind;

use super::NodeTable;

/// The numbers of all nodes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeTableMetrics {
    /// The nodes that get addresses.
    pub nodes: usize,
    /// The prefixes and single addresses on the interfaces of nodes.
    pub blocks: [usize; 2],
    /// The addresses that pods have.
    pub used: usize,
    /// The addresses that pods can get at once.
    pub free: usize,
    /// The addresses of ended pods in their cool-down.
    pub cooling: usize,
    /// The subnets that had no free block when one was requested last.
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
