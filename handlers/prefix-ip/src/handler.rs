//! The handler of nodes and pods: a node gets its capacity, and a pod that requests an address gets one in
//! its annotation.
//!
//! The address in the status of a pod counts always. The annotation counts only if the pod uses no address yet when its node becomes
//! known, as after a restart. Later, the table of nodes counts, and an annotation that is lost or says something else is replaced.
//!
//! A pod that needs an address and does not request it, because the webhook did not change it, gets one all
//! the same, and an Event.
//!
//! An invocation for a pod without a free address succeeds: the pool of its node wakes the pod later, by an
//! [`AddressReady`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::{Client, ResourceExt};
use serde_json::json;
use staffetta_driver::prefix::PrefixProvider;
use staffetta_driver::{PodLifecycle, Uid};
use staffetta_handler::{
    Action, Event, EventNote, Identity, Interest, MetadataPatch, Object, Recorder, Registration,
    ResourceEventHandler, Tombstone, Trigger, TriggerHandler, Writer, Written,
};
use staffetta_pool::Wait;
use tracing::warn;

use crate::HANDLER;
use crate::address::PRIVATE_IPV4_ADDRESS;
use crate::admission::requests_address;
use crate::cluster::{CONFIG_MAP, WatchedCluster, instance, is_options_map, node_of};
use crate::error::{
    ADDRESS_NOT_REQUESTED, ADDRESS_RESTORED, ADDRESS_SHARED, NO_ADDRESS, NoAddress, OPTION_NOT_USED,
    OPTIONS_DELETED, PrefixIpError, UNSUPPORTED,
};
use crate::nodes::{KnownPod, NodeTable};
use crate::published::{AddressAnnotations, PublishedAddresses};
use crate::settings::Settings;
use crate::source::{AddressReady, NodeRefresh, PrefixSource, record_reports};
use crate::worker::Worker;

/// The handler `prefix_ip`, which gives nodes their capacity and pods their addresses.
pub struct PrefixIpHandler {
    provider: Arc<dyn PrefixProvider>,
    cluster: Arc<WatchedCluster>,
    table: Arc<NodeTable>,
    nodes: Writer<Node>,
    pods: Writer<Pod>,
    published: Arc<dyn PublishedAddresses>,
    recorder: Recorder,
    /// `true` in a dry run, which ends before a waiting pod could be woken.
    dry_run: bool,
}

impl PrefixIpHandler {
    /// Creates the handler. It writes through `client`, and records Events through `recorder`.
    pub fn new(
        client: Client,
        provider: Arc<dyn PrefixProvider>,
        cluster: Arc<WatchedCluster>,
        table: Arc<NodeTable>,
        recorder: Recorder,
    ) -> Self {
        let (nodes, pods) = (Writer::new(client.clone()), Writer::new(client.clone()));
        let published = Arc::new(AddressAnnotations::new(client));
        Self { provider, cluster, table, nodes, pods, published, recorder, dry_run: false }
    }

    /// Switches to a dry run: for a pod that must wait for an address, the handler returns an error with the reason instead of waiting, so
    /// that the dry run shows the reason.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Registers the handler for nodes, pods and the `ConfigMap` with the options, and their indexes. The network interfaces of nodes are
    /// read and compared with the table of nodes every `resync_interval`.
    pub fn registration(self, resync_interval: Duration) -> Registration<Self> {
        let cluster = Arc::clone(&self.cluster);
        let worker = Worker {
            provider: Arc::clone(&self.provider),
            nodes: Arc::clone(&self.table),
            published: Arc::clone(&self.published),
            resync_interval,
            report: record_reports(Arc::clone(&cluster), self.recorder.clone()),
        };
        Registration::new(self)
            .on::<Node>()
            .on::<Pod>()
            .on::<ConfigMap>()
            .on_trigger::<NodeRefresh>()
            .on_trigger::<AddressReady>()
            .source(PrefixSource { worker, cluster: Arc::clone(&cluster) })
            .index::<Node>(Arc::clone(&cluster))
            .index::<Pod>(Arc::clone(&cluster))
            .index::<ConfigMap>(cluster)
            .select::<ConfigMap>(|kind| {
                let (namespace, name) = CONFIG_MAP;
                kind.field_selector = Some(format!("metadata.namespace={namespace},metadata.name={name}"));
            })
    }

    /// Returns `true` if pods of the node get addresses: it is a labelled node with a machine, and the options switch addresses on.
    fn serves(&self, node: &str) -> bool {
        self.cluster.node(node).is_some() && self.cluster.settings().enabled
    }

    /// Adds a node to the table, unless it is there: reads its network interface, and recovers the addresses of the pods of its machine.
    async fn learn(&self, node: &Node) -> Result<(), PrefixIpError> {
        let name = node.name_any();
        let Some(machine) = instance(node) else { return Ok(()) };
        if self.table.contains(&name, &machine) {
            return Ok(());
        }
        let read = self.provider.interfaces(std::slice::from_ref(&machine)).await;
        let mut interfaces = read.map_err(PrefixIpError::ReadInterface)?;
        let interface =
            interfaces.remove(&machine).ok_or_else(|| PrefixIpError::NoMachine(machine.to_string()))?;
        let shared = self.table.add(
            &name,
            &machine,
            &interface,
            || self.cluster.settings(),
            || self.cluster.pods(&machine, &interface.blocks),
        );
        for (pod, owner) in &shared {
            self.report_shared(node, pod, owner);
        }
        Ok(())
    }

    /// Records the Event about two pods with one address on their node.
    fn report_shared(&self, node: &Node, pod: &KnownPod, owner: &Uid) {
        let text = format!(
            "the pod {} uses or claims {}, the address of the pod {owner}; delete the former if it runs",
            pod.uid, pod.address
        );
        self.warn(node, ADDRESS_SHARED, text);
    }

    /// Records a warning Event on `object`.
    fn warn(&self, object: &dyn Object, reason: &'static str, text: String) {
        let regarding = Identity::of_object(object);
        self.recorder.record(EventNote { handler: HANDLER, regarding, warning: true, reason, text });
    }

    /// Gives the address of a pod back to the pool of `node`. Without a node, searches the pools of all nodes for the address.
    fn give_back(&self, node: Option<&str>, uid: &str) {
        let uid = uid.into();
        self.cluster.waiting.remove(&uid);
        match node {
            Some(node) => self.table.give_back(node, &uid),
            None => self.table.give_back_anywhere(&uid),
        }
    }

    /// Gives a pod its address if it needs one. The address of a pod that has ended goes back to the pool of its node.
    async fn reconcile(&self, pod: &Arc<Pod>) -> Result<(), PrefixIpError> {
        let Some(node) = node_of(pod) else { return Ok(()) };
        match PodLifecycle::of(pod) {
            PodLifecycle::Finished { .. } => {
                self.give_back(Some(node), &pod.uid().unwrap_or_default());
                Ok(())
            }
            PodLifecycle::Starting | PodLifecycle::Started if self.cluster.admission.needs_address(pod) => {
                if !self.serves(node) {
                    // The node may get its label, or the function may be switched on.
                    self.cluster.waiting.add(&pod.uid().unwrap_or_default().into(), pod, node);
                    return Ok(());
                }
                self.pods.fresh(pod)?;
                self.publish(pod, node).await
            }
            _ => Ok(()),
        }
    }

    /// Writes the address of a pod into its annotation. For a pod that has none and has not started, takes one from the pool of `node`, or
    /// leaves the pod waiting. A started pod without an address gets none; its annotation, if it has one, is an error.
    async fn publish(&self, pod: &Arc<Pod>, node: &str) -> Result<(), PrefixIpError> {
        let uid = Uid::from(pod.uid().unwrap_or_default());
        let life = PodLifecycle::of(pod);
        let published = pod.annotations().get(PRIVATE_IPV4_ADDRESS);
        // A read that ends meanwhile wakes the pod only if it waits already.
        self.cluster.waiting.add(&uid, pod, node);
        let known = self.cluster.pod(node, uid.as_str());
        if let Some(known) = &known
            && let Some(owner) = self.table.confirm(node, known)
            && let Some(node) = self.cluster.node(node)
        {
            self.report_shared(&node, known, &owner);
        }
        let awaits_read = self.table.awaits_read(node, &uid);
        let held = self.table.address_of(node, &uid);
        if held.is_none() && life != PodLifecycle::Starting {
            if awaits_read {
                return self.wait(pod, &uid, node, Some(Wait::Growing));
            }
            // A started pod has its network already: an address would only be lost on it.
            self.cluster.waiting.remove(&uid);
            return if published.is_some() { Err(PrefixIpError::ForeignAddress) } else { Ok(()) };
        }
        let taken = match self.table.take(node, &uid) {
            Some(Ok(taken)) => taken,
            Some(Err(wait)) => return self.wait(pod, &uid, node, Some(wait)),
            None => return self.wait(pod, &uid, node, None),
        };
        self.cluster.waiting.remove(&uid);
        let value = format!("{}/{}", taken.address, taken.length);
        let is_lost = known.is_some() && published.is_none();
        let is_changed = published.is_some_and(|published| *published != value);
        let patch = MetadataPatch::default().annotate(PRIVATE_IPV4_ADDRESS, value.clone()).claim();
        if self.pods.metadata(pod, &patch).await? == Written::Gone {
            self.table.give_back(node, &uid);
            return Ok(());
        }
        if is_lost || is_changed {
            let before = published.map_or("missing", String::as_str);
            let text = format!(
                "the annotation {PRIVATE_IPV4_ADDRESS} of the pod was {before}; its address {value} was written again"
            );
            self.warn(&**pod, ADDRESS_RESTORED, text);
        }
        if held.is_none() && !requests_address(pod) {
            let text = format!(
                "the pod has an address, but does not request {PRIVATE_IPV4_ADDRESS}, so that the scheduler does not count it: the webhook was not called; check it, or add the resource to the pod"
            );
            self.warn(&**pod, ADDRESS_NOT_REQUESTED, text);
        }
        Ok(())
    }

    /// Leaves a pod waiting until the pool of its node wakes it. An Event reports a wait that may be long,
    /// once for each reason. In a dry run, returns an error instead.
    fn wait(&self, pod: &Pod, uid: &Uid, node: &str, wait: Option<Wait>) -> Result<(), PrefixIpError> {
        let wait = NoAddress { node: node.to_owned(), wait };
        if self.dry_run {
            return Err(wait.into());
        }
        let is_short = match wait.wait {
            None => !self.table.is_unread(node) || PodLifecycle::of(pod) != PodLifecycle::Starting,
            Some(wait) => wait == Wait::Growing,
        };
        if !is_short && self.cluster.waiting.record_reason(uid, wait.remedy()) {
            warn!(namespace = pod.namespace(), name = pod.name_any(), node, "{wait}");
            self.warn(pod, NO_ADDRESS, wait.to_string());
        }
        Ok(())
    }
}

impl ResourceEventHandler<Node> for PrefixIpHandler {
    type Error = PrefixIpError;

    async fn on_present(&self, node: &Arc<Node>) -> Result<Action, PrefixIpError> {
        let name = node.name_any();
        let managed = self.cluster.node(&name).is_some();
        let mut learned = Ok(());
        if self.serves(&name) {
            self.nodes.fresh(node)?;
            learned = self.learn(node).await;
            if let Err(error) = &learned {
                self.table.record_unread(&name, matches!(error, PrefixIpError::NoMachine(_)));
            }
            self.table.wake(self.cluster.waiting.of_node(&name));
        }
        self.table.manage(&name, managed, || self.cluster.settings());
        let shown =
            node.status.as_ref().and_then(|status| status.capacity.as_ref()?.get(PRIVATE_IPV4_ADDRESS));
        // After a restart, the table lacks the nodes of a function that is switched off. They advertise nothing.
        let is_withdrawn = managed && shown.is_some() && self.cluster.is_switched_off();
        let capacity = self.table.capacity(&name).or(is_withdrawn.then_some(0));
        let Some(capacity) = capacity.map(|capacity| Quantity(capacity.to_string())) else {
            return learned.map(Action::from);
        };
        if self.table.newly_lacks_prefixes(&name) {
            self.warn(&**node, UNSUPPORTED, PREFIXES_UNSUPPORTED.to_owned());
        }
        if shown != Some(&capacity) {
            let status = json!({ "capacity": { PRIVATE_IPV4_ADDRESS: capacity } });
            self.nodes.status(node, status).await?;
        }
        learned.map(Action::from)
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Node>) -> Result<Action, PrefixIpError> {
        let object = tombstone.object_ref();
        self.nodes.forget(object.uid);
        // A new node may have the name already, with another machine or with the same one.
        let machine = self.cluster.node(object.name).and_then(|node| instance(&node));
        self.table.remove(object.name, machine.as_ref());
        Ok(Action::done())
    }
}

impl TriggerHandler<NodeRefresh> for PrefixIpHandler {
    type Error = PrefixIpError;

    async fn on_trigger(&self, refresh: &NodeRefresh) -> Result<Action, PrefixIpError> {
        match self.cluster.node(&refresh.identity().name) {
            Some(node) => self.on_present(&node).await,
            None => Ok(Action::done()),
        }
    }
}

/// The explanation for a node that gets no prefixes.
const PREFIXES_UNSUPPORTED: &str = "the type of the machine does not support prefixes (only Nitro and bare metal do); its pods get \
    single addresses";
/// The explanation for a pod that gets no address, because it needs none.
const NEEDS_NONE: &str =
    "it gets no address, because it does not request one and has no node selector that implies one";
/// The explanation for a pod that gets no address yet, because of its node or the options.
const NOT_SERVED: &str = "it gets no address while its node is not a managed instance, or addresses are switched off by \
    the options of the handler";

impl ResourceEventHandler<ConfigMap> for PrefixIpHandler {
    type Error = PrefixIpError;

    fn wants(&self, event: &Event<ConfigMap>) -> Interest {
        let other = !is_options_map(&event.object_ref());
        Interest::unless(other.then_some("it is not the ConfigMap with the options of the handler"))
    }

    async fn on_present(&self, map: &Arc<ConfigMap>) -> Result<Action, PrefixIpError> {
        let last = self.cluster.settings();
        for mistake in Settings::read(map.data.as_ref().unwrap_or(&BTreeMap::new()), Some(&last)).1 {
            self.warn(&**map, OPTION_NOT_USED, mistake);
        }
        Ok(Action::done())
    }

    async fn on_deleted(&self, tombstone: &Tombstone<ConfigMap>) -> Result<Action, PrefixIpError> {
        let text = "the options stay as they were while this process runs; set `enable-windows-ipam` to `false` to switch addresses off";
        let regarding = match tombstone {
            Tombstone::Last(map) => Identity::of_object(&**map),
            Tombstone::Missed(identity) => (**identity).clone(),
        };
        let (reason, text) = (OPTIONS_DELETED, text.to_owned());
        self.recorder.record(EventNote { handler: HANDLER, regarding, warning: true, reason, text });
        Ok(Action::done())
    }
}

impl ResourceEventHandler<Pod> for PrefixIpHandler {
    type Error = PrefixIpError;

    fn wants(&self, event: &Event<Pod>) -> Interest {
        let (Event::Added(pod) | Event::Modified(pod)) = event else { return Interest::Taken };
        match node_of(pod) {
            None => Interest::Declined("it has no node yet"),
            Some(_) if !self.cluster.admission.needs_address(pod) => Interest::Limited(NEEDS_NONE),
            Some(node) if !self.serves(node) => Interest::Limited(NOT_SERVED),
            Some(_) => Interest::Taken,
        }
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, PrefixIpError> {
        self.reconcile(pod).await.map(Action::from)
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<Action, PrefixIpError> {
        if let (Some(node), PodLifecycle::Finished { .. }) = (node_of(pod), PodLifecycle::of(pod)) {
            self.give_back(Some(node), &pod.uid().unwrap_or_default());
        }
        Ok(Action::done())
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<Action, PrefixIpError> {
        let object = tombstone.object_ref();
        self.pods.forget(object.uid);
        match tombstone {
            Tombstone::Last(pod) => self.give_back(node_of(pod), object.uid),
            Tombstone::Missed(_) => self.give_back(None, object.uid),
        }
        Ok(Action::done())
    }
}

impl TriggerHandler<AddressReady> for PrefixIpHandler {
    type Error = PrefixIpError;

    async fn on_trigger(&self, ready: &AddressReady) -> Result<Action, PrefixIpError> {
        match self.cluster.waiting.get(&Uid::from(&*ready.identity().uid)) {
            Some(pod) => self.reconcile(&pod).await.map(Action::from),
            None => Ok(Action::done()),
        }
    }
}
