//! Metrics of the tunnels to Koupleless bases (over HTTP or MQTT), and of the requests to load and unload the modules of these bases.

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;
use staffetta_driver::tunnel::Tunnel;
use staffetta_virtual_node::vnode::ContainerAction;
use staffetta_virtual_node::vnode::tracker::{
    EndedOperation, OperationOutcome, OperationTracker, action_name,
};

use super::family::{MetricFamily, MetricsPage, histogram};
use super::names;

/// The metrics of the tunnels of the handler `vnode`, and of its requests to start (load) and stop (unload) modules of Koupleless bases.
pub(crate) struct OperationMetrics {
    ended: MetricFamily<Counter>,
    durations: MetricFamily<Histogram>,
    /// The tunnels, and the tracker of the operations in progress; empty before the handler starts.
    current: Mutex<(Tunnels, Option<OperationTracker>)>,
}

/// The tunnels of the handler `vnode`, each with its name.
type Tunnels = Vec<(String, Arc<dyn Tunnel>)>;

impl Default for OperationMetrics {
    fn default() -> Self {
        Self {
            ended: MetricFamily::new(&names::MODULE_OPERATIONS, Counter::default),
            durations: MetricFamily::new(&names::MODULE_OPERATION_DURATION, histogram),
            current: Mutex::default(),
        }
    }
}

/// The actions that operations on modules can have, for the label `action`.
const ACTIONS: [ContainerAction; 3] =
    [ContainerAction::Start, ContainerAction::Activate, ContainerAction::Stop];

impl OperationMetrics {
    /// Creates the series of `tunnels`. From now on, their state is read from `tunnels`, and the operations in progress from `tracker`.
    pub(crate) fn set_source(&self, tunnels: &Tunnels, tracker: &OperationTracker) {
        let names: Vec<_> = tunnels.iter().map(|(tunnel, _)| tunnel.as_str()).collect();
        let actions = ACTIONS.map(action_name);
        self.ended.create(&[&names, &actions, &OperationOutcome::ALL.map(OperationOutcome::name)]);
        self.durations.create(&[&names, &actions]);
        *self.current.lock() = (tunnels.clone(), Some(tracker.clone()));
    }

    /// Counts a request to load or unload a module that ended, by its outcome, and records its duration.
    pub(crate) fn count(&self, ended: &EndedOperation) {
        let (tunnel, action) = (&*ended.operation.tunnel, action_name(ended.operation.action));
        self.ended.with(&[tunnel, action, ended.outcome.name()]).inc();
        self.durations.with(&[tunnel, action]).observe(ended.took.as_secs_f64());
    }

    /// Adds the metrics of the tunnels and of the requests to load and unload modules to `page`.
    pub(super) fn show(&self, page: &mut MetricsPage) {
        page.family(&self.ended);
        page.family(&self.durations);
        let (tunnels, tracker) = self.current.lock().clone();
        let counts = tracker.as_ref().map(OperationTracker::under_way).unwrap_or_default();
        let series: Vec<_> =
            tunnels.iter().flat_map(|(tunnel, _)| ACTIONS.map(|action| (tunnel.as_str(), action))).collect();
        for (description, place) in
            [(&names::MODULE_OPERATIONS_UNDER_WAY, 0), (&names::MODULE_OPERATIONS_STUCK, 1)]
        {
            let samples = series.iter().map(|(tunnel, action)| {
                let found = counts.iter().find(|(of, what, _)| **of == **tunnel && what == action);
                ([*tunnel, action_name(*action)], found.map_or(0, |(_, _, counts)| counts[place]))
            });
            page.counts(description, samples);
        }
        let connected = tunnels
            .iter()
            .map(|(name, tunnel)| ([name.as_str()], u64::from(tunnel.ready() && tunnel.connected())));
        page.counts(&names::TUNNEL_CONNECTED, connected);
        let dropped = tunnels.iter().map(|(name, tunnel)| ([name.as_str()], tunnel.dropped_reports()));
        page.counts(&names::TUNNEL_DROPPED_REPORTS, dropped);
    }
}
