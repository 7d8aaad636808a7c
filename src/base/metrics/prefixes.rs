//! Metrics of the addresses on the network interfaces of nodes.

use std::sync::Arc;

use parking_lot::Mutex;

use super::family::MetricsPage;
use super::names;

/// The figures of the handler `prefix_ip` at one moment.
#[derive(Default)]
pub(crate) struct PrefixFigures {
    /// The nodes whose network interface was read.
    pub(crate) nodes: usize,
    /// The address prefixes on the interfaces.
    pub(crate) prefixes: usize,
    /// The single secondary addresses on the interfaces.
    pub(crate) addresses: usize,
    /// The addresses that pods have.
    pub(crate) used: usize,
    /// The addresses that the next pod can get.
    pub(crate) free: usize,
    /// The addresses that wait after their release.
    pub(crate) cooling: usize,
    /// The pods that wait for an address.
    pub(crate) waiting: usize,
    /// The subnets without a free block.
    pub(crate) exhausted_subnets: usize,
}

/// The metrics of the handler `prefix_ip`. They are 0 while this process does not lead.
#[derive(Default)]
pub(crate) struct PrefixMetrics(Mutex<Option<Arc<dyn Fn() -> PrefixFigures + Send + Sync>>>);

impl PrefixMetrics {
    /// Sets the function from which the metrics are read from now on.
    pub(crate) fn set_source(&self, figures: impl Fn() -> PrefixFigures + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(figures));
    }

    /// Adds the metrics of the addresses on the network interfaces of nodes to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        let read = self.0.lock().clone();
        let figures = read.map(|read| read()).unwrap_or_default();
        page.counts(&names::PREFIX_NODES, [([], figures.nodes)]);
        page.counts(
            &names::PREFIX_BLOCKS,
            [(["prefix"], figures.prefixes), (["address"], figures.addresses)],
        );
        let states = [(["used"], figures.used), (["free"], figures.free), (["cooling"], figures.cooling)];
        page.counts(&names::PREFIX_ADDRESSES, states);
        page.counts(&names::PREFIX_WAITING, [([], figures.waiting)]);
        page.counts(&names::PREFIX_EXHAUSTED_SUBNETS, [([], figures.exhausted_subnets)]);
    }
}
