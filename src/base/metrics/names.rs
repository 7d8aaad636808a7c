//! The description of every metric: name, kind, labels and help text.
//!
//! The unit is the last word of a name. `docs/metrics.md` lists the same descriptions; a test compares them.

/// The name, kind, labels and help text of one metric.
#[derive(Debug)]
pub(crate) struct MetricDescription {
    /// The name of the metric in queries. For a histogram, it excludes `_bucket`, `_count` and `_sum`.
    pub(super) name: &'static str,
    /// The kind of the metric.
    pub(super) kind: MetricKind,
    /// The names of the metric's labels.
    pub(super) labels: &'static [&'static str],
    /// The help text: one sentence without its full stop.
    pub(super) help: &'static str,
}

/// The kind of a metric, as OpenMetrics defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// A total that only increases. It begins at 0 when the process starts or, if it is counted by a watch or queue, when a leadership
    /// term of the process begins.
    Counter,
    /// A current value.
    Gauge,
    /// A distribution of durations.
    Histogram,
    /// Text in labels; the value is always 1.
    Info,
}

/// The label with the name of an enabled handler.
const HANDLER: &str = "handler";
/// The label with the name of a handler or of the lease, in metrics that have the same names in other Kubernetes controllers.
const NAME: &str = "name";
/// The label with a watched kind, such as `Pod`.
const KIND: &str = "kind";
/// The label with the driver name of a VIF pool.
const POOL: &str = "pool";
/// The label with the API server, as `host:port`.
const HOST: &str = "host";
/// The label with the name of a tunnel to bases.
const TUNNEL: &str = "tunnel";
/// The label with the operation on a module of a base: `start` or `stop`.
const ACTION: &str = "action";

/// Defines a static [`MetricDescription`] for each entry `CONSTANT = Kind "name" [labels] "help";`.
macro_rules! descriptions {
    ($($constant:ident = $kind:ident $name:literal [$($label:expr),*] $help:literal;)*) => {
        $(pub(crate) static $constant: MetricDescription =
            MetricDescription { name: $name, kind: MetricKind::$kind, labels: &[$($label),*], help: $help };)*

        /// All descriptions of this file, for the check against `docs/metrics.md`.
        #[cfg(test)]
        static ALL: &[&MetricDescription] = &[$(&$constant),*];
    };
}

descriptions! {
    BUILD_INFO = Info "staffetta_build_info" ["version"]
        "The running version";
    READY = Gauge "staffetta_ready" []
        "1 if the process is ready, otherwise 0; `/readyz?verbose` names the unmet conditions";
    EVENTS_RECEIVED = Counter "staffetta_events_received_total" [KIND, "change"]
        "Object changes delivered by the watches, each counted once for all handlers";
    OBJECTS = Gauge "staffetta_objects" [HANDLER, "phase"]
        "Events that a handler has not completed yet, by phase";
    FAILING_OBJECTS = Gauge "staffetta_failing_objects" [HANDLER]
        "Objects that a handler has failed to handle for more than a minute";
    FAILURES = Counter "staffetta_failures_total" [HANDLER, "outcome"]
        "Failed attempts of a handler: transient error, permanent error, panic or timeout";
    GARBAGE_COLLECTIONS = Counter "staffetta_garbage_collections_total" [HANDLER, "outcome"]
        "Garbage collections of resources whose owner no longer exists";
    GARBAGE_COLLECTION_LAST_SUCCESS = Gauge "staffetta_garbage_collection_last_success_timestamp_seconds" [HANDLER]
        "Time of the last successful garbage collection, in seconds since 1970; 0 before the first";
    GARBAGE_COLLECTION_ORPHANS = Counter "staffetta_garbage_collection_orphans_total" [HANDLER]
        "Owners that a garbage collection found to be gone; the handler releases their resources";
    VIF_POOL_VIFS = Gauge "staffetta_vif_pool_vifs" [POOL, "state"]
        "VIFs of a pool, by state";
    VIF_POOL_WAITING = Gauge "staffetta_vif_pool_waiting" [POOL]
        "Pods that wait for the pool to create a VIF";
    VIF_POOL_HAND_OUTS = Counter "staffetta_vif_pool_hand_outs_total" [POOL, "source"]
        "VIFs that a pool handed out, at once or after a wait";
    VIF_POOL_REFILLS = Counter "staffetta_vif_pool_refills_total" [POOL, "outcome"]
        "Attempts of a pool to create VIFs, by whether they created all that were requested";
    VIF_POOL_CONFLICTS = Counter "staffetta_vif_pool_conflicts_total" [POOL]
        "VIFs that the annotations of two pods name, or that an annotation names and that do not exist";
    PREFIX_NODES = Gauge "staffetta_prefix_nodes" []
        "Nodes whose pods get addresses from blocks on the node's network interface";
    PREFIX_BLOCKS = Gauge "staffetta_prefix_blocks" ["block"]
        "Prefixes and single addresses on the network interfaces of these nodes";
    PREFIX_ADDRESSES = Gauge "staffetta_prefix_addresses" ["state"]
        "Addresses in these blocks, by state";
    PREFIX_WAITING = Gauge "staffetta_prefix_waiting" []
        "Pods that wait for an address of their node";
    PREFIX_EXHAUSTED_SUBNETS = Gauge "staffetta_prefix_exhausted_subnets" []
        "Subnets of nodes that had no free block of addresses when one was requested last";
    WEBHOOK_DURATION = Histogram "staffetta_webhook_request_duration_seconds" ["outcome"]
        "Time until the webhook had answered a request of an API server, by outcome";
    WEBHOOK_CERTIFICATE_EXPIRY = Gauge "staffetta_webhook_certificate_expiry_timestamp_seconds" []
        "Time at which the certificate of the webhook expires, in seconds since 1970; 0 without one";
    VIRTUAL_NODES = Gauge "staffetta_virtual_nodes" [HANDLER, "state"]
        "Virtual nodes, by the state of the machine behind them";
    VIRTUAL_NODE_PODS = Gauge "staffetta_virtual_node_pods" [HANDLER, "phase"]
        "Pods on virtual nodes, by phase";
    VIRTUAL_NODE_READS = Counter "staffetta_virtual_node_reads_total" [HANDLER, "outcome"]
        "Reads of the state of machines behind virtual nodes, by outcome";
    VIRTUAL_NODE_LEASES = Counter "staffetta_virtual_node_leases_total" [HANDLER, "change"]
        "Leases of virtual nodes that this replica has taken, given up or lost";
    KUBELET_REQUESTS = Counter "staffetta_kubelet_requests_total" [HANDLER, "request", "outcome"]
        "Requests to the kubelet APIs of virtual nodes, by request and outcome";
    MODULE_OPERATIONS = Counter "staffetta_module_operations_total" [TUNNEL, ACTION, "outcome"]
        "Requests to load, activate or unload a module of a base that ended, by outcome";
    MODULE_OPERATION_DURATION = Histogram "staffetta_module_operation_duration_seconds" [TUNNEL, ACTION]
        "Time from the decision to load, activate or unload a module until the request ended";
    MODULE_OPERATIONS_UNDER_WAY = Gauge "staffetta_module_operations_under_way" [TUNNEL, ACTION]
        "Requests to load, activate or unload a module that have not ended";
    MODULE_OPERATIONS_STUCK = Gauge "staffetta_module_operations_stuck" [TUNNEL, ACTION]
        "Requests to load, activate or unload a module that have not ended for a minute";
    TUNNEL_CONNECTED = Gauge "staffetta_tunnel_connected" [TUNNEL]
        "1 while the tunnel can receive reports of bases";
    TUNNEL_DROPPED_REPORTS = Counter "staffetta_tunnel_dropped_reports_total" [TUNNEL]
        "Reports of bases that the tunnel dropped: invalid, late, not about their sender, or above a limit";
    WATCHED_OBJECTS = Gauge "staffetta_watched_objects" [KIND]
        "Objects that exist according to the watch";
    UNDECODABLE_OBJECTS = Gauge "staffetta_undecodable_objects" [KIND]
        "Objects that exist and cannot be decoded; no handler receives them";
    LISTS = Counter "staffetta_lists_total" [KIND]
        "Complete lists of all objects: one at start, one after each gap in the watch";
    WATCH_ERRORS = Counter "staffetta_watch_errors_total" [KIND]
        "Failed lists and watches";
    WATCH_IDLE = Gauge "staffetta_watch_idle_seconds" [KIND]
        "Time since the API server last sent anything in the watch, including bookmarks";
    WORKQUEUE_ADDS = Counter "workqueue_adds_total" [NAME]
        "Events added to the queues of a handler";
    WORKQUEUE_DEPTH = Gauge "workqueue_depth" [NAME]
        "Events that wait in the queues of a handler";
    WORKQUEUE_QUEUE_DURATION = Histogram "workqueue_queue_duration_seconds" [NAME]
        "Time that events waited in the queues of a handler";
    WORKQUEUE_WORK_DURATION = Histogram "workqueue_work_duration_seconds" [NAME]
        "Duration of the attempts of a handler";
    WORKQUEUE_RETRIES = Counter "workqueue_retries_total" [NAME]
        "Attempts that failed with a transient error and are repeated";
    RAISED_DELAYS = Counter "staffetta_raised_delays_total" [HANDLER]
        "Delays of less than 10 ms that a handler or its error asked for, and that were raised to 10 ms";
    WORKQUEUE_UNFINISHED = Gauge "workqueue_unfinished_work_seconds" [NAME]
        "Sum of the running times of the current attempts";
    WORKQUEUE_LONGEST = Gauge "workqueue_longest_running_processor_seconds" [NAME]
        "Running time of the current attempt that began first";
    REST_CLIENT_REQUESTS = Counter "rest_client_requests_total" ["code", "method", HOST]
        "Requests to the API server by status code; `<error>` without a response, `<other>` for a rare code";
    REST_CLIENT_DURATION = Histogram "rest_client_request_duration_seconds" ["verb", HOST]
        "Time until the response of the API server was read; of a watch until it began";
    OPENSTACK_REQUESTS = Counter "staffetta_openstack_requests_total" ["service", "method", "outcome"]
        "Requests to OpenStack; `throttled` is 429 or 503, `unanswered` means no response";
    OPENSTACK_DURATION = Histogram "staffetta_openstack_request_duration_seconds" ["service", "method"]
        "Time until the response of an OpenStack service was read";
    EC2_REQUESTS = Counter "staffetta_ec2_requests_total" ["action", "outcome"]
        "Requests to EC2; `throttled` is 429 or 503, `unanswered` means no response";
    CNI_DURATION = Histogram "staffetta_cni_request_duration_seconds" ["command", "error"]
        "Time of a command of the CNI plugin in the daemon on the node; `error` is `none` for success";
    LEADER_STATUS = Gauge "leader_election_master_status" [NAME]
        "1 if this process leads, 0 if it stands by";
    LEADER_SLOWPATH = Counter "leader_election_slowpath_total" [NAME]
        "Renewals for which the leader had to read its lease first";
    LEADERSHIP_LOSSES = Counter "staffetta_leadership_losses_total" [NAME]
        "Times that this process led and lost the lease";
    KUBERNETES_EVENTS = Counter "staffetta_kubernetes_events_total" ["outcome"]
        "Kubernetes Events that report failures at the affected objects";
    PROCESS_CPU = Counter "process_cpu_seconds_total" []
        "CPU time used by this process";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" []
        "Resident memory of this process";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Virtual memory of this process";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" []
        "Open file descriptors of this process";
    PROCESS_MAX_FDS = Gauge "process_max_fds" []
        "The limit of open file descriptors";
    PROCESS_THREADS = Gauge "process_threads" []
        "Threads of this process";
    PROCESS_START_TIME = Gauge "process_start_time_seconds" []
        "Start time of this process, in seconds since 1970";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn the_documentation_lists_every_metric_and_no_other() {
        let mut wanted = BTreeSet::new();
        for MetricDescription { name, kind, labels, help } in ALL {
            let kind = format!("{kind:?}").to_lowercase();
            let mut row = format!("| `{name}` | {kind} | ");
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = write!(row, "{} | {help} |", labels.join(", "));
            wanted.insert(row);
        }
        let document = include_str!("../../../docs/metrics.md");
        let found: BTreeSet<_> =
            document.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
        let difference: Vec<_> = wanted.symmetric_difference(&found).collect();
        assert!(difference.is_empty(), "docs/metrics.md and the program differ: {difference:#?}");
    }

    #[test]
    fn names_are_unique_and_end_with_their_kind_and_unit() {
        let names: BTreeSet<_> = ALL.iter().map(|description| description.name).collect();
        assert_eq!(names.len(), ALL.len());
        for MetricDescription { name, kind, help, .. } in ALL {
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == MetricKind::Info, "{name}");
            assert!(*kind != MetricKind::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(!help.ends_with('.') && !help.contains(['\n', '\\', '"', '|']), "{name}: {help}");
        }
    }
}
