//! Settles nodes and pods: the thin shell around what is decided elsewhere.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use staffetta_driver::app_hosting::{PodRequest, Progress};
use staffetta_driver::{Owner, Reason, Uid};
use staffetta_handler::{
    Event, Notes, OrderingKey, Registration, ResourceEventHandler, SignalHandler, Tombstone, Writer,
};
use tokio::time::Instant;

use crate::agenda::Agenda;
use crate::environment::Environments;
use crate::error::VirtualNodeError;
use crate::fleet::{Fleet, Machine};
use crate::kubelet::Kubelets;
use crate::node::{Leases, Standing, created, metadata_patch, standing, status_patch};
use crate::notes::{Told, pod_note};
use crate::pod::{ClusterIndex, Facts, Seen, Task, decide, form, has_keeper, patch, status};
use crate::policy::Policy;
use crate::reader::Readers;
use crate::signals::{NodeDue, PodDue};
use crate::source::NodeSource;

/// How soon a pod is looked at again when its machine did not answer just then.
const ANSWERLESS: Duration = Duration::from_secs(5);

/// What a pod waits for before anything is known of it.
const CREATING: &str = "ContainerCreating";

/// What virtual nodes are made of.
pub struct Wiring {
    /// The name of the handler, which its nodes carry as a label.
    pub handler: &'static str,
    /// The client of the Kubernetes API.
    pub client: Client,
    /// Which nodes exist.
    pub source: Arc<dyn NodeSource>,
    /// Where it is told what happens.
    pub notes: Notes,
    /// How often, how long, how many.
    pub policy: Policy,
    /// Who answers the kubelet APIs of the nodes, if anybody.
    pub kubelets: Option<Kubelets>,
}

/// Keeps the nodes of a [`NodeSource`] and their pods.
pub struct VirtualNodes(Arc<Shared>);

/// What the handler and its readers share.
pub(crate) struct Shared {
    pub(crate) handler: &'static str,
    pub(crate) client: Client,
    pub(crate) source: Arc<dyn NodeSource>,
    pub(crate) notes: Notes,
    pub(crate) policy: Policy,
    pub(crate) cluster: Arc<ClusterIndex>,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) agenda: Agenda,
    pub(crate) kubelets: Option<Kubelets>,
    pods: Writer<Pod>,
    nodes: Writer<Node>,
    leases: Leases,
    environments: Environments,
    records: DashMap<Uid, Record>,
    /// Since when a Node object of ours has had no machine, by name.
    strays: DashMap<String, Instant>,
}

/// What this process did for a pod.
#[derive(Clone, Debug, Default)]
struct Record {
    /// The form in which it was brought to its machine, once that was done.
    applied: Option<u64>,
    /// Whether the machine has had it.
    was_there: bool,
    /// What is under way, and was told.
    told: Option<Told>,
    /// Whether the pod is gone, and its machine is being rid of it.
    clearing: bool,
}

impl VirtualNodes {
    /// Nodes as `wiring` says.
    pub fn new(wiring: Wiring) -> Self {
        let Wiring { handler, client, source, notes, policy, kubelets } = wiring;
        let cluster = Arc::<ClusterIndex>::default();
        let fleet = Arc::new(Fleet::new(Arc::clone(&cluster), policy.clone()));
        Self(Arc::new(Shared {
            handler,
            source,
            notes,
            cluster,
            fleet,
            agenda: Agenda::default(),
            kubelets,
            pods: Writer::new(client.clone()),
            nodes: Writer::new(client.clone()),
            leases: Leases::new(client.clone(), policy.lease_interval),
            environments: Environments::new(client.clone()),
            records: DashMap::new(),
            strays: DashMap::new(),
            client,
            policy,
        }))
    }

    /// The handler as it is registered: for pods and nodes, with the readers of the machines as its source.
    pub fn registration(self) -> Registration<Self> {
        let shared = Arc::clone(&self.0);
        Registration::new(self)
            .index::<Pod>(Arc::clone(&shared.cluster))
            .index::<Node>(Arc::clone(&shared.cluster))
            .on::<Pod>()
            .on::<Node>()
            .on_signal::<PodDue>()
            .on_signal::<NodeDue>()
            .source(Readers(shared))
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// The nodes that exist.
    pub fn fleet(&self) -> Arc<Fleet> {
        Arc::clone(&self.0.fleet)
    }

    /// The pods on a node, as the watch showed them last.
    pub fn pods(&self) -> impl Fn(&str) -> Vec<Arc<Pod>> + Send + Sync + use<> {
        let cluster = Arc::clone(&self.0.cluster);
        move |node| cluster.pods_on(node)
    }
}

/// The queue of a node: its events, its signals.
fn node_key(name: &str) -> OrderingKey {
    OrderingKey::of(("node", name))
}

/// What is done for one node shares a bound, so that a slow machine delays no other.
fn node_group(name: &str) -> Option<OrderingKey> {
    (!name.is_empty()).then(|| OrderingKey::of(("machine", name)))
}

/// Whether a pod ran before this process looked at it.
fn runs(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

impl Shared {
    /// Brings the object of a node to what it is to be, and renews its lease.
    async fn settle_node(&self, name: &str) -> Result<(), VirtualNodeError> {
        let Some(machine) = self.fleet.get(name) else { return self.clear_node(name).await };
        self.strays.remove(name);
        let fail = |step| move |source| node_error(step, name, source);
        if self.cluster.is_real(name) {
            return Err(VirtualNodeError::NameTaken(name.to_owned()));
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let Some(node) = self.cluster.node(name) else {
            let node = created(&machine, self.handler, Timestamp::now());
            return match nodes.create(&PostParams::default(), &node).await {
                Ok(node) => self.leases.renew(&node).await.map_err(fail("make the lease")),
                // The event that tells of it is on its way.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                Err(error) => Err(fail("make the object")(error)),
            };
        };
        if standing(&node, self.handler) != Standing::Ours {
            return Err(VirtualNodeError::NameTaken(name.to_owned()));
        }
        if node.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        self.leases.renew(&node).await.map_err(fail("renew the lease"))?;
        self.nodes.fresh(&node)?;
        if let Some(patch) = metadata_patch(&node, &machine, self.handler) {
            let patch = Patch::Strategic(patch);
            // What it changes comes back as an event, and the status is looked at then.
            return match nodes.patch(name, &PatchParams::default(), &patch).await {
                Ok(_) => Ok(()),
                Err(error) => Err(fail("write labels and taints")(error)),
            };
        }
        match status_patch(&node, &machine, Timestamp::now()) {
            Some(patch) => self.nodes.status(&node, patch).await.map(drop).map_err(VirtualNodeError::Status),
            None => Ok(()),
        }
    }

    /// A node without a machine: its object goes, if it is ours and nobody comes for it.
    async fn clear_node(&self, name: &str) -> Result<(), VirtualNodeError> {
        self.leases.forget(name);
        let node = self.cluster.node(name).filter(|node| has_keeper(node, self.handler));
        let departed = self.fleet.has_departed(name);
        let Some(node) = node.filter(|_| departed || self.fleet.is_complete()) else {
            self.fleet.forget(name);
            return Ok(());
        };
        let since = *self.strays.entry(name.to_owned()).or_insert_with(Instant::now);
        if !departed && since.elapsed() < self.policy.orphan_grace {
            return Ok(());
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        let gone = gone(nodes.delete(name, &only(node.metadata.uid.as_ref())).await.map(drop));
        gone.map_err(|error| node_error("delete the object", name, error))?;
        self.strays.remove(name);
        Ok(())
    }

    /// Brings a pod one step nearer to what it is to be.
    async fn settle_pod(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        let Some(pod) = self.cluster.pod(&owner.uid) else { return self.clear_stranger(owner, node).await };
        let Some(machine) = self.fleet.get(node_of(&pod)) else { return Ok(()) };
        let workload = machine.workload(&owner.uid);
        let record = self.records.get(&owner.uid).map(|record| record.clone()).unwrap_or_default();
        let facts = Facts {
            reachable: machine.works(),
            workload: workload.as_deref(),
            applied: record.applied,
            was_there: record.was_there,
        };
        if workload.is_some() && !record.was_there {
            self.records.entry(owner.uid.clone()).or_default().was_there = true;
        }
        match decide(&pod, &facts) {
            Task::Leave => Ok(()),
            Task::Wait => {
                self.tell_of_outage(owner, &machine);
                Ok(())
            }
            Task::Tell => self.write_status(&pod, &machine, (CREATING, "")).await,
            Task::Apply { replaces, lost } => {
                if replaces {
                    self.tell(
                        owner,
                        &Told::Replaced,
                        "the pod changed: what runs of it is removed and made anew".to_owned(),
                    );
                } else if lost {
                    self.tell(
                        owner,
                        &Told::Lost,
                        "the machine does not have any more what it had of this pod; it is made anew"
                            .to_owned(),
                    );
                }
                self.apply(&pod, owner, &machine).await
            }
            Task::Remove => self.remove(&pod, owner, &machine).await,
        }
    }

    async fn apply(
        &self,
        pod: &Arc<Pod>,
        owner: &Owner,
        machine: &Arc<Machine>,
    ) -> Result<(), VirtualNodeError> {
        let Some(back_end) = machine.back_end() else { return self.later(owner, machine, ANSWERLESS) };
        let request = match self.request(pod).await {
            Ok(request) => request,
            Err(error) => return self.refused(pod, machine, error).await,
        };
        match back_end.apply(&request).await {
            Ok(Progress::Done) => {
                if self.is_there(owner, pod) {
                    let pod_there = format!("the pod is on the machine behind {}", machine.name());
                    self.notes.tell(pod_note(self.handler, owner, &Told::Deployed, pod_there));
                }
                machine.poke();
                self.write_status(pod, machine, (CREATING, "")).await
            }
            Ok(Progress::Working { state, ask_again }) => {
                self.agenda.wake(PodDue::new(owner, machine.name()), ask_again);
                machine.poke();
                self.write_status(pod, machine, (CREATING, &state)).await
            }
            Ok(Progress::Failing { reason, message, ask_again }) => {
                let error = VirtualNodeError::Failing { reason: reason.into_owned(), message, ask_again };
                self.refused(pod, machine, error).await
            }
            Err(error) if error.reason() == Reason::Unavailable => self.unanswered(owner, machine),
            Err(error) => self.refused(pod, machine, VirtualNodeError::Apply(error)).await,
        }
    }

    /// The pod is on its machine in its present form. Answers whether that is worth telling.
    fn is_there(&self, owner: &Owner, pod: &Pod) -> bool {
        let mut record = self.records.entry(owner.uid.clone()).or_default();
        let known = record.applied.replace(form(pod)).is_some() || runs(pod);
        record.told.take().is_some() || !known
    }

    /// What the pod asks its machine for.
    async fn request(&self, pod: &Arc<Pod>) -> Result<PodRequest, VirtualNodeError> {
        let environment = self.environments.of(pod).await.map_err(VirtualNodeError::Environment)?;
        Ok(PodRequest { pod: Arc::clone(pod), environment })
    }

    /// The pod stays as it is, and its status says why.
    async fn refused(
        &self,
        pod: &Pod,
        machine: &Machine,
        error: VirtualNodeError,
    ) -> Result<(), VirtualNodeError> {
        use staffetta_handler::{Failure, causes};
        let (reason, why) = match &error {
            VirtualNodeError::Failing { reason, message, .. } => (reason.as_str(), message.clone()),
            other => (other.reason(), causes(other)),
        };
        self.write_status(pod, machine, (reason, &why)).await?;
        Err(error)
    }

    /// Rids the machine of a pod whose deletion was asked for, and ends the deletion: nobody else does.
    async fn remove(&self, pod: &Pod, owner: &Owner, machine: &Arc<Machine>) -> Result<(), VirtualNodeError> {
        if !self.is_rid(owner, machine).await? {
            return Ok(());
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.namespace);
        let params = DeleteParams { grace_period_seconds: Some(0), ..only(pod.metadata.uid.as_ref()) };
        gone(pods.delete(&owner.name, &params).await.map(drop))
            .map_err(|error| VirtualNodeError::Delete(Box::new(error)))?;
        self.forget(&owner.uid);
        Ok(())
    }

    /// What runs on a machine and has no pod: it is removed if its pod went while this process looked on, or if it is ours and
    /// nobody has come for it.
    async fn clear_stranger(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        let clearing = self.records.get(&owner.uid).is_some_and(|record| record.clearing);
        let orphan = || self.fleet.get(node).is_some_and(|machine| machine.has_orphan(&owner.uid));
        if clearing || orphan() { self.clear_pod(owner, node).await } else { Ok(()) }
    }

    /// What runs on a machine of a pod that is no more.
    async fn clear_pod(&self, owner: &Owner, node: &str) -> Result<(), VirtualNodeError> {
        self.pods.forget(owner.uid.as_str());
        let Some(machine) = self.fleet.get(node).filter(|machine| machine.works()) else {
            self.forget(&owner.uid);
            return Ok(());
        };
        self.records.entry(owner.uid.clone()).or_default().clearing = true;
        // A pod that this program cannot decode is in no index, and exists all the same.
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.namespace);
        let there = match pods.get_metadata_opt(&owner.name).await {
            Ok(there) => there,
            Err(error) => return Err(VirtualNodeError::Owner(Box::new(error))),
        };
        if there.is_some_and(|there| there.metadata.uid.as_deref() == Some(owner.uid.as_str())) {
            self.forget(&owner.uid);
            return Ok(());
        }
        if self.is_rid(owner, &machine).await? {
            if machine.workload(&owner.uid).is_some() {
                let text = "the pod is no more; nothing of it is left on the machine".to_owned();
                self.notes.tell(pod_note(self.handler, owner, &Told::Removed, text));
            }
            self.forget(&owner.uid);
        }
        Ok(())
    }

    /// One step nearer to a machine without anything of `owner`. Answers whether that is so; if not, it is looked at again.
    async fn is_rid(&self, owner: &Owner, machine: &Arc<Machine>) -> Result<bool, VirtualNodeError> {
        let Some(back_end) = machine.back_end() else {
            return self.later(owner, machine, ANSWERLESS).map(|()| false);
        };
        match back_end.remove(owner).await {
            Ok(Progress::Done) => {
                machine.poke();
                Ok(true)
            }
            Ok(Progress::Working { ask_again, .. }) => self.later(owner, machine, ask_again).map(|()| false),
            Ok(Progress::Failing { reason, message, ask_again }) => {
                Err(VirtualNodeError::Failing { reason: reason.into_owned(), message, ask_again })
            }
            Err(error) if error.reason() == Reason::Unavailable => {
                self.unanswered(owner, machine).map(|()| false)
            }
            Err(error) => Err(VirtualNodeError::Remove(error)),
        }
    }

    /// Only the reader of a machine knocks at one that does not answer: it is read now, and the pod waits for what comes of it.
    fn unanswered(&self, owner: &Owner, machine: &Arc<Machine>) -> Result<(), VirtualNodeError> {
        machine.poke();
        self.later(owner, machine, ANSWERLESS)
    }

    #[expect(clippy::unnecessary_wraps, reason = "it ends the turn of its callers")]
    fn later(&self, owner: &Owner, machine: &Arc<Machine>, wait: Duration) -> Result<(), VirtualNodeError> {
        self.agenda.wake(PodDue::new(owner, machine.name()), wait);
        Ok(())
    }

    async fn write_status(
        &self,
        pod: &Pod,
        machine: &Machine,
        why: (&str, &str),
    ) -> Result<(), VirtualNodeError> {
        let workload = machine.workload(&Owner::of(&pod.metadata).uid);
        let seen = Seen { workload: workload.as_deref(), why, host_ip: machine.spec().host_ip };
        let Some(patch) = patch(pod, &status(pod, &seen, Timestamp::now())) else { return Ok(()) };
        self.pods.fresh(pod)?;
        self.pods.status(pod, patch).await.map(drop).map_err(VirtualNodeError::Status)
    }

    /// A pod that waits for its machine says so, once an outage.
    fn tell_of_outage(&self, owner: &Owner, machine: &Machine) {
        let Some(outage) = machine.outage() else { return };
        let settled = self.records.get(&owner.uid).is_some_and(|record| record.applied.is_some());
        if !settled {
            let text =
                format!("{} cannot be reached, the pod waits for it: {}", machine.name(), outage.message);
            self.tell(owner, &Told::Waits, text);
        }
    }

    /// Tells something once, until something else is told.
    fn tell(&self, owner: &Owner, told: &Told, text: String) {
        let before = self.records.entry(owner.uid.clone()).or_default().told.replace(told.clone());
        if before.as_ref() != Some(told) {
            self.notes.tell(pod_note(self.handler, owner, told, text));
        }
    }

    fn forget(&self, uid: &Uid) {
        self.records.remove(uid);
        self.agenda.forget(uid.as_str());
        self.pods.forget(uid.as_str());
    }
}

fn node_error(step: &'static str, name: &str, source: kube::Error) -> VirtualNodeError {
    VirtualNodeError::Node { step, name: name.to_owned(), source: Box::new(source) }
}

/// Deletes this object and no other of its name.
fn only(uid: Option<&String>) -> DeleteParams {
    let preconditions = Preconditions { uid: uid.cloned(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

/// An object that is gone, or another one by now, is deleted.
fn gone(deleted: Result<(), kube::Error>) -> Result<(), kube::Error> {
    match deleted {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}

impl ResourceEventHandler<Pod> for VirtualNodes {
    type Error = VirtualNodeError;

    fn wants(&self, event: &Event<Pod>) -> bool {
        match event.object() {
            Some(pod) => !node_of(pod).is_empty() && !self.0.cluster.is_real(node_of(pod)),
            None => true,
        }
    }

    fn group(&self, event: &Event<Pod>) -> Option<OrderingKey> {
        event.object().and_then(|pod| node_group(node_of(pod)))
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<(), VirtualNodeError> {
        self.0.settle_pod(&Owner::of(&pod.metadata), node_of(pod)).await
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<(), VirtualNodeError> {
        self.0.settle_pod(&Owner::of(&pod.metadata), node_of(pod)).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<(), VirtualNodeError> {
        match tombstone {
            Tombstone::Last(pod) => self.0.clear_pod(&Owner::of(&pod.metadata), node_of(pod)).await,
            // What is left of one that went unseen has no owner: its machine's reader finds that out.
            Tombstone::Missed(identity) => {
                self.0.forget(&identity.uid.as_str().into());
                Ok(())
            }
        }
    }
}

impl ResourceEventHandler<Node> for VirtualNodes {
    type Error = VirtualNodeError;

    fn wants(&self, event: &Event<Node>) -> bool {
        let name = match event {
            Event::Added(node) | Event::Modified(node) => node.metadata.name.clone().unwrap_or_default(),
            Event::Deleted(tombstone) => tombstone.subject().name.to_owned(),
        };
        self.0.fleet.get(&name).is_some() || !self.0.cluster.is_real(&name)
    }

    fn key(&self, event: &Event<Node>) -> OrderingKey {
        match event {
            Event::Added(node) | Event::Modified(node) => {
                node_key(node.metadata.name.as_deref().unwrap_or_default())
            }
            Event::Deleted(tombstone) => node_key(tombstone.subject().name),
        }
    }

    fn group(&self, event: &Event<Node>) -> Option<OrderingKey> {
        event.object().and_then(|node| node.metadata.name.as_deref()).and_then(node_group)
    }

    async fn on_present(&self, node: &Arc<Node>) -> Result<(), VirtualNodeError> {
        self.0.settle_node(node.metadata.name.as_deref().unwrap_or_default()).await
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Node>) -> Result<(), VirtualNodeError> {
        self.0.settle_node(tombstone.subject().name).await
    }
}

impl SignalHandler<PodDue> for VirtualNodes {
    type Error = VirtualNodeError;

    fn group(&self, signal: &PodDue) -> Option<OrderingKey> {
        node_group(&signal.node)
    }

    async fn on_signal(&self, signal: &PodDue) -> Result<(), VirtualNodeError> {
        self.0.settle_pod(&signal.owner(), &signal.node).await
    }
}

impl SignalHandler<NodeDue> for VirtualNodes {
    type Error = VirtualNodeError;

    fn key(&self, signal: &NodeDue) -> OrderingKey {
        node_key(signal.name())
    }

    /// A node has a turn beside its pods, so that none of them keeps its lease from being renewed.
    fn group(&self, signal: &NodeDue) -> Option<OrderingKey> {
        Some(node_key(signal.name()))
    }

    async fn on_signal(&self, signal: &NodeDue) -> Result<(), VirtualNodeError> {
        self.0.settle_node(signal.name()).await
    }
}
