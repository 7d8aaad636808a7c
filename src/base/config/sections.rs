//! The configuration sections of the program itself. Their doc comments become comments in the sample file.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use staffetta_handler::{BackoffPolicy, Registry};

use super::span::TimeSpan;

/// Registers the configuration sections of the program itself.
pub fn register(registry: &mut Registry) {
    registry.section::<KubernetesOptions>("kubernetes");
    registry.section::<RelayOptions>("relay");
    registry.section::<LeaderElectionOptions>("leader_election");
    registry.section::<EventsOptions>("events");
    registry.section::<AdminOptions>("admin");
    if cfg!(feature = "webhook") {
        registry.section::<WebhookOptions>("webhook");
    }
    registry.section::<LogOptions>("log");
    if cfg!(feature = "traces") {
        registry.section::<TraceOptions>("traces");
    }
    registry.section::<ShutdownOptions>("shutdown");
}

/// The handlers that are enabled by default, if the program has them and drivers for them.
const DEFAULT_HANDLERS: &[&str] =
    if cfg!(any(feature = "openstack", all(feature = "memory", feature = "network"))) {
        &["vif", "lb", "lbaasspec"]
    } else {
        &[]
    };

/// The handlers that run, the drivers that they use, and the connection to the cluster.
///
/// Each driver trait adds an option `<trait>_driver`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct KubernetesOptions {
    /// The enabled handlers. An event passes through them in this order.
    #[schemars(extend("uniqueItems" = true))]
    pub enabled_handlers: Vec<String>,
    /// The name of this cluster. It marks every resource that is created outside the cluster, so that garbage collection can find
    /// leaked ones. Two clusters that share an OpenStack need two names, and so do two installations in one cluster. The name must
    /// not change while resources with it exist. If not set: the UID of the namespace `kube-system`, without hyphens.
    #[schemars(length(min = 1, max = 32), extend("format" = "dns-label"), example = &"east")]
    pub cluster_id: Option<String>,
    /// The namespaces whose pods and services are managed; all if empty. With the handler `namespace`, also the namespaces that get a
    /// network. An object that is managed already stays so until it is deleted.
    #[schemars(extend("uniqueItems" = true), inner(length(min = 1, max = 63)))]
    pub namespaces: Vec<String>,
    /// Selects namespaces by their labels, of those in `namespaces` if there are any. Pods and services in others are not managed, unless
    /// they have a finalizer of this program. When the labels of a namespace change so that they match, its pods and services are managed
    /// at once, or 10 s after those of another one.
    #[schemars(extend("format" = "label-selector"), example = &"team=net")]
    pub namespace_labels: Option<String>,
    /// Selects pods and services by their labels. An object that is managed already stays so until it is deleted.
    #[schemars(extend("format" = "label-selector"), example = &"network=neutron")]
    pub object_labels: Option<String>,
    /// The kubeconfig file. If not set: `$KUBECONFIG` or `~/.kube/config`; without a usable one, the service account of the pod.
    #[schemars(length(min = 1), example = "/etc/staffetta/kubeconfig")]
    pub kubeconfig: Option<PathBuf>,
    /// The URL of the API server, in place of the one in the kubeconfig or of the service account. The daemon on a node needs it,
    /// because the address of the service `kubernetes` may not work before the network of the node does.
    #[schemars(length(min = 1), example = "https://192.0.2.1:6443")]
    pub api_root: Option<String>,
    /// Name each port after its pod, for readability. Ports that a pool keeps ready have no pod name.
    pub port_debug: bool,
    /// A file with a key of at least 32 bytes, the same for the controller and the daemons of nodes (`staffetta cni-daemon`). With it, the
    /// controller proves to them, in the annotation `staffetta.dev/vif-proof`, that it has accepted the VIFs of a pod, and they bind no
    /// others: without it, whoever may change a pod chooses what they bind.
    #[schemars(length(min = 1), example = "/etc/staffetta-vif-proof/key")]
    pub vif_proof_key_file: Option<PathBuf>,
    /// The Octavia provider of load balancers, by its name in Octavia: `amphora`, `ovn` ... `default` leaves the choice to the
    /// cloud.
    #[schemars(length(min = 1, max = 64))]
    pub endpoints_driver_octavia_provider: String,
    /// The duration of one watch request; the watch then continues with a new one. A watch whose connection was lost
    /// silently is considered dead 5 s after this time.
    #[schemars(extend("x-minimum" = "1s", "x-maximum" = "294s"))]
    pub watch_timeout: TimeSpan,
}

impl Default for KubernetesOptions {
    fn default() -> Self {
        Self {
            enabled_handlers: DEFAULT_HANDLERS.iter().map(|&name| name.to_owned()).collect(),
            cluster_id: None,
            namespaces: Vec::new(),
            namespace_labels: None,
            object_labels: None,
            kubeconfig: None,
            api_root: None,
            vif_proof_key_file: None,
            port_debug: false,
            endpoints_driver_octavia_provider: "default".to_owned(),
            watch_timeout: TimeSpan::from_secs(60),
        }
    }
}

/// Queues, retries and limits of the handler chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RelayOptions {
    /// The maximum number of events that each handler processes concurrently. The objects of one namespace have at most half of them. In
    /// `vif`, pods that have their VIFs have as many again for each namespace.
    pub max_concurrency: NonZeroUsize,
    /// The maximum duration of one attempt of a handler, after which the attempt has failed. It bounds a driver that hangs.
    #[schemars(extend("x-minimum" = "1ms"))]
    pub handler_timeout: TimeSpan,
    /// The delay before the first retry after a transient error. It doubles with each retry, with some jitter.
    #[schemars(extend("x-minimum" = "1ms"))]
    pub retry_interval: TimeSpan,
    /// The maximum delay between two retries. Not less than `retry_interval`.
    #[schemars(extend("x-minimum" = "1ms"))]
    pub retry_max_interval: TimeSpan,
    /// The time limit for the retries of an event, after which the event has failed and waits for `failed_resync`.
    pub retry_timeout: TimeSpan,
    /// The delay after which a failed event is handled again. It doubles with each further failure, with a jitter of up to a tenth.
    #[schemars(extend("x-minimum" = "1s"))]
    pub failed_resync: TimeSpan,
    /// The maximum delay until a failed event is handled again. Not less than `failed_resync`. After transient errors, a few
    /// events of a handler are tried every 15 s, and as soon as one of them succeeds, all others are.
    #[schemars(extend("x-minimum" = "1s"))]
    pub failed_resync_max: TimeSpan,
    /// The number of queued objects above which the next page of an initial list is delayed. It bounds the memory of a
    /// start in a large cluster.
    pub first_list_backlog: NonZeroUsize,
    /// The interval between two garbage collections, which release leaked resources by their ownership marks.
    #[schemars(extend("x-minimum" = "1s"))]
    pub sweep_interval: TimeSpan,
    /// Let garbage collection release most of what exists. By default, if more than half of the owners of external resources, and more
    /// than 20, do not exist in the cluster, nothing is released: the kubeconfig may be that of another cluster, or etcd may have
    /// lost its data.
    pub allow_mass_release: bool,
    /// The number of worker threads. One thread handles thousands of events per second; more threads help only if one is
    /// always busy.
    #[schemars(range(min = 1, max = 64))]
    pub worker_threads: NonZeroUsize,
}

impl Default for RelayOptions {
    fn default() -> Self {
        let count = |number| NonZeroUsize::new(number).expect("the defaults are not zero");
        Self {
            max_concurrency: count(16),
            handler_timeout: TimeSpan::from_secs(60),
            retry_interval: TimeSpan::from_secs(1),
            retry_max_interval: TimeSpan::from_secs(60),
            retry_timeout: TimeSpan::from_secs(500),
            failed_resync: TimeSpan::from_secs(60),
            failed_resync_max: TimeSpan::from_secs(15 * 60),
            first_list_backlog: count(1000),
            sweep_interval: TimeSpan::from_secs(10 * 60),
            allow_mass_release: false,
            worker_threads: count(1),
        }
    }
}

impl RelayOptions {
    /// Returns the back-off and the time limit of retries after a transient error.
    pub(crate) fn retries(&self) -> BackoffPolicy {
        let (initial, max) = (self.retry_interval.into(), self.retry_max_interval.into());
        BackoffPolicy { initial, max, limit: Some(self.retry_timeout.into()) }
    }

    /// Returns the back-off with which a failed event, whose retries have ended, is handled again.
    pub(crate) fn resync(&self) -> BackoffPolicy {
        BackoffPolicy::unlimited(self.failed_resync.into(), self.failed_resync_max.into())
    }
}

/// Election of a leader among several replicas. The others are standbys and write nothing.
///
/// The leader holds and renews a `Lease` of `coordination.k8s.io/v1`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LeaderElectionOptions {
    /// Elect a leader. If `false`, the program starts to work at once and must be the only one with its
    /// `kubernetes.cluster_id`. A successor must not start before the requests of its predecessor have completed: a port that is
    /// created late is the second one of its pod, which garbage collection finds and removes with its next run.
    pub enabled: bool,
    /// The name of the Lease. Replicas with the same name elect one leader.
    #[schemars(length(min = 1, max = 63), extend("format" = "dns-label"))]
    pub lease_name: String,
    /// The namespace of the Lease. If not set: that of the kubeconfig's context; without a kubeconfig, that of the service account
    /// of the pod.
    #[schemars(length(min = 1, max = 63), extend("format" = "dns-label"), example = "kube-system")]
    pub namespace: Option<String>,
    /// The time after the last renewal after which a standby may take the Lease. The Lease states it in whole seconds, rounded
    /// up.
    #[schemars(extend("x-minimum" = "1s"))]
    pub lease_duration: TimeSpan,
    /// The time after the last renewal after which the leader becomes a standby. Less than `lease_duration`: the difference is
    /// left for its last requests to complete, and for clocks that differ in speed.
    #[schemars(extend("x-minimum" = "100ms"))]
    pub renew_deadline: TimeSpan,
    /// The maximum interval between two renewals, and between two attempts after a failed one. Less than `renew_deadline`.
    #[schemars(extend("x-minimum" = "100ms"))]
    pub retry_period: TimeSpan,
}

impl Default for LeaderElectionOptions {
    fn default() -> Self {
        Self {
            enabled: true,
            lease_name: "staffetta".to_owned(),
            namespace: None,
            lease_duration: TimeSpan::from_secs(15),
            renew_deadline: TimeSpan::from_secs(10),
            retry_period: TimeSpan::from_secs(2),
        }
    }
}

/// Kubernetes Events on objects that cannot be handled and, where asked for, on those that are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EventsOptions {
    /// Write Events. An object that fails repeatedly has one Event with a count, updated at most once a minute; all Events
    /// together take at most 10 writes per second. The log contains the same messages.
    pub enabled: bool,
    /// Report successes too: an Event of type `Normal` with reason `Handled` when a handler has changed something for an object.
    /// Within the same limits; Events of failures come first.
    pub success: bool,
}

impl Default for EventsOptions {
    fn default() -> Self {
        Self { enabled: true, success: false }
    }
}

/// The admin server: a status page at `/`, and `/livez`, `/readyz`, `/metrics`, `/debug/state`, `/debug/log-level`. Its clients can read
/// the names and errors of objects and, if it listens on a loopback address, change the log level until the program ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdminOptions {
    /// The listen address: an IP address and a port. With port 0 the system chooses the port.
    #[schemars(extend("format" = "socket-address"))]
    pub listen: SocketAddr,
    /// The listen address of a second server for the kubelet and Prometheus, with only `/livez`, `/readyz` and `/metrics`. If not set:
    /// only the admin server has them.
    #[schemars(extend("format" = "socket-address"), example = "0.0.0.0:8081")]
    pub probes_listen: Option<SocketAddr>,
}

impl Default for AdminOptions {
    fn default() -> Self {
        Self { listen: (Ipv4Addr::LOCALHOST, 8082).into(), probes_listen: None }
    }
}

/// The admission webhook of the handler `prefix_ip`: it adds the resource `vpc.amazonaws.com/PrivateIPv4Address` to pods that need an
/// address of their node.
///
/// Every replica serves it. The Helm chart (`etc/deploy/chart`) contains what it needs in the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WebhookOptions {
    /// The listen address: an IP address and a port. Without it, there is no webhook.
    #[schemars(extend("format" = "socket-address"), example = "0.0.0.0:9443")]
    pub listen: Option<SocketAddr>,
    /// The name of the `MutatingWebhookConfiguration`. Its services and URLs are the host names in the certificate that the leader
    /// generates, and the leader writes its `caBundle`.
    #[schemars(length(min = 1, max = 253), extend("format" = "dns-name"))]
    pub configuration_name: String,
    /// The name of the Secret into which the leader writes the certificate. It must exist, and may be empty. Its namespace is that of the
    /// Lease (`leader_election.namespace`).
    #[schemars(length(min = 1, max = 253), extend("format" = "dns-name"))]
    pub secret_name: String,
    /// The lifetime of a generated certificate. It is replaced when a third of it is left.
    #[schemars(extend("x-minimum" = "10s"))]
    pub certificate_lifetime: TimeSpan,
    /// The file of a certificate chain in PEM. It is read again when it changes. With it, nothing is generated, and the leader
    /// writes neither the Secret nor `caBundle`.
    #[schemars(length(min = 1), example = "/etc/staffetta/webhook/tls.crt")]
    pub certificate_file: Option<PathBuf>,
    /// The file of the private key of that certificate in PEM.
    #[schemars(length(min = 1), example = "/etc/staffetta/webhook/tls.key")]
    pub key_file: Option<PathBuf>,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            listen: None,
            configuration_name: "staffetta-webhook".to_owned(),
            secret_name: "staffetta-webhook".to_owned(),
            certificate_lifetime: TimeSpan::from_secs(90 * 24 * 3600),
            certificate_file: None,
            key_file: None,
        }
    }
}

/// The log, on standard error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogOptions {
    /// The format of a line.
    pub format: LogFormat,
    /// The level: `off`, `error`, `warn`, `info`, `debug` or `trace`. Levels for parts of the program may follow after commas:
    /// `info,staffetta_network=debug`.
    #[schemars(extend("format" = "log-filter"))]
    pub level: String,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: "info".to_owned() }
    }
}

/// The format of a line in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Traces of the handling of events, for an OpenTelemetry collector.
///
/// The headers and the proxy of the exports come from the variables of OpenTelemetry and of HTTP clients: `OTEL_EXPORTER_OTLP_HEADERS`,
/// `HTTPS_PROXY`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TraceOptions {
    /// The URL of the collector, which receives spans by OTLP over HTTP at the path `/v1/traces` below it. If not set: no traces.
    #[schemars(extend("format" = "http-url"), example = "http://collector.observability:4318")]
    pub otlp_endpoint: Option<String>,
    /// The share of the events of which a trace is made, from 0 to 1. With 1, each event has its trace, and the controller needs about a fifth
    /// more CPU time.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample_ratio: f64,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self { otlp_endpoint: None, sample_ratio: 0.05 }
    }
}

/// The end of the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownOptions {
    /// The time that handlers have to finish after SIGTERM. At least 7 s less than the `terminationGracePeriodSeconds` of the
    /// pod: writing the last Kubernetes Events (2 s) and releasing the Lease (5 s, half of
    /// `leader_election.renew_deadline`) follow. A second signal ends the program at once.
    pub drain: TimeSpan,
}

impl Default for ShutdownOptions {
    fn default() -> Self {
        Self { drain: TimeSpan::from_secs(20) }
    }
}
