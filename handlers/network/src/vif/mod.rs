//! The handler `vif`: gives every pod its VIFs, and releases them when the pod is finished or
//! deleted.
//!
//! The handler writes three patches. The first one publishes the VIFs: it adds the annotation and
//! the finalizer. The second one changes the annotation when the VIFs are active. The API server
//! refuses these two if the pod has changed meanwhile. The last patch removes the annotation and the
//! finalizer. The module `decide` chooses the next action; `reconcile` executes it.

mod claims;
mod decide;
mod error;
mod foreign_nodes;
mod leaks;
pub mod networks;
mod pool_feed;
mod published;
mod reconcile;
mod restore;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use staffetta_driver::{
    Owner, PodLifecycle, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{
    Action, Event, Interest, OrderingKey, Recorder, Registration, ResourceEventHandler, Tombstone, Writer,
};

use self::decide::{VifAction, VifRecord, after_deletion, annotation, has_finalizer};
use self::foreign_nodes::ForeignNodes;
use self::leaks::{LeakDetector, LeakSource};
use self::networks::{AdditionalNetworks, NetworkAttachmentDefinition};
use self::pool_feed::PoolFeed;
use crate::installation::Installation;
use crate::notices::Notices;
use crate::observers::{observe_namespaces, observe_policies};
use crate::os_vif::PodState;
use crate::owners::owner_of;
use crate::proof::ProofKey;
use crate::records::RecordMap;
use crate::step_error::{AWAIT_OWN_WRITE, StepContext};

pub use self::claims::VifClaims;
pub use self::error::VifError;
pub use self::leaks::VifsLeaked;
pub use self::published::VifAnnotations;

/// The finalizer that delays the deletion of a pod until the handler has seen it. The VIFs are
/// released after the annotation and the finalizer are removed; their ownership marks name the pod.
pub const FINALIZER: &str = "staffetta.dev/vif";

/// The drivers of the handler `vif`.
#[derive(Clone)]
pub struct VifDrivers {
    /// The driver that chooses the project of a pod.
    pub project: Arc<dyn PodProjectDriver>,
    /// The driver that chooses the subnets of a pod.
    pub subnets: Arc<dyn PodSubnetsDriver>,
    /// The driver that chooses the security groups of a pod.
    pub security_groups: Arc<dyn PodSecurityGroupsDriver>,
    /// The VIF pool, which creates, activates, lists and releases VIFs.
    pub pool: Arc<dyn VifPoolDriver>,
    /// The additional networks that pods may request; `None` if every pod has only one network.
    pub additional: Option<AdditionalNetworks>,
}

/// The handler `vif`, which gives pods their VIFs.
pub struct VifHandler {
    drivers: VifDrivers,
    writer: Writer<Pod>,
    records: RecordMap<VifRecord>,
    claims: Arc<VifClaims>,
    notices: Notices,
    /// The state of each pod that publishes additional VIFs, as its annotation showed it last.
    several: RecordMap<PodState>,
    leaks: Arc<LeakDetector>,
    pool_feed: PoolFeed,
    installation: Installation,
    /// The key by which the VIFs of pods are proven to the daemons of nodes; `None` if they are not.
    proof_key: Option<ProofKey>,
    /// The virtual nodes, whose pods get no VIF; `None` if virtual nodes are not distinguished from others.
    foreign_nodes: Option<Arc<ForeignNodes>>,
}

impl VifHandler {
    /// Creates the handler. It writes annotations and finalizers through `client`, records in
    /// `claims` which VIFs belong to which pod, and records Events through `recorder`.
    pub fn new(client: Client, drivers: VifDrivers, claims: Arc<VifClaims>, recorder: Recorder) -> Self {
        Self {
            pool_feed: PoolFeed { pool: Arc::clone(&drivers.pool), complete: Arc::default() },
            drivers,
            writer: Writer::new(client),
            records: RecordMap::default(),
            leaks: Arc::new(LeakDetector::new(Arc::clone(&claims))),
            claims,
            notices: Notices::new("vif", recorder),
            several: RecordMap::default(),
            installation: Installation::default(),
            proof_key: None,
            foreign_nodes: None,
        }
    }

    /// Makes the handler one of this installation.
    #[must_use]
    pub fn managed_by(self, installation: Installation) -> Self {
        Self { installation, ..self }
    }

    /// Makes the handler prove by `key` that it has accepted the VIFs of a pod.
    #[must_use]
    pub fn proven_by(self, key: ProofKey) -> Self {
        Self { proof_key: Some(key), ..self }
    }

    /// Makes the handler ignore the pods on virtual nodes, which another handler manages.
    #[must_use]
    pub fn skip_virtual_nodes(self) -> Self {
        Self { foreign_nodes: Some(Arc::default()), ..self }
    }

    /// Registers the handler for pods, with garbage collection and the indexes that its drivers
    /// need: namespaces, policies, `NetworkAttachmentDefinition`s, pods and nodes.
    pub fn registration(self) -> Registration<Self> {
        let VifDrivers { project, subnets, security_groups, additional, .. } = &self.drivers;
        let namespaces = [project.namespaces(), subnets.namespaces(), security_groups.namespaces()];
        let policies = security_groups.policies();
        let networks = additional.as_ref().map(|additional| Arc::clone(&additional.networks));
        let foreign_nodes = self.foreign_nodes.clone();
        let pool_feed = Arc::new(self.pool_feed.clone());
        let leaks = LeakSource(Arc::clone(&self.leaks));
        let mut registration = Registration::new(self)
            .on::<Pod>()
            .on_trigger::<VifsLeaked>()
            .source(leaks)
            .garbage_collector()
            .keeps_unselected();
        registration = observe_policies(observe_namespaces(registration, namespaces), policies);
        if let Some(nodes) = foreign_nodes {
            registration = registration.index::<Node>(nodes);
        }
        if let Some(networks) = networks {
            registration = registration.index::<NetworkAttachmentDefinition>(networks);
        }
        if pool_feed.pool.observer().is_none() {
            return registration;
        }
        registration.index::<Pod>(Arc::clone(&pool_feed)).index::<Node>(pool_feed)
    }

    /// Returns `true` if the pod runs on a virtual node and has neither an annotation, nor a
    /// finalizer, nor an in-memory record of this handler.
    fn is_foreign(&self, pod: &Pod) -> bool {
        self.foreign_nodes.as_ref().is_some_and(|nodes| nodes.contain_node_of(pod))
            && annotation(pod).is_none()
            && !has_finalizer(pod)
            && !self.records.contains(&Owner::of(&pod.metadata).uid)
    }
}

impl ResourceEventHandler<Pod> for VifHandler {
    type Error = VifError;

    fn wants(&self, event: &Event<Pod>) -> Interest {
        let Some(pod) = event.object() else { return Interest::Taken };
        match PodLifecycle::of(pod) {
            PodLifecycle::HostNetwork => Interest::Declined("it uses the network of its node (hostNetwork)"),
            PodLifecycle::Unscheduled if !matches!(event, Event::Deleted(_)) => {
                Interest::Declined("it has no node yet")
            }
            // The node may have been replaced by one that is not virtual, which the watch has not shown yet.
            _ if self.is_foreign(pod) => {
                Interest::Deferred("it runs on a virtual node, whose machine has a network of its own")
            }
            _ => Interest::Taken,
        }
    }

    /// Pods that have their VIFs from this process or with its consent, by namespace: their activation does not wait behind pods that still
    /// wait for a VIF.
    fn group(&self, event: &Event<Pod>) -> Option<OrderingKey> {
        let pod = event.object().filter(|pod| pod.metadata.deletion_timestamp.is_none())?;
        annotation(pod)?;
        let uid = Owner::of(&pod.metadata).uid;
        let is_known = self.records.contains(&uid) || self.claims.verified(&uid).is_some();
        is_known.then(|| OrderingKey::of(("published", pod.metadata.namespace.as_deref())))
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<Action, VifError> {
        self.writer.fresh(pod).step(AWAIT_OWN_WRITE)?;
        self.reconcile(pod).await.map(Action::from)
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<Action, VifError> {
        if self.writer.fresh(pod).is_err() {
            Ok(Action::done())
        } else {
            self.reconcile(pod).await.map(Action::from)
        }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<Action, VifError> {
        self.pool_feed.finish();
        let owner = owner_of(tombstone);
        let (pod, unknown) = match tombstone {
            // What another installation has published is not ours to release.
            Tombstone::Last(pod) if self.installation.other(&**pod).is_some() => (Arc::default(), None),
            Tombstone::Last(pod) => (Arc::clone(pod), None),
            Tombstone::Missed(_) => (Arc::default(), Some(VifRecord::Requested)),
        };
        let is_known = self.is_known(&owner.uid);
        if after_deletion(&pod, self.records.get(&owner.uid).or(unknown), is_known) == VifAction::ReadMarks {
            self.record_marks(&owner).await?;
        }
        if let VifAction::Release { vifs, .. } = after_deletion(&pod, self.records.get(&owner.uid), false) {
            self.release(&owner, &vifs).await?;
        }
        self.records.remove(&owner.uid);
        self.several.remove(&owner.uid);
        self.claims.forget(&owner.uid);
        self.notices.forget(owner.uid.as_str());
        self.writer.forget(owner.uid.as_str());
        Ok(Action::done())
    }
}

#[cfg(test)]
mod tests;
