//! The metrics of the program, implemented with `prometheus-client`.
//!
//! Some metrics are updated by the code which they measure, in a `MetricFamily`. Others are read from the current state when `/metrics` is
//! requested: see `Metrics::page`.

mod family;
mod last_requests;
pub(crate) mod names;
#[cfg(feature = "vnode")]
mod operations;
#[cfg(feature = "network")]
mod pools;
mod prefixes;
#[cfg(feature = "process-metrics")]
mod process;
mod requests;
mod webhook;
mod workqueue;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use staffetta_handler::Failure;
#[cfg(feature = "virtual-nodes")]
use staffetta_virtual_node::{VirtualNodeMetrics, VirtualNodeMetricsRegistry};

pub(crate) use family::{MetricFamily, MetricsPage};
use family::{UnitGauge, histogram};
#[cfg(feature = "vnode")]
use operations::OperationMetrics;
#[cfg(feature = "network")]
use pools::PoolMetrics;
pub(crate) use prefixes::PrefixFigures;
use prefixes::PrefixMetrics;
#[cfg(feature = "process-metrics")]
use process::ProcessMetrics;
pub(crate) use requests::ApiRequestMetrics;
use requests::{CloudRequestMetrics, CniRequestMetrics, Ec2RequestMetrics};
pub(crate) use webhook::WebhookMetrics;
use workqueue::{FAILURE_OUTCOMES, WorkqueueMetrics, failure_outcome};

/// All metrics that are updated by the code which they measure, and the sources of the metrics of virtual nodes, VIF pools and the
/// addresses of nodes.
pub(crate) struct Metrics {
    /// The metrics of the requests to the API server.
    pub(crate) api_requests: Arc<ApiRequestMetrics>,
    /// The metrics of the requests to OpenStack.
    pub(crate) cloud_requests: Arc<CloudRequestMetrics>,
    /// The metrics of the requests to EC2.
    pub(crate) ec2_requests: Arc<Ec2RequestMetrics>,
    /// The metrics of the commands of the CNI plugin.
    pub(crate) cni_requests: CniRequestMetrics,
    /// The functions that read the metrics of the VIF pools, one for each pool.
    #[cfg(feature = "network")]
    pub(crate) pools: PoolMetrics,
    /// The metrics of the addresses on the network interfaces of nodes (handler `prefix_ip`).
    pub(crate) prefixes: PrefixMetrics,
    /// The metrics of the admission webhook.
    pub(crate) webhook: Arc<WebhookMetrics>,
    /// The metrics of virtual nodes, by handler.
    #[cfg(feature = "virtual-nodes")]
    pub(crate) virtual_nodes: VirtualNodeMetricsRegistry,
    /// The metrics of the requests to load and unload modules of Koupleless bases.
    #[cfg(feature = "vnode")]
    pub(crate) module_operations: OperationMetrics,
    #[cfg(feature = "process-metrics")]
    process: ProcessMetrics,
    /// The Event objects that this program writes to the API server, by the outcome of the write, and discarded occurrences.
    pub(crate) kubernetes_events: MetricFamily<Counter>,
    /// The failed invocations of each handler, by outcome.
    failures: MetricFamily<Counter>,
    /// The events that were added to the queues of each handler.
    adds: MetricFamily<Counter>,
    /// The transient failures of each handler that were followed by another attempt.
    retries: MetricFamily<Counter>,
    /// The delays that each handler asked for and that were raised to the shortest one.
    raised_delays: MetricFamily<Counter>,
    /// The times for which events waited in the queues of each handler.
    queue_duration: MetricFamily<Histogram>,
    /// The durations of the invocations of each handler.
    work_duration: MetricFamily<Histogram>,
    /// The number of invocations of each handler, for `/debug/state`. `/metrics` contains them as the count of `work_duration`.
    attempts: Family<String, Counter>,
    /// The garbage collections of each handler, by outcome.
    collections: MetricFamily<Counter>,
    /// The number of owners of external resources that the garbage collections of each handler found not to exist any more.
    collection_orphans: MetricFamily<Counter>,
    /// The time of the last successful garbage collection of each handler.
    last_collection: MetricFamily<UnitGauge>,
}

impl Default for Metrics {
    /// Creates metrics that no page shows, for a command without a controller.
    fn default() -> Self {
        Self::new("unknown", &[])
    }
}

impl Metrics {
    /// Creates the metrics of a process that runs `handlers` and uses the API server at `host` (`host:port`). The series whose label values
    /// are fixed or names of `handlers` are created with the value 0, except those of the CNI plugin.
    pub(crate) fn new(host: &str, handlers: &[String]) -> Self {
        let metrics = Self {
            api_requests: Arc::new(ApiRequestMetrics::new(host)),
            cloud_requests: Arc::default(),
            ec2_requests: Arc::default(),
            cni_requests: CniRequestMetrics::default(),
            #[cfg(feature = "network")]
            pools: PoolMetrics::default(),
            prefixes: PrefixMetrics::default(),
            webhook: Arc::default(),
            #[cfg(feature = "virtual-nodes")]
            virtual_nodes: VirtualNodeMetricsRegistry::default(),
            #[cfg(feature = "vnode")]
            module_operations: OperationMetrics::default(),
            #[cfg(feature = "process-metrics")]
            process: ProcessMetrics::default(),
            kubernetes_events: MetricFamily::new(&names::KUBERNETES_EVENTS, Counter::default),
            failures: MetricFamily::new(&names::FAILURES, Counter::default),
            adds: MetricFamily::new(&names::WORKQUEUE_ADDS, Counter::default),
            retries: MetricFamily::new(&names::WORKQUEUE_RETRIES, Counter::default),
            raised_delays: MetricFamily::new(&names::RAISED_DELAYS, Counter::default),
            queue_duration: MetricFamily::new(&names::WORKQUEUE_QUEUE_DURATION, histogram),
            work_duration: MetricFamily::new(&names::WORKQUEUE_WORK_DURATION, histogram),
            attempts: Family::default(),
            collections: MetricFamily::new(&names::GARBAGE_COLLECTIONS, Counter::default),
            collection_orphans: MetricFamily::new(&names::GARBAGE_COLLECTION_ORPHANS, Counter::default),
            last_collection: MetricFamily::new(&names::GARBAGE_COLLECTION_LAST_SUCCESS, UnitGauge::default),
        };
        metrics.kubernetes_events.create(&[&["created", "updated", "dropped", "refused", "failed"]]);
        for handler in handlers {
            metrics.workqueue(handler);
        }
        let handlers: Vec<_> = handlers.iter().map(String::as_str).collect();
        metrics.collections.create(&[&handlers, &["success", "failure"]]);
        metrics.collection_orphans.create(&[&handlers]);
        metrics.last_collection.create(&[&handlers]);
        metrics.failures.create(&[&handlers, &FAILURE_OUTCOMES]);
        metrics
    }

    /// Describes the last requests to the services of the driver whose readiness check has this name. Empty for a driver whose requests are
    /// not observed.
    pub(crate) fn last_requests(&self, driver: &str) -> Vec<String> {
        match driver {
            "openstack" => self.cloud_requests.last.describe(&["identity", "network"]),
            "octavia" => self.cloud_requests.last.describe(&["load-balancer"]),
            "ec2" => self.ec2_requests.last.describe(&["ec2"]),
            _ => Vec::new(),
        }
    }

    /// Returns the queue metrics of `handler`.
    pub(crate) fn workqueue(&self, handler: &str) -> WorkqueueMetrics {
        WorkqueueMetrics {
            adds: self.adds.with(&[handler]),
            retries: self.retries.with(&[handler]),
            raised_delays: self.raised_delays.with(&[handler]),
            queue_duration: self.queue_duration.with(&[handler]),
            work_duration: self.work_duration.with(&[handler]),
            attempts: self.attempts.get_or_create_owned(&handler.to_owned()),
        }
    }

    /// Returns the number of events that were queued for `handler` since the process started, and the number of its invocations.
    pub(crate) fn added_and_attempts(&self, handler: &str) -> (u64, u64) {
        let WorkqueueMetrics { adds, attempts, .. } = self.workqueue(handler);
        (adds.get(), attempts.get())
    }

    /// Counts a failed invocation of `handler` by outcome: transient or permanent error, panic or timeout.
    pub(crate) fn count_failure(&self, handler: &str, failure: &dyn Failure) {
        self.failures.with(&[handler, failure_outcome(failure)]).inc();
    }

    /// Counts a garbage collection of `handler`. `orphans` is the number of owners of external resources that no longer exist; `None` if
    /// the garbage collection failed.
    #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^52")]
    pub(crate) fn count_collection(&self, handler: &str, orphans: Option<usize>) {
        let outcome = if orphans.is_some() { "success" } else { "failure" };
        self.collections.with(&[handler, outcome]).inc();
        if let Some(orphans) = orphans {
            self.collection_orphans.with(&[handler]).inc_by(orphans as u64);
            self.last_collection.with(&[handler]).set(Timestamp::now().as_millisecond() as f64 / 1000.0);
        }
    }

    /// Returns all metrics in the text format of OpenMetrics 1.0. `show` adds the metrics that are read from the state of the
    /// controller. Fails if a metric cannot be formatted.
    pub(crate) fn page(&self, show: impl FnOnce(&mut MetricsPage)) -> Result<String, fmt::Error> {
        let mut page = MetricsPage::default();
        page.add(&names::BUILD_INFO, Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]));
        show(&mut page);
        let counters = [
            &self.kubernetes_events,
            &self.failures,
            &self.adds,
            &self.retries,
            &self.raised_delays,
            &self.collections,
            &self.collection_orphans,
            &self.api_requests.requests,
            &self.cloud_requests.requests,
            &self.ec2_requests.requests,
        ];
        for counter in counters {
            page.family(counter);
        }
        let histograms = [
            &self.queue_duration,
            &self.work_duration,
            &self.api_requests.durations,
            &self.cloud_requests.durations,
            &self.cni_requests.0,
        ];
        for durations in histograms {
            page.family(durations);
        }
        page.family(&self.last_collection);
        #[cfg(feature = "network")]
        self.pools.show(&mut page);
        #[cfg(feature = "prefix-ip")]
        self.prefixes.show(&mut page);
        #[cfg(feature = "webhook")]
        self.webhook.show(&mut page);
        #[cfg(feature = "virtual-nodes")]
        self.show_virtual_nodes(&mut page);
        #[cfg(feature = "vnode")]
        self.module_operations.show(&mut page);
        #[cfg(feature = "process-metrics")]
        self.process.show(&mut page);
        page.encode()
    }

    /// Adds the metrics of all handlers of virtual nodes to `page`.
    #[cfg(feature = "virtual-nodes")]
    fn show_virtual_nodes(&self, page: &mut MetricsPage) {
        let figures = self.virtual_nodes.values();
        let mut counts = |description, counts_of: fn(&VirtualNodeMetrics) -> &[(&'static str, u64)]| {
            let samples = figures.iter().flat_map(|(handler, of)| {
                counts_of(of).iter().map(|(value, count)| ([*handler, *value], *count))
            });
            page.counts(description, samples);
        };
        counts(&names::VIRTUAL_NODES, |of| &of.nodes);
        counts(&names::VIRTUAL_NODE_PODS, |of| &of.pods);
        counts(&names::VIRTUAL_NODE_READS, |of| &of.reads);
        counts(&names::VIRTUAL_NODE_LEASES, |of| &of.lease_changes);
        let requests = figures.iter().flat_map(|(handler, of)| {
            of.kubelet_requests.iter().map(|(request, outcome, count)| ([*handler, request, outcome], *count))
        });
        page.counts(&names::KUBELET_REQUESTS, requests);
    }
}
