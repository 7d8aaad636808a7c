//! Every metric by its name: what it says, and by which labels its series are told apart.
//!
//! The unit is the end of the name. `docs/metrics.md` says the same to people; a test compares them.

/// A metric with all its series.
#[derive(Debug)]
pub(super) struct Family {
    /// The name, as a query says it; that of a histogram without `_bucket`, `_count` and `_sum`.
    pub(super) name: &'static str,
    /// What kind of figure it is.
    pub(super) form: Form,
    /// What tells its series apart.
    pub(super) labels: &'static [&'static str],
    /// What it says, in one sentence without its full stop.
    pub(super) help: &'static str,
}

/// What kind of figure a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// It only grows, from 0 at the start of the process.
    Counter,
    /// It is as it is at this moment.
    Gauge,
    /// How often something took at most so long.
    Histogram,
    /// It is 1; its labels are what it says.
    Info,
}

/// The label `handler`: an enabled handler by its name.
const HANDLER: &str = "handler";
/// The label `name`: the same, where others have given the metric its name.
const NAME: &str = "name";
/// The label `kind`: a watched kind, such as `Pod`.
const KIND: &str = "kind";
/// The label `pool`: a pool of VIFs that keeps some ready, by the name of its driver.
const POOL: &str = "pool";
/// The label `host`: the API server, as `host:port`.
const HOST: &str = "host";

macro_rules! families {
    ($($constant:ident = $form:ident $name:literal [$($label:expr),*] $help:literal;)*) => {
        $(pub(super) static $constant: Family =
            Family { name: $name, form: Form::$form, labels: &[$($label),*], help: $help };)*

        /// All of them.
        #[cfg(test)]
        pub(super) static ALL: &[&Family] = &[$(&$constant),*];
    };
}

families! {
    BUILD_INFO = Info "staffetta_build_info" ["version"]
        "Which version runs";
    READY = Gauge "staffetta_ready" []
        "Whether the program is ready: 1, or 0 while something waits that `/readyz?verbose` names";
    EVENTS_RECEIVED = Counter "staffetta_events_received_total" [KIND, "change"]
        "What the watches said happened to objects, once for each object, however many handlers want it";
    OBJECTS = Gauge "staffetta_objects" [HANDLER, "phase"]
        "Events that a handler has not handled yet, by what they do or wait for";
    FAILURES = Counter "staffetta_failures_total" [HANDLER, "outcome"]
        "Attempts of a handler that failed, by how: an error that may pass, one that will not, a panic, or no answer in time";
    QUEUE_OVERFLOWS = Counter "staffetta_queue_overflows_total" [HANDLER]
        "Waiting changes that a full queue replaced by newer ones although coalescing is switched off";
    SWEEPS = Counter "staffetta_sweeps_total" [HANDLER, "outcome"]
        "Sweeps for what no object owns any more";
    SWEEP_LAST_SUCCESS = Gauge "staffetta_sweep_last_success_timestamp_seconds" [HANDLER]
        "When the last sweep succeeded, in seconds since 1970; 0 before the first";
    SWEEP_ORPHANS = Counter "staffetta_sweep_orphans_total" [HANDLER]
        "Owners that a sweep found to be gone, and whose things it hands to the handler to be released";
    VIF_POOL_VIFS = Gauge "staffetta_vif_pool_vifs" [POOL, "state"]
        "VIFs of a pool, by how they are";
    VIF_POOL_WAITING = Gauge "staffetta_vif_pool_waiting" [POOL]
        "Pods that wait until the pool has made a VIF for them";
    VIF_POOL_HAND_OUTS = Counter "staffetta_vif_pool_hand_outs_total" [POOL, "source"]
        "VIFs that a pool handed out, by whether the pod had to wait";
    VIF_POOL_REFILLS = Counter "staffetta_vif_pool_refills_total" [POOL, "outcome"]
        "Attempts of a pool to make VIFs, by whether they brought all that were ordered";
    VIF_POOL_CONFLICTS = Counter "staffetta_vif_pool_conflicts_total" [POOL]
        "VIFs that two pods show, or that do not exist though a pod shows them";
    VIRTUAL_NODES = Gauge "staffetta_virtual_nodes" [HANDLER, "state"]
        "Nodes for which other machines stand, by how these are";
    VIRTUAL_NODE_PODS = Gauge "staffetta_virtual_node_pods" [HANDLER, "phase"]
        "Pods on such nodes, by their phase";
    VIRTUAL_NODE_READS = Counter "staffetta_virtual_node_reads_total" [HANDLER, "outcome"]
        "Reads of such machines, by what came of them";
    KUBELET_REQUESTS = Counter "staffetta_kubelet_requests_total" [HANDLER, "request", "outcome"]
        "Requests to the kubelet APIs of such nodes, by what was asked for and what was answered";
    WATCHED_OBJECTS = Gauge "staffetta_watched_objects" [KIND]
        "Objects that exist, as far as the watch has said";
    UNDECODABLE_OBJECTS = Gauge "staffetta_undecodable_objects" [KIND]
        "Objects that exist and cannot be decoded, so that no handler gets to see them";
    LISTS = Counter "staffetta_lists_total" [KIND]
        "Lists of all objects that were read to their end: one at the start, one after each gap in the watch";
    WATCH_ERRORS = Counter "staffetta_watch_errors_total" [KIND]
        "Errors of lists and watches";
    WATCH_SILENCE = Gauge "staffetta_watch_silence_seconds" [KIND]
        "How long the API server has said nothing in the watch, no bookmark either";
    WORKQUEUE_ADDS = Counter "workqueue_adds_total" [NAME]
        "Events that the queues of a handler took in";
    WORKQUEUE_DEPTH = Gauge "workqueue_depth" [NAME]
        "Events that wait for their turn";
    WORKQUEUE_QUEUE_DURATION = Histogram "workqueue_queue_duration_seconds" [NAME]
        "How long events waited for their turn";
    WORKQUEUE_WORK_DURATION = Histogram "workqueue_work_duration_seconds" [NAME]
        "How long an attempt of a handler took";
    WORKQUEUE_RETRIES = Counter "workqueue_retries_total" [NAME]
        "Attempts that failed for a passing reason, and are followed by another";
    WORKQUEUE_UNFINISHED = Gauge "workqueue_unfinished_work_seconds" [NAME]
        "How long the attempts that run now have run, all together";
    WORKQUEUE_LONGEST = Gauge "workqueue_longest_running_processor_seconds" [NAME]
        "How long the attempt that has run the longest has run";
    REST_CLIENT_REQUESTS = Counter "rest_client_requests_total" ["code", "method", HOST]
        "Requests to the API server, by the code of the answer; `<error>` where there was none, `<other>` for a code that is rare";
    REST_CLIENT_DURATION = Histogram "rest_client_request_duration_seconds" ["verb", HOST]
        "How long requests to the API server took until their answer was read, watches until it began";
    OPENSTACK_REQUESTS = Counter "staffetta_openstack_requests_total" ["service", "method", "outcome"]
        "Requests to OpenStack, by the service and by what came of them; `throttled` is 429 or 503, `unanswered` no answer at all";
    OPENSTACK_DURATION = Histogram "staffetta_openstack_request_duration_seconds" ["service", "method"]
        "How long requests to OpenStack took until their answer was read";
    LEADER_STATUS = Gauge "leader_election_master_status" [NAME]
        "Whether this process is the one that works: 1, or 0 for a standby";
    LEADER_SLOWPATH = Counter "leader_election_slowpath_total" [NAME]
        "How often the leader had to read its lease before it could renew it";
    LEADERSHIP_LOSSES = Counter "staffetta_leadership_losses_total" [NAME]
        "How often this process led and lost the lease, after which it stands by again";
    KUBERNETES_EVENTS = Counter "staffetta_kubernetes_events_total" ["outcome"]
        "Kubernetes Events by which failures are told at their objects";
    PROCESS_CPU = Counter "process_cpu_seconds_total" []
        "Time that this process has spent on the processors";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" []
        "Memory of this process that is in RAM";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" []
        "Memory of this process, whether it is in RAM or not";
    PROCESS_OPEN_FDS = Gauge "process_open_fds" []
        "Open files and connections of this process";
    PROCESS_MAX_FDS = Gauge "process_max_fds" []
        "How many of them it may have";
    PROCESS_THREADS = Gauge "process_threads" []
        "Threads of this process";
    PROCESS_START_TIME = Gauge "process_start_time_seconds" []
        "When this process started, in seconds since 1970";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn every_metric_is_in_the_documents_and_nothing_else_is() {
        let mut wanted = BTreeSet::new();
        for Family { name, form, labels, help } in ALL {
            let form = format!("{form:?}").to_lowercase();
            let mut row = format!("| `{name}` | {form} | ");
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = write!(row, "{} | {help} |", labels.join(", "));
            wanted.insert(row);
        }
        let document = include_str!("../../docs/metrics.md");
        let found: BTreeSet<_> =
            document.lines().filter(|line| line.starts_with("| `")).map(str::to_owned).collect();
        let difference: Vec<_> = wanted.symmetric_difference(&found).collect();
        assert!(difference.is_empty(), "docs/metrics.md and the program differ: {difference:#?}");
    }

    #[test]
    fn names_are_unique_and_say_their_form_and_unit() {
        let names: BTreeSet<_> = ALL.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), ALL.len());
        for Family { name, form, help, .. } in ALL {
            assert_eq!(name.ends_with("_total"), *form == Form::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *form == Form::Info, "{name}");
            assert!(*form != Form::Histogram || name.ends_with("_seconds"), "{name}");
            assert!(!help.ends_with('.') && !help.contains(['\n', '\\', '"', '|']), "{name}: {help}");
        }
    }
}
