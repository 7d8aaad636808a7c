//! Registers the handler `prefix_ip`, and the driver `memory`, which simulates the network interfaces of nodes.

#[cfg(feature = "memory")]
use std::sync::OnceLock;
use std::sync::{Arc, Weak};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_driver::prefix::PrefixProvider;
use staffetta_handler::{Registration, Registry, Setup, SetupError};
#[cfg(feature = "memory")]
use staffetta_memory::{MemoryOptions, MemoryPrefixes};
use staffetta_prefix_ip::HANDLER;
use staffetta_prefix_ip::admission::node_label;
use staffetta_prefix_ip::cluster::WatchedCluster;
use staffetta_prefix_ip::handler::PrefixIpHandler;
use staffetta_prefix_ip::nodes::{NodeTable, NodeTableMetrics};
#[cfg(feature = "memory")]
use tracing::warn;

#[cfg(feature = "memory")]
use super::family::DriverFamily;
use crate::base::config::TimeSpan;
use crate::base::metrics::{Metrics, PrefixFigures};
use crate::observe::state::BackgroundWork;

/// The handler `prefix_ip`: addresses for pods from prefixes on the network interface of their node.
///
/// The targets of the pools are in the `ConfigMap` `amazon-vpc-cni` of the namespace `kube-system`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct PrefixIpOptions {
    /// The label of the nodes whose pods get addresses, as `key=value`.
    #[schemars(length(min = 3))]
    node_label: String,
    /// The time after which the address of a pod that has ended may be used by another pod. It gives other nodes the time to forget the
    /// old pod.
    cool_down: TimeSpan,
    /// The interval at which the interfaces of all nodes are read and compared with what is known of them.
    #[schemars(extend("x-minimum" = "10s"))]
    resync_interval: TimeSpan,
}

impl Default for PrefixIpOptions {
    fn default() -> Self {
        Self {
            node_label: "kubernetes.io/os=windows".to_owned(),
            cool_down: TimeSpan::from_secs(30),
            resync_interval: TimeSpan::from_secs(10 * 60),
        }
    }
}

/// Registers the handler `prefix_ip`, its section, and the driver `memory` of prefixes.
pub(super) fn register(registry: &mut Registry) {
    registry.section::<PrefixIpOptions>(HANDLER);
    registry.handler(HANDLER, "Gives pods addresses from prefixes on their node's interface.", prefix_ip);
    #[cfg(feature = "memory")]
    memory(registry, OnceLock::new());
}

/// Registers the driver `memory` on simulated interfaces that the caller can inspect and change, and makes it the default driver.
#[cfg(feature = "memory")]
pub fn interfaces(registry: &mut Registry, cloud: &Arc<MemoryPrefixes>) {
    memory(registry, Arc::clone(cloud).into());
    "memory".clone_into(&mut registry.driver_trait_mut::<dyn PrefixProvider>().default);
}

/// Registers the driver `memory` on the simulated interfaces in `cloud` or, if that is empty, on those that the section `[memory]`
/// describes. They outlive a leadership term, as real ones do.
#[cfg(feature = "memory")]
fn memory(registry: &mut Registry, cloud: OnceLock<Arc<MemoryPrefixes>>) {
    registry.driver::<dyn PrefixProvider>("memory", "Simulated, within the process.", move |setup| {
        DriverFamily::Simulated.select(setup)?;
        let options: MemoryOptions = setup.section("memory")?;
        let cloud = cloud.get_or_init(|| {
            warn!("simulated interfaces are in use: the addresses in the annotations of pods do not exist");
            Arc::new(MemoryPrefixes::of_options(&options))
        });
        Ok(Arc::clone(cloud) as _)
    });
}

/// Creates the handler `prefix_ip` with an empty table of nodes, which belongs to one leadership term. As long as the table exists, metrics
/// and `staffetta explain` read it.
fn prefix_ip(setup: &Setup) -> Result<Registration, SetupError> {
    let options: PrefixIpOptions = setup.section(HANDLER)?;
    let label = node_label(&options.node_label).map_err(|error| SetupError::Invalid(error.to_string()))?;
    let table = Arc::new(NodeTable::new(options.cool_down.into()));
    let cluster = Arc::new(WatchedCluster::new(label, Arc::clone(&table)));
    let (nodes, watched) = (Arc::downgrade(&table), Arc::downgrade(&cluster));
    setup.shared(|| Ok(Metrics::default()))?.prefixes.set_source(move || figures(&nodes, &watched));
    let nodes = Arc::downgrade(&table);
    let failed_requests = move |node: &str| nodes.upgrade().map(|nodes| nodes.failed_requests(node));
    let background = setup.shared(|| Ok(BackgroundWork::default()))?;
    background.report(HANDLER, "Node", move |node| failed_requests(node).unwrap_or_default());
    let provider = setup.driver::<dyn PrefixProvider>()?;
    let handler = PrefixIpHandler::new(setup.client(), provider, cluster, table, setup.recorder.clone());
    let handler = if setup.plan.is_some() { handler.dry_run() } else { handler };
    Ok(handler.registration(options.resync_interval.into()).erase())
}

/// Returns the figures of the table of nodes and of the cluster; those of what no longer exists are 0.
fn figures(nodes: &Weak<NodeTable>, cluster: &Weak<WatchedCluster>) -> PrefixFigures {
    let waiting = cluster.upgrade().map_or(0, |cluster| cluster.waiting.count());
    let metrics = nodes.upgrade().map(|nodes| nodes.metrics()).unwrap_or_default();
    let NodeTableMetrics { nodes, blocks: [prefixes, addresses], used, free, cooling, exhausted_subnets } =
        metrics;
    PrefixFigures { nodes, prefixes, addresses, used, free, cooling, waiting, exhausted_subnets }
}
