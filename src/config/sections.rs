//! The sections that the program itself needs. Their doc comments become the comments of the sample.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_handler::Registry;

use super::span::Span;

/// Adds the sections that the program itself needs.
pub fn register(registry: &mut Registry) {
    registry.section::<Kubernetes>("kubernetes");
    registry.section::<Relay>("relay");
    registry.section::<LeaderElection>("leader_election");
    registry.section::<Events>("events");
    registry.section::<Admin>("admin");
    registry.section::<Log>("log");
    registry.section::<Shutdown>("shutdown");
}

/// What the program does in the cluster, and which driver does it.
///
/// Each driver trait that the program has adds an option `<trait>_driver` here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Kubernetes {
    /// The handlers that are switched on. An event is handed to them in this order.
    #[schemars(extend("uniqueItems" = true))]
    pub enabled_handlers: Vec<String>,
    /// The name of this cluster. It stands on everything that is made outside of it, so that what was forgotten can be
    /// found again: two clusters that share an OpenStack need two names, and the name must not change while anything
    /// made under it exists.
    #[schemars(length(min = 1, max = 32), extend("format" = "dns-label"))]
    pub cluster_id: String,
    /// The kubeconfig by which the API server is reached. Without it: the service account inside a pod, elsewhere
    /// `$KUBECONFIG` or `~/.kube/config`.
    #[schemars(length(min = 1), example = "/etc/staffetta/kubeconfig")]
    pub kubeconfig: Option<PathBuf>,
    /// Whether a port carries the name of its pod outside, for people who look there. What is kept ready in a pool has
    /// the name of none.
    pub port_debug: bool,
    /// Which provider of Octavia serves load balancers, by its name there: `amphora`, `ovn` ... `default` is the cloud's own
    /// choice.
    #[schemars(length(min = 1, max = 64))]
    pub endpoints_driver_octavia_provider: String,
    /// A watch goes on in a new request after this time. One whose connection died without a word is found to be dead 5 s
    /// later.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "294s"))]
    pub watch_timeout: Span,
}

impl Default for Kubernetes {
    fn default() -> Self {
        Self {
            enabled_handlers: ["vif", "lb", "lbaasspec"].map(str::to_owned).to_vec(),
            cluster_id: "kubernetes".to_owned(),
            kubeconfig: None,
            port_debug: false,
            endpoints_driver_octavia_provider: "default".to_owned(),
            watch_timeout: Span::from_secs(60),
        }
    }
}

/// How events reach their handlers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Relay {
    /// How many events each handler works on at a time.
    pub max_concurrency: NonZeroUsize,
    /// How long one attempt of a handler may take before it counts as failed. It bounds a driver that hangs.
    #[schemars(extend("x-minimum" = "1ms"))]
    pub handler_timeout: Span,
    /// The wait before the first repetition of an attempt that failed but may succeed later. It doubles with each
    /// repetition, and is varied a little so that many do not come at once.
    #[schemars(extend("x-minimum" = "1ms"))]
    pub retry_interval: Span,
    /// The longest wait between two repetitions. Not less than `retry_interval`.
    #[schemars(extend("x-minimum" = "1ms"))]
    pub retry_max_interval: Span,
    /// For how long an event is repeated before it counts as failed; `failed_resync` then takes it up.
    pub retry_timeout: Span,
    /// Whether a waiting change of an object may be replaced by a newer one. Switched off, handlers see every event, as
    /// long as no more than `queue_depth` wait.
    pub coalesce: bool,
    /// How many events of one ordering key (an object, a Service) may wait with `coalesce = false`. Past that, changes
    /// are replaced by newer ones.
    pub queue_depth: NonZeroUsize,
    /// After how long an event that failed for good is handled again. It doubles with each failure in a row, and is varied
    /// by up to a tenth so that many do not come at once.
    #[schemars(extend("x-minimum" = "1s"))]
    pub failed_resync: Span,
    /// The longest time until a failed event is handled again. Not less than `failed_resync`.
    #[schemars(extend("x-minimum" = "1s"))]
    pub failed_resync_max: Span,
    /// How many objects may wait before the next page of a first list is asked for. It bounds the memory of a start in
    /// a large cluster.
    pub first_list_backlog: NonZeroUsize,
    /// The time between two sweeps, which look by ownership mark for what nobody needs any more.
    #[schemars(extend("x-minimum" = "1s"))]
    pub sweep_interval: Span,
    /// How many threads do all of this. The program waits most of the time, and one thread takes thousands of events a second;
    /// more of them answer no sooner, and cost time by handing things to each other. They pay where one is always busy.
    #[schemars(range(min = 1, max = 64))]
    pub worker_threads: NonZeroUsize,
}

impl Default for Relay {
    fn default() -> Self {
        let count = |number| NonZeroUsize::new(number).expect("the defaults are not zero");
        Self {
            max_concurrency: count(16),
            handler_timeout: Span::from_secs(60),
            retry_interval: Span::from_secs(1),
            retry_max_interval: Span::from_secs(60),
            retry_timeout: Span::from_secs(500),
            coalesce: true,
            queue_depth: count(100),
            failed_resync: Span::from_secs(60),
            failed_resync_max: Span::from_secs(15 * 60),
            first_list_backlog: count(1000),
            sweep_interval: Span::from_secs(10 * 60),
            worker_threads: count(1),
        }
    }
}

/// Which of several programs that run side by side works. The others stand by and write nothing.
///
/// They agree by a `Lease` of `coordination.k8s.io/v1`, which the one that works renews.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeaderElection {
    /// Whether there is an election. Switched off, the program works at once, and must be the only one of its
    /// `kubernetes.cluster_id`: one that follows another must not begin before what that one has sent has arrived. A
    /// port of a pod that arrives later is its second one; a sweep finds it, and the next sweep removes it.
    pub enabled: bool,
    /// The name of the lease. Programs with the same one stand by for each other.
    #[schemars(length(min = 1, max = 63), extend("format" = "dns-label"))]
    pub lease_name: String,
    /// The namespace of the lease. Without it: the namespace of the service account inside a pod, elsewhere that of
    /// the kubeconfig's context.
    #[schemars(length(min = 1, max = 63), extend("format" = "dns-label"), example = "kube-system")]
    pub namespace: Option<String>,
    /// How long the others wait after the last sign of life of the one that works. The lease says it in whole seconds,
    /// rounded up.
    #[schemars(extend("x-minimum" = "1s"))]
    pub lease_duration: Span,
    /// How long the one that works goes on without having renewed the lease; then it stands by again. Less than
    /// `lease_duration`: what it has sent by then has the difference to arrive, and the clocks of two machines may differ in
    /// speed by it.
    #[schemars(extend("x-minimum" = "100ms"))]
    pub renew_deadline: Span,
    /// The longest time between two renewals, and between two attempts of one that failed. Less than `renew_deadline`.
    #[schemars(extend("x-minimum" = "100ms"))]
    pub retry_period: Span,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_name: "staffetta".to_owned(),
            namespace: None,
            lease_duration: Span::from_secs(15),
            renew_deadline: Span::from_secs(10),
            retry_period: Span::from_secs(2),
        }
    }
}

/// The Kubernetes Events by which a person learns, at the object itself, why it is stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Events {
    /// Whether Events are written. They are bounded: an object that fails again and again has one, which counts, and is
    /// written once a minute; all together at most 10 writes a second. The log says the same without them.
    pub enabled: bool,
}

impl Default for Events {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// The server that answers how the program is: `/livez`, `/readyz`, `/metrics`, `/debug/state`. Whoever reaches it can read
/// the names of objects and what went wrong with them, and change nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Where it listens: an IP address and a port. Port 0 lets the system choose one.
    #[schemars(extend("format" = "socket-address"))]
    pub listen: SocketAddr,
}

impl Default for Admin {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 8082).into() }
    }
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// The form of a line.
    pub format: LogFormat,
    /// What is logged: `off`, `error`, `warn`, `info`, `debug` or `trace`, and after commas other levels for parts of
    /// the program: `info,staffetta_network=debug`.
    #[schemars(extend("format" = "log-filter"))]
    pub level: String,
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// The form of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// How the program ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Shutdown {
    /// How long handlers may finish what they began after SIGTERM. At least 7 s less than the `terminationGracePeriodSeconds` of
    /// the pod: the last Kubernetes Events (2 s) and the lease (5 s, half of
    /// `leader_election.renew_deadline`) come after it. A second signal ends the program at once.
    pub drain: Span,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self { drain: Span::from_secs(20) }
    }
}
