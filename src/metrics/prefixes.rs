//! Metrics of the addresses on the network interfaces of nodes.

use std::sync::{Arc, Mutex, Weak};

use staffetta_prefix_ip::cluster::WatchedCluster;
use staffetta_prefix_ip::nodes::{NodeTable, NodeTableMetrics};

use super::family::MetricsPage;
use super::names;
use crate::lock::lock;

/// The metrics of the handler `prefix_ip`, read from its state. They are 0 while this process does not lead.
#[derive(Default)]
pub(crate) struct PrefixMetrics(Mutex<(Weak<NodeTable>, Weak<WatchedCluster>)>);

impl PrefixMetrics {
    /// Sets the table of nodes and the cluster from which the metrics are read from now on. Only weak references are kept.
    pub(crate) fn set_source(&self, table: &Arc<NodeTable>, cluster: &Arc<WatchedCluster>) {
        *lock(&self.0) = (Arc::downgrade(table), Arc::downgrade(cluster));
    }

    /// Adds the metrics of the addresses on the network interfaces of nodes to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        let (table, cluster) = lock(&self.0).clone();
        let waiting = cluster.upgrade().map_or(0, |cluster| cluster.waiting.count());
        let metrics = table.upgrade().map(|table| table.metrics()).unwrap_or_default();
        let NodeTableMetrics { nodes, blocks: [prefixes, addresses], used, free, cooling, exhausted_subnets } =
            metrics;
        page.counts(&names::PREFIX_NODES, [([], nodes)]);
        page.counts(&names::PREFIX_BLOCKS, [(["prefix"], prefixes), (["address"], addresses)]);
        let states = [(["used"], used), (["free"], free), (["cooling"], cooling)];
        page.counts(&names::PREFIX_ADDRESSES, states);
        page.counts(&names::PREFIX_WAITING, [([], waiting)]);
        page.counts(&names::PREFIX_EXHAUSTED_SUBNETS, [([], exhausted_subnets)]);
    }
}
