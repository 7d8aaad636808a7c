//! The handler `vnode`: the bases of Koupleless as virtual nodes, on which pods become modules.
//!
//! A *base* is a long-running process, a *module* what it loads for a container. Bases appear by themselves: a
//! [`Tunnel`] reports them. The handler runs in every replica of the controller. All of them
//! know all bases; the one that holds the Lease of a node looks after its base, and is the only one that acts for it.
//!
//! ```text
//! tunnels -- introductions --> known bases <-- Node objects, Leases (watch)
//!                              one election per node: takes, renews and loses its Lease
//! the Lease is taken: the base is added to the NodeStore, and everything else is as for other virtual nodes
//! tunnels -- health, containers, answers --> the base that this replica looks after --> NodeStore
//! ```
//!
//! | module | content |
//! |---|---|
//! | `source`, `tunnels` | the node source: runs the elections and the tunnels |
//! | [`channel`](channel()) | the queues of the reports of a tunnel |
//! | `unconfigured` | the bases of tunnels that are not configured any more |
//! | `unowned` | stops containers that no pod has |
//! | `known` | the bases that this replica knows, without I/O |
//! | `replicas`, `share` | the replicas that are alive, and their even shares of the nodes, without I/O |
//! | `lease` | the election of the holder of a Lease, without I/O; the index of Leases; their writes |
//! | `sent_baselines` | the baselines (containers to start with) that this process has sent to bases |
//! | `base`, `containers` | a base that this replica looks after: its containers and operations |
//! | `back_end` | starts and stops containers for pods |
//! | `first_answer` | the wait for the first answer of a base, before which it gets no node |
//! | `describe`, `marks` | the Node object of a base, its labels and taints |
//! | [`Operation`] | an operation on a container |
//! | [`peer`] | Deployments with one module on each base, and the baselines of bases from them |
//! | [`tracker`] | the operations under way, their times, and Events about stuck ones |

mod back_end;
mod base;
mod channel;
mod containers;
mod describe;
mod first_answer;
mod known;
#[cfg(test)]
mod laws;
mod lease;
pub(crate) mod marks;
mod operation;
mod options;
pub mod peer;
mod replicas;
mod sent_baselines;
mod share;
mod source;
pub mod tracker;
mod tunnels;
mod unconfigured;
mod unowned;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use parking_lot::Mutex;
use staffetta_driver::tunnel::Tunnel;
use staffetta_handler::{CLUSTER_LABEL, HANDLER_LABEL, Recorder, Registration};

use self::base::NamedTunnel;
pub use self::channel::{TunnelLimits, TunnelReceiver, channel};
use self::describe::NodeTemplate;
use self::known::KnownBases;
use self::lease::{LeaseIndex, LeaseTiming, LeaseWriter, REPLICA_LABEL, replica_digest};
pub use self::operation::{ContainerAction, Operation};
pub use self::options::VnodeOptions;
use self::peer::{PeerBaselines, PeerIndex};
use self::source::VnodeSource;
use self::tracker::OperationTracker;
use crate::handler::VirtualNodes;
use crate::metrics::VirtualNodeMetricsRegistry;
use crate::policy::Policy;
use crate::shared::Dependencies;

/// The name of the handler, as in `kubernetes.enabled_handlers`. It runs in every replica.
pub const HANDLER: &str = "vnode";

/// The delay before the next write to a Lease after one that failed.
const LEASE_RETRY: Duration = Duration::from_secs(2);

/// The interval at which each Node object is compared with its base, although nothing says that one of them changed. The source renews
/// the Leases by itself.
const NODE_CHECK: Duration = Duration::from_secs(300);

/// The dependencies and options of the handler `vnode`.
pub struct Vnode {
    /// The name of this installation (`kubernetes.cluster_id`), which distinguishes its nodes from those of others.
    pub cluster: String,
    /// The client of the Kubernetes API. It is not limited to a leadership term: the handler runs in every replica.
    pub client: Client,
    /// The identity of this process, unique among all replicas and all restarts: the holder of Leases, and the client id of
    /// tunnels.
    pub replica: String,
    /// The options of the section `[vnode]`, without a [contradiction](VnodeOptions::contradiction).
    pub options: VnodeOptions,
    /// The tunnels, each with its name.
    pub tunnels: Vec<(String, Arc<dyn Tunnel>)>,
    /// The peer Deployments, with whose modules bases start.
    pub peers: Arc<PeerIndex>,
    /// The tracker of the operations on containers.
    pub tracker: OperationTracker,
    /// The recorder that publishes Kubernetes Events.
    pub recorder: Recorder,
    /// The registry to which the handler's metrics are added.
    pub figures: VirtualNodeMetricsRegistry,
}

impl Vnode {
    /// Builds the registration of the handler. It watches only pods with the label of modules, in one watch for all nodes.
    pub fn registration(self) -> Registration<VirtualNodes> {
        let Self { cluster, client, replica, options, tunnels, peers, tracker, recorder, figures } = self;
        let policy = policy(&options);
        let labels: BTreeMap<_, _> = [(HANDLER_LABEL, HANDLER), (CLUSTER_LABEL, cluster.as_str())]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
        let ours = labels.iter().map(|(key, value)| format!("{key}={value}"));
        let others = format!("{REPLICA_LABEL}!={}", replica_digest(&replica));
        let selector: Vec<_> = ours.chain([others]).collect();
        let seconds = options.lease_duration_s.get();
        let timing = LeaseTiming {
            duration: Duration::from_secs(seconds.into()),
            renewal: Duration::from_secs(options.lease_renew_s.get().into()),
            retry: LEASE_RETRY,
        };
        let alive = Duration::from_millis(options.dead_after_ms.get());
        let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
        let leases = Arc::new(LeaseIndex::default());
        let source = VnodeSource {
            cluster: cluster.clone(),
            template: NodeTemplate {
                environment: options.environment.clone(),
                max_pods: options.max_pods.get(),
            },
            operation_limit: Duration::from_millis(options.operation_timeout_ms.get()),
            unowned_grace: options.uninstall_unowned_after_ms.map(|after| Duration::from_millis(after.get())),
            tunnels: tunnels
                .into_iter()
                .map(|(name, tunnel)| NamedTunnel { name: name.into(), tunnel })
                .collect(),
            leases: Arc::clone(&leases),
            writer: Arc::new(LeaseWriter::new(client.clone(), replica.clone(), seconds, labels)),
            baselines: Arc::clone(&peers),
            sent_baselines: Arc::default(),
            tracker,
            counts: figures.counts(HANDLER),
            bases: Mutex::new(KnownBases::new(replica.clone(), timing, alive)),
            replica,
            nodes: OnceLock::new(),
        };
        let dependencies = Dependencies {
            handler: HANDLER,
            cluster,
            client,
            source: Arc::new(source),
            recorder,
            policy,
            kubelets: None,
            predecessor: Some((marks::COMPONENT, marks::COMPONENT_NODE)),
            metrics: figures,
        };
        VirtualNodes::new(dependencies)
            .registration()
            .index::<Lease>(leases)
            .select::<Pod>(|kind| {
                kind.label_selector = Some(format!("{}={}", marks::COMPONENT, marks::COMPONENT_POD));
            })
            .select::<Lease>(|kind| kind.label_selector = Some(selector.join(",")))
            .join(PeerBaselines::new(peers).registration().erase())
    }
}

/// Returns the policy of virtual nodes (intervals and time limits) with the options of the handler, which are in milliseconds.
fn policy(options: &VnodeOptions) -> Policy {
    let poll_interval = Duration::from_millis(options.poll_interval_ms.get());
    let unreachable_after = Duration::from_millis(options.unreachable_after_ms.get());
    Policy {
        poll_interval,
        health_interval: Duration::from_millis(options.health_interval_ms.get()),
        unreachable_after,
        silent_after: unreachable_after,
        gone_after: Some(Duration::from_millis(options.dead_after_ms.get())),
        // A base that does not answer is asked as often as any other, so that its end is seen in time.
        max_retry_interval: poll_interval,
        lease_interval: NODE_CHECK,
        ..Policy::default()
    }
}
