//! The handler of nodes and pods: a node gets its capacity, and a pod that requests an address gets one in
//! its annotation.
//!
//! The annotation of a pod counts only if the pod uses no address yet when its node becomes known, as after a
//! restart. Later, only the table of nodes counts, and an annotation that says something else is replaced.
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
use staffetta_driver::pool::Wait;
use staffetta_driver::prefix::PrefixProvider;
use staffetta_driver::{PodLifecycle, Uid};
use staffetta_handler::{
    Event, EventNote, Identity, Interest, MetadataPatch, Object, Recorder, Registration,
    ResourceEventHandler, Tombstone, Trigger, TriggerHandler, Writer, Written,
};
use tracing::warn;

use crate::HANDLER;
use crate::address::PRIVATE_IPV4_ADDRESS;
use crate::admission::requests_address;
use crate::cluster::{CONFIG_MAP, WatchedCluster, instance, is_options_map, node_of};
use crate::error::{
    ADDRESS_FOREIGN, ADDRESS_NOT_REQUESTED, ADDRESS_SHARED, NO_ADDRESS, NoAddress, OPTION_NOT_USED,
    PrefixIpError,
};
use crate::nodes::{NodeTable, Recovery};
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
        let (nodes, pods) = (Writer::new(client.clone()), Writer::new(client));
        Self { provider, cluster, table, nodes, pods, recorder, dry_run: false }
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

    /// Adds a node to the table, unless it is there: reads its network interface, and recovers the addresses of its pods.
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
        let Recovery { shared, foreign } = self.table.add(
            &name,
            &machine,
            &interface,
            || self.cluster.settings(),
            || self.cluster.pods(&name),
        );
        for (pod, owner) in &shared {
            let text = format!(
                "the pod {} uses or claims {}, the address of the pod {owner}; delete the former if it runs",
                pod.uid, pod.address
            );
            self.warn(node, ADDRESS_SHARED, text);
        }
        for pod in &foreign {
            let text = format!(
                "the pod {} uses or claims {}, which is in no block of the node; delete the pod if it runs",
                pod.uid, pod.address
            );
            self.warn(node, ADDRESS_FOREIGN, text);
        }
        Ok(())
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
        let patch = MetadataPatch::default().annotate(PRIVATE_IPV4_ADDRESS, value).claim();
        match self.pods.metadata(pod, &patch).await? {
            Written::Gone => self.table.give_back(node, &uid),
            Written::Done if held.is_none() && !requests_address(pod) => {
                let text = format!(
                    "the pod has an address, but does not request {PRIVATE_IPV4_ADDRESS}, so that the scheduler does not count it: the webhook was not called; check it, or add the resource to the pod"
                );
                self.warn(&**pod, ADDRESS_NOT_REQUESTED, text);
            }
            Written::Done => {}
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
        if !wait.is_short() && self.cluster.waiting.record_reason(uid, wait.remedy()) {
            warn!(namespace = pod.namespace(), name = pod.name_any(), node, "{wait}");
            self.warn(pod, NO_ADDRESS, wait.to_string());
        }
        Ok(())
    }
}

impl ResourceEventHandler<Node> for PrefixIpHandler {
    type Error = PrefixIpError;

    async fn on_present(&self, node: &Arc<Node>) -> Result<(), PrefixIpError> {
        let name = node.name_any();
        let managed = self.cluster.node(&name).is_some();
        if self.serves(&name) {
            self.nodes.fresh(node)?;
            self.learn(node).await?;
            self.table.wake(self.cluster.waiting.of_node(&name));
        }
        self.table.manage(&name, managed, || self.cluster.settings());
        let shown =
            node.status.as_ref().and_then(|status| status.capacity.as_ref()?.get(PRIVATE_IPV4_ADDRESS));
        // After a restart, the table lacks the nodes of a function that is switched off. They advertise nothing.
        let withdrawn = (managed && shown.is_some()).then_some(0);
        let Some(capacity) = self.table.capacity(&name).or(withdrawn) else { return Ok(()) };
        let capacity = Quantity(capacity.to_string());
        if shown != Some(&capacity) {
            let status = json!({ "capacity": { PRIVATE_IPV4_ADDRESS: capacity } });
            self.nodes.status(node, status).await?;
        }
        Ok(())
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Node>) -> Result<(), PrefixIpError> {
        let object = tombstone.object_ref();
        self.nodes.forget(object.uid);
        // A new node may have the name already, with another machine or with the same one.
        let machine = self.cluster.node(object.name).and_then(|node| instance(&node));
        self.table.remove(object.name, machine.as_ref());
        Ok(())
    }
}

impl TriggerHandler<NodeRefresh> for PrefixIpHandler {
    type Error = PrefixIpError;

    async fn on_trigger(&self, refresh: &NodeRefresh) -> Result<(), PrefixIpError> {
        match self.cluster.node(&refresh.identity().name) {
            Some(node) => self.on_present(&node).await,
            None => Ok(()),
        }
    }
}

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

    async fn on_present(&self, map: &Arc<ConfigMap>) -> Result<(), PrefixIpError> {
        for mistake in Settings::read(map.data.as_ref().unwrap_or(&BTreeMap::new())).1 {
            self.warn(&**map, OPTION_NOT_USED, mistake);
        }
        Ok(())
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

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<(), PrefixIpError> {
        self.reconcile(pod).await
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<(), PrefixIpError> {
        if let (Some(node), PodLifecycle::Finished { .. }) = (node_of(pod), PodLifecycle::of(pod)) {
            self.give_back(Some(node), &pod.uid().unwrap_or_default());
        }
        Ok(())
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<(), PrefixIpError> {
        let object = tombstone.object_ref();
        self.pods.forget(object.uid);
        match tombstone {
            Tombstone::Last(pod) => self.give_back(node_of(pod), object.uid),
            Tombstone::Missed(_) => self.give_back(None, object.uid),
        }
        Ok(())
    }
}

impl TriggerHandler<AddressReady> for PrefixIpHandler {
    type Error = PrefixIpError;

    async fn on_trigger(&self, ready: &AddressReady) -> Result<(), PrefixIpError> {
        match self.cluster.waiting.get(&Uid::from(&*ready.identity().uid)) {
            Some(pod) => self.reconcile(&pod).await,
            None => Ok(()),
        }
    }
}
