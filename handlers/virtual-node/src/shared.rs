//! The dependencies of the handler, and the state that it shares with the tasks that read the machines.

use std::borrow::Cow;
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

/// The dependencies and options of the handler [`VirtualNodes`](crate::VirtualNodes).
pub struct Dependencies {
    /// The name of the handler. It is the value of a label on its Node objects.
    pub handler: &'static str,
    /// The name of this installation, the value of a label on its Node objects. Two installations that manage nodes of
    /// one cluster must have different names.
    pub cluster: String,
    /// The client of the Kubernetes API.
    pub client: Client,
    /// The source that lists the nodes and connects to their machines.
    pub source: Arc<dyn NodeSource>,
    /// The recorder that publishes Kubernetes Events.
    pub recorder: Recorder,
    /// The intervals and time limits, for example of reads of machines, outages and leases.
    pub policy: Policy,
    /// The servers of the nodes' kubelet APIs; `None` if they are disabled.
    pub kubelets: Option<Kubelets>,
    /// A label (key and value) by which the Node objects of a previous controller are recognised: this handler takes them over. `None` if
    /// there is no such controller.
    pub predecessor: Option<Label>,
    /// The registry to which the handler's metrics are added.
    pub metrics: VirtualNodeMetricsRegistry,
}

/// The dependencies, indexes, clients and in-memory records of one handler.
pub(crate) struct Shared {
    /// The dependencies and options of the handler.
    pub(crate) config: Dependencies,
    /// The index of the virtual nodes and their pods in Kubernetes.
    pub(crate) cluster: Arc<ClusterIndex>,
    /// The virtual nodes that the node source lists, with the state of their machines.
    pub(crate) node_store: Arc<NodeStore>,
    /// The pods that are to be reconciled after a delay.
    pub(crate) delay_queue: DelayQueue,
    /// The counters of machine reads, kubelet API requests and lease changes.
    pub(crate) counts: Arc<Counts>,
    /// Writes the status of pods, and rejects objects that are older than its last write.
    pub(crate) pods: Writer<Pod>,
    /// Writes the status of Node objects, and rejects objects that are older than its last write.
    pub(crate) nodes: Writer<Node>,
    /// Renews the leases of the nodes.
    pub(crate) leases: NodeLeases,
    /// Determines the environment variables of containers.
    pub(crate) environments: Environments,
    /// The in-memory records of the steps for each pod, by the UID of the pod.
    pub(crate) records: DashMap<Uid, PodRecord>,
    /// The times since which Node objects of this handler have had no machine, by node name.
    pub(crate) orphaned_since: DashMap<String, Instant>,
}

/// The in-memory record of the steps that this process has taken for a pod. It is empty after a restart, and costs at
/// most repeated steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodRecord {
    /// The digest (`pod::form`) of the specification that this process has deployed completely; `None` if it has deployed
    /// none.
    pub(crate) applied: Option<u64>,
    /// `true` if the API server has confirmed that the pod exists, before this process deployed again what an earlier one had deployed.
    pub(crate) confirmed: bool,
    /// `true` if this process has seen the pod's workload on the machine.
    pub(crate) workload_seen: bool,
    /// The reason of the last Event about the current deployment or outage, so that no Event is repeated; `None` without one.
    pub(crate) reported: Option<EventReason>,
    /// The reason of the last failure that the machine reported since the pod was last deployed; `None` without one.
    pub(crate) failure: Option<Cow<'static, str>>,
    /// The progress of the removal of the pod's workload, if the pod is deleted.
    pub(crate) removal: Removal,
    /// The last state of the pod, if its object was deleted before its workload was removed, whether the watch shows that yet or not; `None`
    /// otherwise.
    pub(crate) deleted: Option<Arc<Pod>>,
    /// `true` if this process has completed the deletion of the pod, and only the watch event of the deletion is
    /// outstanding.
    pub(crate) finished: bool,
    /// The number of consecutive steps for the pod that the machine did not answer.
    pub(crate) unanswered: u8,
    /// The number of ephemeral containers of the pod at its last reconciliation.
    pub(crate) ephemeral: usize,
}

/// The progress of the removal of the workload of a deleted pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The removal has not begun.
    #[default]
    Outstanding,
    /// The removal has begun.
    Begun,
    /// The removal waits, because the machine cannot be reached. The workload is removed once the machine can be reached.
    Awaited,
}

impl Shared {
    /// Creates the shared state, without any node or pod.
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
            environments: Environments::new(client(), config.policy.secret_namespaces.clone()),
            records: DashMap::new(),
            orphaned_since: DashMap::new(),
            config,
        }
    }

    /// Publishes an Event on the object `regarding`.
    pub(crate) fn note(&self, regarding: Identity, reason: EventReason, text: impl Into<String>) {
        self.config.recorder.record(reason.note(self.config.handler, regarding, text.into()));
    }

    /// Publishes an Event on a node.
    pub(crate) fn note_node(&self, name: &str, reason: EventReason, text: impl Into<String>) {
        self.note(node_identity(name), reason, text);
    }

    /// Publishes an Event on a pod.
    pub(crate) fn note_pod(&self, owner: &Owner, reason: EventReason, text: impl Into<String>) {
        self.note(pod_identity(owner), reason, text);
    }

    /// Returns the owner of the Node objects of this handler.
    pub(crate) fn node_owner(&self) -> NodeOwner<'_> {
        let Dependencies { handler, cluster, predecessor, .. } = &self.config;
        NodeOwner { handler, cluster, predecessor: *predecessor }
    }
}
