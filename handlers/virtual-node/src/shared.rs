//! The dependencies of the handler, and the state that it shares with its readers.

use std::sync::Arc;

use dashmap::DashMap;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use staffetta_driver::{Owner, Uid};
use staffetta_handler::{Identity, Recorder, Writer};
use tokio::time::Instant;

use crate::counters::Counts;
use crate::delay_queue::DelayQueue;
use crate::environment::Environments;
use crate::kubelet::Kubelets;
use crate::metrics::VirtualNodeMetricsRegistry;
use crate::node::{Label, NodeLeases, NodeOwner};
use crate::node_store::NodeStore;
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::recorder::EventReason;
use crate::source::NodeSource;
use crate::triggers::{node_identity, pod_identity};

/// The dependencies and options of virtual nodes.
pub struct Dependencies {
    /// The name of the handler, which its nodes carry as a label.
    pub handler: &'static str,
    /// The name by which this installation marks what it creates, a value of a label: no two that keep nodes in one cluster share it.
    pub cluster: String,
    /// The client of the Kubernetes API.
    pub client: Client,
    /// Lists the nodes.
    pub source: Arc<dyn NodeSource>,
    /// Publishes Kubernetes Events.
    pub recorder: Recorder,
    /// Intervals, time limits and bounds.
    pub policy: Policy,
    /// Serves the kubelet APIs of the nodes, if enabled.
    pub kubelets: Option<Kubelets>,
    /// A label that identifies the nodes of a previous agent, which this handler takes over.
    pub predecessor: Option<Label>,
    /// Receives the metrics.
    pub metrics: VirtualNodeMetricsRegistry,
}

/// The nodes, indexes and clients of one handler.
pub(crate) struct Shared {
    pub(crate) config: Dependencies,
    pub(crate) cluster: Arc<ClusterIndex>,
    pub(crate) node_store: Arc<NodeStore>,
    pub(crate) delay_queue: DelayQueue,
    pub(crate) counts: Arc<Counts>,
    pub(crate) pods: Writer<Pod>,
    pub(crate) nodes: Writer<Node>,
    pub(crate) leases: NodeLeases,
    pub(crate) environments: Environments,
    pub(crate) records: DashMap<Uid, PodRecord>,
    /// The time since which a Node object of ours has had no machine, by name.
    pub(crate) orphaned_nodes: DashMap<String, Instant>,
}

/// The actions of this process for a pod.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodRecord {
    /// The form in which it was brought to its machine, once that was done.
    pub(crate) applied: Option<u64>,
    /// `true` if the machine has had its workload.
    pub(crate) was_there: bool,
    /// The step in progress, as last published.
    pub(crate) reported: Option<EventReason>,
    /// `true` if the pod is gone and its workload is being removed.
    pub(crate) clearing: bool,
    /// `true` if the deleted pod left nothing behind, and only its `Deleted` event is still to come.
    pub(crate) finished: bool,
    /// The number of consecutive steps that its machine left unanswered.
    pub(crate) unanswered: u8,
    /// The number of ephemeral containers at the last reconciliation.
    pub(crate) ephemeral: usize,
}

impl Shared {
    pub(crate) fn new(config: Dependencies) -> Self {
        let client = || config.client.clone();
        let cluster = Arc::new(ClusterIndex::after(config.predecessor));
        let node_store = Arc::new(NodeStore::new(Arc::clone(&cluster), config.policy.clone()));
        config.metrics.show(config.handler, &node_store);
        Self {
            node_store,
            cluster,
            delay_queue: DelayQueue::default(),
            counts: config.metrics.counts(config.handler),
            pods: Writer::new(client()),
            nodes: Writer::new(client()),
            leases: NodeLeases::new(client(), config.policy.lease_interval),
            environments: Environments::new(client()),
            records: DashMap::new(),
            orphaned_nodes: DashMap::new(),
            config,
        }
    }

    /// Records an Event on an object.
    pub(crate) fn note(&self, regarding: Identity, reason: EventReason, text: impl Into<String>) {
        self.config.recorder.record(reason.note(self.config.handler, regarding, text.into()));
    }

    /// Records an Event on a node.
    pub(crate) fn note_node(&self, name: &str, reason: EventReason, text: impl Into<String>) {
        self.note(node_identity(name), reason, text);
    }

    /// Records an Event on a pod.
    pub(crate) fn note_pod(&self, owner: &Owner, reason: EventReason, text: impl Into<String>) {
        self.note(pod_identity(owner), reason, text);
    }

    /// The owner of these nodes.
    pub(crate) fn node_owner(&self) -> NodeOwner<'_> {
        let Dependencies { handler, cluster, predecessor, .. } = &self.config;
        NodeOwner { handler, cluster, predecessor: *predecessor }
    }
}
