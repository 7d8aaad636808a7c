//! The handler `vif`: gives every pod its VIFs and releases them with the pod.
//!
//! One write publishes the VIFs: annotation and finalizer together. A second one records that the
//! VIFs are active. The API server refuses either if the pod has changed meanwhile. A last write
//! removes the finalizer. The module `decide` chooses the next action; `reconcile` executes it.

mod decide;
mod error;
mod foreign_nodes;
mod leaks;
pub mod networks;
mod pool_feed;
mod reconcile;

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use staffetta_driver::{
    Owner, PodLifecycle, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, VifPoolDriver,
};
use staffetta_handler::{Event, Registration, ResourceEventHandler, Tombstone, Writer};

use self::decide::{VifAction, VifRecord, after_deletion, annotation, has_finalizer};
use self::foreign_nodes::ForeignNodes;
use self::leaks::{LeakDetector, LeakSource};
use self::networks::{AdditionalNetworks, NetworkAttachmentDefinition};
use self::pool_feed::{PoolFeed, is_up_to_date};
use crate::observers::{observe_namespaces, observe_policies};
use crate::owners::owner_of;
use crate::records::RecordMap;
use crate::step_error::{AWAIT_OWN_WRITE, StepContext};

pub use self::error::VifError;
pub use self::leaks::VifsLeaked;

/// The finalizer that keeps a pod until its VIFs are released.
pub const FINALIZER: &str = "staffetta.dev/vif";

/// The drivers of the handler.
#[derive(Clone)]
pub struct VifDrivers {
    /// Chooses the project of a pod.
    pub project: Arc<dyn PodProjectDriver>,
    /// Chooses the subnets of a pod.
    pub subnets: Arc<dyn PodSubnetsDriver>,
    /// Chooses the security groups of a pod.
    pub security_groups: Arc<dyn PodSecurityGroupsDriver>,
    /// Creates, activates, lists and releases VIFs.
    pub pool: Arc<dyn VifPoolDriver>,
    /// The additional networks that pods may request; none if a pod has one network only.
    pub additional: Option<AdditionalNetworks>,
}

/// The handler `vif`.
pub struct VifHandler {
    drivers: VifDrivers,
    writer: Writer<Pod>,
    records: RecordMap<VifRecord>,
    leaks: Arc<LeakDetector>,
    pool_feed: PoolFeed,
    /// The nodes whose pods get no VIF, if there may be any.
    foreign_nodes: Option<Arc<ForeignNodes>>,
}

impl VifHandler {
    /// Creates the handler; it writes through `client`.
    pub fn new(client: Client, drivers: VifDrivers) -> Self {
        Self {
            pool_feed: PoolFeed { pool: Arc::clone(&drivers.pool), complete: Arc::default() },
            drivers,
            writer: Writer::new(client),
            records: RecordMap::default(),
            leaks: Arc::default(),
            foreign_nodes: None,
        }
    }

    /// Ignores the pods of nodes that another handler manages.
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
        let mut registration =
            Registration::new(self).on::<Pod>().on_trigger::<VifsLeaked>().source(leaks).garbage_collector();
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

    /// Returns `true` if the pod runs on a foreign node and this handler holds nothing of it.
    fn is_foreign(&self, pod: &Pod) -> bool {
        self.foreign_nodes.as_ref().is_some_and(|nodes| nodes.contain_node_of(pod))
            && annotation(pod).is_none()
            && !has_finalizer(pod)
            && !self.has_record(pod)
    }

    /// Returns `true` if there is a record of the pod.
    fn has_record(&self, pod: &Pod) -> bool {
        self.records.contains(&Owner::of(&pod.metadata).uid)
    }
}

impl ResourceEventHandler<Pod> for VifHandler {
    type Error = VifError;

    fn wants(&self, event: &Event<Pod>) -> bool {
        match event {
            Event::Added(pod) | Event::Modified(pod) => {
                // While the pool loads, the events of all pods are queued; most need no action and
                // are dropped here.
                let skipped = self.pool_feed.is_loading() && !self.has_record(pod) && is_up_to_date(pod);
                !matches!(PodLifecycle::of(pod), PodLifecycle::HostNetwork | PodLifecycle::Unscheduled)
                    && !skipped
                    && !self.is_foreign(pod)
            }
            Event::Deleted(Tombstone::Last(pod)) => {
                PodLifecycle::of(pod) != PodLifecycle::HostNetwork && !self.is_foreign(pod)
            }
            Event::Deleted(Tombstone::Missed(_)) => true,
        }
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<(), VifError> {
        self.writer.fresh(pod).step(AWAIT_OWN_WRITE)?;
        self.reconcile(pod).await
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<(), VifError> {
        if self.writer.is_stale(pod) { Ok(()) } else { self.reconcile(pod).await }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<(), VifError> {
        self.pool_feed.finish();
        let owner = owner_of(tombstone);
        match tombstone {
            Tombstone::Last(pod) => {
                if after_deletion(pod, self.records.get(&owner.uid)) == VifAction::ReadMarks {
                    self.record_marks(&owner).await?;
                }
                if let VifAction::Release { vifs, .. } = after_deletion(pod, self.records.get(&owner.uid)) {
                    self.release(&owner, &vifs).await?;
                }
            }
            Tombstone::Missed(_) => {
                let vifs = match self.records.get(&owner.uid) {
                    None | Some(VifRecord::Requested) => self.marked_vifs(&owner).await?,
                    Some(record) => record.vifs(),
                };
                self.release(&owner, &vifs).await?;
            }
        }
        self.records.remove(&owner.uid);
        self.leaks.forget(&owner.uid);
        self.writer.forget(owner.uid.as_str());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
