//! The handler `vif`: every pod gets a VIF, and gives it back.
//!
//! One write takes a pod to its VIF: the annotation and the finalizer together. One more tells that the VIF is active; the server
//! refuses both if the pod changed meanwhile. One at the end removes the finalizer. What to do is decided by
//! the module `decide`, without a look at anything but the event and the claims; this file does it.

mod claims;
mod decide;
mod error;
pub mod networks;
mod spared;
mod strays;
mod sweep;
mod told;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{Client, ResourceExt};
use staffetta_driver::{
    Activation, Life, Owner, PodProjectDriver, PodSecurityGroupsDriver, PodSubnetsDriver, Uid, Vif,
    VifPoolDriver, VifRequest,
};
use staffetta_handler::{
    Event, Failure, MetadataPatch, Registration, ResourceEventHandler, Signal, SignalHandler, Tombstone,
    WriteError, Writer, Written,
};
use tracing::warn;

use self::claims::{Claim, Claims};
use self::decide::{Action, after_deletion, annotation, decide, may_change};
use self::networks::{Further, FurtherNetworks, NetworkAttachmentDefinition, NetworksError, asks};
use self::spared::SparedNodes;
use self::strays::{StrayNews, Strays};
use self::told::{ShownVifs, ToldNodes, is_settled};
use crate::namespaces::feeding;
use crate::network_policies;
use crate::os_vif::{KURYR_VIF, PodState};
use crate::owners::owner_of;

pub use self::error::VifError;
pub use self::strays::Strayed;

/// The finalizer by which a pod waits for the release of its VIF.
pub const FINALIZER: &str = "staffetta.dev/vif";

/// The drivers of the handler.
#[derive(Clone)]
pub struct VifDrivers {
    /// To which project a pod belongs.
    pub project: Arc<dyn PodProjectDriver>,
    /// In which subnets it gets its addresses.
    pub subnets: Arc<dyn PodSubnetsDriver>,
    /// Which security groups guard it.
    pub security_groups: Arc<dyn PodSecurityGroupsDriver>,
    /// Who makes, activates, finds and releases VIFs.
    pub pool: Arc<dyn VifPoolDriver>,
    /// The further networks for which pods ask, where they may.
    pub further: Option<FurtherNetworks>,
}

/// The handler `vif`.
pub struct VifHandler {
    drivers: VifDrivers,
    writer: Writer<Pod>,
    claims: Claims,
    strays: Arc<Strays>,
    /// Whether the first event came: from then on the pool knows what all pods show.
    begun: Arc<AtomicBool>,
    /// The nodes whose pods have another network, where there may be such nodes.
    spared: Option<Arc<SparedNodes>>,
}

impl VifHandler {
    /// Writes through `client`.
    pub fn new(client: Client, drivers: VifDrivers) -> Self {
        Self {
            drivers,
            writer: Writer::new(client),
            claims: Claims::default(),
            strays: Arc::default(),
            begun: Arc::default(),
            spared: None,
        }
    }

    /// Leaves the pods of nodes alone that another handler keeps.
    #[must_use]
    pub fn beside_virtual_nodes(self) -> Self {
        Self { spared: Some(Arc::default()), ..self }
    }

    /// The handler as it is registered: for pods, with a sweep; with namespaces and policies where a driver wants to know them, with
    /// `NetworkAttachmentDefinition`s where pods may have further networks, and with indexes of what pods show and of nodes where the
    /// pool must be told of these, or pods may be on nodes that another handler keeps.
    pub fn registration(self) -> Registration<Self> {
        let VifDrivers { project, subnets, security_groups, .. } = &self.drivers;
        let observers = [project.namespaces(), subnets.namespaces(), security_groups.namespaces()];
        let policies = security_groups.policies();
        let (pool, begun) = (Arc::clone(&self.drivers.pool), Arc::clone(&self.begun));
        let further = self.drivers.further.as_ref().map(|further| Arc::clone(&further.networks));
        let spared = self.spared.clone();
        let news = StrayNews(Arc::clone(&self.strays));
        let registration = Registration::new(self).on::<Pod>().on_signal::<Strayed>().source(news).sweep();
        let registration = feeding(registration, observers);
        let registration = network_policies::feeding(registration, policies);
        let registration = match spared {
            Some(spared) => registration.index::<Node>(spared),
            None => registration,
        };
        let registration = match further {
            Some(networks) => registration.index::<NetworkAttachmentDefinition>(networks),
            None => registration,
        };
        if pool.ledger().is_none() {
            return registration;
        }
        let shown = ShownVifs { pool: Arc::clone(&pool), begun };
        registration.index::<Pod>(Arc::new(shown)).index::<Node>(Arc::new(ToldNodes(pool)))
    }

    /// The indexes are complete by now, and the pool is told so.
    fn begin(&self) {
        if !self.begun.swap(true, Ordering::AcqRel)
            && let Some(ledger) = self.drivers.pool.ledger()
        {
            ledger.begin();
        }
    }

    async fn act(&self, pod: &Pod) -> Result<(), VifError> {
        self.begin();
        let owner = Owner::of(&pod.metadata);
        loop {
            let several = self.drivers.further.is_some() && asks(pod);
            match decide(pod, self.claims.get(&owner.uid), several).map_err(VifError::Annotation)? {
                Action::Nothing => return Ok(()),
                Action::Find => self.find(&owner).await?,
                Action::Request => {
                    let state = self.request(pod, &owner).await?;
                    return self.claim(pod, &owner, &state).await;
                }
                Action::Write(state) => return self.claim(pod, &owner, &state).await,
                Action::Discard(vifs) => {
                    self.release(&owner, &vifs).await?;
                    self.claims.forget(&owner.uid);
                }
                Action::Settle { surplus, state } => {
                    self.release(&owner, &surplus).await?;
                    self.claims.forget(&owner.uid);
                    return self.settle(pod, &owner, *state).await;
                }
                Action::Release { vifs, patch } => {
                    // What is kept for the next pod goes to it after this one has ceased to show it, so that no two ever do.
                    let (kept, own) =
                        vifs.into_iter().partition::<Vec<_>, _>(|vif| self.drivers.pool.keeps(&vif.id));
                    self.release(&owner, &own).await?;
                    self.claims.set(&owner.uid, Claim::Released(kept.clone()));
                    self.writer.metadata(pod, &patch).await.map_err(VifError::Write)?;
                    self.release(&owner, &kept).await?;
                    self.claims.set(&owner.uid, Claim::Released(Vec::new()));
                    return Ok(());
                }
            }
        }
    }

    /// Claims what the marks show.
    async fn find(&self, owner: &Owner) -> Result<(), VifError> {
        let vifs = self.marked(owner).await?;
        self.claims.set(&owner.uid, Claim::Held(vifs));
        Ok(())
    }

    async fn marked(&self, owner: &Owner) -> Result<Vec<Vif>, VifError> {
        let marks = self.drivers.pool.vifs(Some(owner)).await.map_err(VifError::Marks)?;
        Ok(marks.into_iter().map(|marked| marked.thing).collect())
    }

    async fn request(&self, pod: &Pod, owner: &Owner) -> Result<PodState, VifError> {
        let VifDrivers { project, subnets, security_groups, .. } = &self.drivers;
        let further = self.further(pod).map_err(VifError::Networks)?;
        let project = project.project(pod).await.map_err(VifError::Project)?;
        let subnets = subnets.subnets(pod, &project).await.map_err(VifError::Subnets)?;
        if subnets.is_empty() {
            return Err(VifError::NoSubnet);
        }
        let security_groups =
            security_groups.security_groups(pod, &project).await.map_err(VifError::SecurityGroups)?;
        let node_name = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        let host_ip = pod.status.as_ref().and_then(|status| status.host_ip.as_deref()?.parse().ok());
        let request =
            VifRequest { owner: owner.clone(), node_name, host_ip, project, subnets, security_groups };
        let mut requests = vec![request];
        for Further { interface, subnet, .. } in &further {
            let subnet = self.drivers.subnets.subnet(subnet).await;
            let subnet =
                subnet.map_err(|source| VifError::Further { interface: interface.clone(), source })?;
            requests.push(VifRequest { subnets: vec![subnet], ..requests[0].clone() });
        }
        // Entered before the call: whatever ends the call, the next attempt looks for what came of it.
        self.claims.set(&owner.uid, Claim::Asked);
        let mut vifs = self.make(owner, &requests).await?.into_iter();
        let Some(default_vif) = vifs.next() else { return Err(VifError::NoSubnet) };
        let interfaces = further.into_iter().map(|further| further.interface);
        let state = PodState { default_vif, additional_vifs: interfaces.zip(vifs).collect() };
        self.claims.set(&owner.uid, Claim::Made(Box::new(state.clone())));
        Ok(state)
    }

    /// Makes a VIF for each request, or none at all.
    async fn make(&self, owner: &Owner, requests: &[VifRequest]) -> Result<Vec<Vif>, VifError> {
        let mut made = Vec::with_capacity(requests.len());
        for request in requests {
            match self.drivers.pool.request_vif(request).await {
                Ok(vif) => made.push(vif),
                Err(error) => {
                    // What cannot be released now is found by its mark.
                    let released = self.release(owner, &made).await;
                    if !error.ambiguous() && released.is_ok() {
                        self.claims.forget(&owner.uid);
                    }
                    return Err(VifError::Request(error));
                }
            }
        }
        Ok(made)
    }

    /// The further interfaces for which the pod asks.
    fn further(&self, pod: &Pod) -> Result<Vec<Further>, NetworksError> {
        let Some(FurtherNetworks { networks, driver }) = &self.drivers.further else { return Ok(Vec::new()) };
        let further = networks.of(pod)?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let of_node = node.and_then(|node| self.drivers.pool.vif_driver(node));
        let driver = of_node.as_ref().unwrap_or(driver);
        let other = further.iter().find_map(|further| {
            let wanted = further.driver.clone().filter(|wanted| wanted != driver)?;
            Some(NetworksError::Driver { interface: further.interface.clone(), driver: wanted })
        });
        other.map_or(Ok(further), Err)
    }

    /// Writes the VIFs down. They stay claimed until an event shows them, or the server refuses it for good.
    async fn claim(&self, pod: &Pod, owner: &Owner, state: &PodState) -> Result<(), VifError> {
        let text = state.write();
        let patch = MetadataPatch::default().annotate(KURYR_VIF, text).add_finalizer(FINALIZER).claim();
        match self.writer.metadata(pod, &patch).await {
            Ok(Written::Done) => Ok(()),
            Ok(Written::Gone) => self.give_up(owner).await,
            Err(error) => {
                if refused_for_good(&error) {
                    self.give_up(owner).await?;
                }
                Err(VifError::Write(error))
            }
        }
    }

    /// Releases what was made and cannot be written down.
    async fn give_up(&self, owner: &Owner) -> Result<(), VifError> {
        if let Some(claim) = self.claims.get(&owner.uid) {
            self.release(owner, &claim.vifs()).await?;
        }
        self.claims.forget(&owner.uid);
        Ok(())
    }

    /// Sees to it that what the pod shows is its own, is there, and is active. A pod that does not use its VIFs yet gets others
    /// when another pod has one of them, or one does not exist any more.
    async fn settle(&self, pod: &Pod, owner: &Owner, state: PodState) -> Result<(), VifError> {
        let shown: Vec<Vif> = state.vifs().cloned().collect();
        self.strays.show(&owner.uid, &shown);
        let contested = self.drivers.pool.ledger().is_some_and(|ledger| ledger.contested(&owner.uid));
        let settled = if contested && may_change(pod) {
            Err(VifError::Shared)
        } else if shown.iter().all(|vif| vif.active) {
            Ok(())
        } else {
            self.activate(pod, state).await
        };
        match settled {
            Err(error) if error.asks_for_another() && may_change(pod) => {
                let Owner { namespace, name, uid } = owner;
                warn!(namespace, name, %uid, error = staffetta_handler::causes(&error), "the pod gets another VIF");
                self.replace(pod, owner, shown).await
            }
            Ok(()) if contested => Err(VifError::Shared),
            settled => settled,
        }
    }

    /// Gives the pod VIFs in place of those that it shows. These are released when an event shows that it has the new ones: until
    /// then older events may show them.
    async fn replace(&self, pod: &Pod, owner: &Owner, old: Vec<Vif>) -> Result<(), VifError> {
        let state = self.request(pod, owner).await?;
        self.claims.set(&owner.uid, Claim::Replaced { state: Box::new(state.clone()), old });
        self.claim(pod, owner, &state).await
    }

    /// Writes down that all VIFs are active, once they are.
    async fn activate(&self, pod: &Pod, mut state: PodState) -> Result<(), VifError> {
        let mut waiting = None;
        for vif in state.vifs_mut().filter(|vif| !vif.active) {
            match self.drivers.pool.activate_vif(vif).await.map_err(VifError::Activate)? {
                Activation::Active(active) => *vif = Vif { active: true, ..active },
                Activation::NotYet { ask_again } => {
                    waiting = Some(VifError::NotActive { vif: vif.id.clone(), ask_again });
                }
            }
        }
        if let Some(waiting) = waiting {
            return Err(waiting);
        }
        let text = state.write_over(annotation(pod).unwrap_or_default());
        let patch = MetadataPatch::default().annotate(KURYR_VIF, text).claim();
        self.writer.metadata(pod, &patch).await.map(drop).map_err(VifError::Write)
    }

    async fn release(&self, owner: &Owner, vifs: &[Vif]) -> Result<(), VifError> {
        for vif in vifs {
            let released = self.drivers.pool.release_vif(owner, vif).await;
            released.map_err(|source| VifError::Release { vif: vif.id.clone(), source })?;
        }
        Ok(())
    }

    /// Whether nothing is to be done for the pod, in the time when the events of all pods are kept until all are listed: most
    /// of them need not be kept.
    fn may_pass(&self, pod: &Pod) -> bool {
        self.drivers.pool.ledger().is_some()
            && !self.begun.load(Ordering::Acquire)
            && self.claims.get(&Owner::of(&pod.metadata).uid).is_none()
            && is_settled(pod)
    }

    /// Whether the pod has another network, and nothing of ours.
    fn is_spared(&self, pod: &Pod) -> bool {
        self.spared.as_ref().is_some_and(|spared| spared.have(pod))
            && annotation(pod).is_none()
            && !pod.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
            && self.claims.get(&Owner::of(&pod.metadata).uid).is_none()
    }

    fn forget(&self, owner: &Owner) {
        self.claims.forget(&owner.uid);
        self.strays.forget(&owner.uid);
        self.writer.forget(owner.uid.as_str());
    }
}

/// Whether it is certain that nothing was written, and that nothing ever will be.
fn refused_for_good(error: &WriteError) -> bool {
    error.refused() && !error.transient()
}

impl ResourceEventHandler<Pod> for VifHandler {
    type Error = VifError;

    fn wants(&self, event: &Event<Pod>) -> bool {
        match event {
            Event::Added(pod) | Event::Modified(pod) => {
                !matches!(Life::of(pod), Life::HostNetwork | Life::Unscheduled)
                    && !self.may_pass(pod)
                    && !self.is_spared(pod)
            }
            Event::Deleted(Tombstone::Last(pod)) => {
                Life::of(pod) != Life::HostNetwork && !self.is_spared(pod)
            }
            Event::Deleted(Tombstone::Missed(_)) => true,
        }
    }

    async fn on_present(&self, pod: &Arc<Pod>) -> Result<(), VifError> {
        self.writer.fresh(pod)?;
        self.act(pod).await
    }

    async fn on_finalize(&self, pod: &Arc<Pod>) -> Result<(), VifError> {
        if self.writer.is_stale(pod) { Ok(()) } else { self.act(pod).await }
    }

    async fn on_deleted(&self, tombstone: &Tombstone<Pod>) -> Result<(), VifError> {
        self.begin();
        let owner = owner_of(tombstone);
        match tombstone {
            Tombstone::Last(pod) => {
                if after_deletion(pod, self.claims.get(&owner.uid)) == Action::Find {
                    self.find(&owner).await?;
                }
                if let Action::Release { vifs, .. } = after_deletion(pod, self.claims.get(&owner.uid)) {
                    self.release(&owner, &vifs).await?;
                }
            }
            Tombstone::Missed(_) => {
                // What is known is not looked for.
                let vifs = match self.claims.get(&owner.uid) {
                    None | Some(Claim::Asked) => self.marked(&owner).await?,
                    Some(claim) => claim.vifs(),
                };
                self.release(&owner, &vifs).await?;
            }
        }
        self.forget(&owner);
        Ok(())
    }
}

impl SignalHandler<Strayed> for VifHandler {
    type Error = VifError;

    async fn on_signal(&self, signal: &Strayed) -> Result<(), VifError> {
        let uid: Uid = signal.identity().uid.as_str().into();
        let Some((owner, strays)) = self.strays.of(&uid) else { return Ok(()) };
        // What is claimed by now is seen to by the pod's own events.
        if strays.is_empty() || self.claims.is_there(&uid) {
            return Ok(());
        }
        let Owner { namespace, name, .. } = &owner;
        warn!(namespace, name, %uid, count = strays.len(), "VIFs of the pod that it does not show are released");
        self.release(&owner, &strays).await
    }
}

#[cfg(test)]
mod tests;
