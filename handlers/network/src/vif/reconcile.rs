//! Executes the actions that the module `decide` chooses for a pod.

use k8s_openapi::api::core::v1::Pod;
use staffetta_driver::{Activation, Owner, Vif, VifRequest};
use staffetta_handler::{Identity, MetadataPatch, Written};
use tracing::warn;

use super::decide::{VifAction, VifRecord, annotation, decide, is_replaceable};
use super::networks::{AdditionalNetwork, NetworksError, requests_networks};
use super::{FINALIZER, VifDrivers, VifError, VifHandler};
use crate::os_vif::{KURYR_VIF, PodState};
use crate::proof::VIF_PROOF;
use crate::step_error::{StepContext, StepError};

/// The name of the step in which the annotation or the finalizer is written, for error messages.
const WRITE: &str = "record the VIFs on the pod";

impl VifHandler {
    /// Chooses and executes the next actions for a pod: it gets its VIFs, or the VIFs are released
    /// if the pod no longer needs them.
    pub(super) async fn reconcile(&self, pod: &Pod) -> Result<(), VifError> {
        self.pool_feed.finish();
        let owner = Owner::of(&pod.metadata);
        if let Some((reason, text)) = self.installation.managed_notice(pod) {
            self.notices.set_condition(Identity::of_object(pod), reason, Some(text));
            return if self.installation.other(pod).is_some() {
                self.abandon(pod, &owner).await
            } else {
                Ok(())
            };
        }
        loop {
            let decided = decide(pod, self.records.get(&owner.uid), self.is_known(&owner.uid));
            match decided.step("read the VIFs of the pod")? {
                VifAction::Nothing => return Ok(()),
                VifAction::ReadMarks => self.record_marks(&owner).await?,
                VifAction::Request if !self.installation.selects(pod) => return self.withdraw(pod).await,
                VifAction::Request => {
                    let state = self.request(pod, &owner).await?;
                    return self.publish(pod, &owner, &state).await.map(drop);
                }
                VifAction::Verify(state) => {
                    let published: Vec<Vif> = state.vifs().cloned().collect();
                    return self.verify(pod, &owner, &published).await;
                }
                VifAction::Publish(state) => return self.publish(pod, &owner, &state).await.map(drop),
                VifAction::Restore(vifs) => {
                    if self.restore(pod, &owner, vifs).await? {
                        return Ok(());
                    }
                }
                VifAction::Check { surplus, state } => return self.check(pod, &owner, *state, surplus).await,
                VifAction::Release { vifs, patch } => {
                    // A released VIF or its address goes to another pod, so this pod unpublishes it
                    // first. Interrupted here, the VIF is found by its mark, or by the pool.
                    self.records.set(&owner.uid, VifRecord::Released(vifs.clone()));
                    self.writer.metadata(pod, &self.retract(patch)).await.step(WRITE)?;
                    self.release(&owner, &vifs).await?;
                    self.records.set(&owner.uid, VifRecord::Released(Vec::new()));
                    return Ok(());
                }
            }
        }
    }

    /// Releases the VIFs that this process requested before another installation published its own on the pod. A pod that may run with
    /// one of them keeps it until it is deleted, whoever wrote its annotations.
    async fn abandon(&self, pod: &Pod, owner: &Owner) -> Result<(), VifError> {
        if !is_replaceable(pod) {
            return Ok(());
        }
        if self.records.get(&owner.uid) == Some(VifRecord::Requested) {
            self.record_marks(owner).await?;
        }
        let Some(record) = self.records.get(&owner.uid) else { return Ok(()) };
        let mut vifs = record.vifs();
        if let Some(Ok(shown)) = annotation(pod).map(PodState::read) {
            vifs.retain(|vif| shown.vifs().all(|shown| shown.id != vif.id));
        }
        self.release(owner, &vifs).await?;
        self.records.remove(&owner.uid);
        Ok(())
    }

    /// Makes the patch say that this installation has accepted these VIFs of the pod, with a proof for the daemon of its node.
    fn accept(&self, patch: MetadataPatch, owner: &Owner, state: &PodState) -> MetadataPatch {
        let patch = self.installation.mark(patch);
        match &self.proof_key {
            Some(key) => patch.annotate(VIF_PROOF, key.prove(owner.uid.as_str(), state)),
            None => patch,
        }
    }

    /// Makes the patch remove what [`accept`](Self::accept) adds.
    fn retract(&self, patch: MetadataPatch) -> MetadataPatch {
        let patch = self.installation.unmark(patch);
        if self.proof_key.is_some() { patch.remove_annotation(VIF_PROOF) } else { patch }
    }

    /// Removes the annotations and the finalizer of a pod that is not selected and has no VIF of ours: somebody else wrote them.
    pub(super) async fn withdraw(&self, pod: &Pod) -> Result<(), VifError> {
        let patch = MetadataPatch::default().remove_annotation(KURYR_VIF).remove_finalizer(FINALIZER);
        Ok(self.writer.metadata(pod, &self.retract(patch)).await.map(drop).step(WRITE)?)
    }

    /// Returns `true` if the pod requests additional networks, and the configuration allows pods to have them.
    pub(super) fn requests_several(&self, pod: &Pod) -> bool {
        self.drivers.additional.is_some() && requests_networks(pod)
    }

    /// Lists the VIFs that carry the pod's ownership mark, and stores them in the pod's in-memory
    /// record.
    pub(super) async fn record_marks(&self, owner: &Owner) -> Result<(), StepError> {
        let vifs = self.marked_vifs(owner).await?;
        self.records.set(&owner.uid, VifRecord::Owned(vifs));
        Ok(())
    }

    /// Lists the VIFs that carry the pod's ownership mark, and stores that they belong to the pod.
    pub(super) async fn marked_vifs(&self, owner: &Owner) -> Result<Vec<Vif>, StepError> {
        let vifs: Vec<_> = self.marks(Some(owner)).await?.into_iter().map(|marked| marked.resource).collect();
        for vif in &vifs {
            self.claims.add(&owner.uid, vif);
        }
        Ok(vifs)
    }

    /// Returns the request for the pod's default VIF without security groups. Only a new VIF needs them: the
    /// driver `policy` stores the groups that it chooses as those of a new VIF.
    pub(super) async fn placed_request(&self, pod: &Pod, owner: &Owner) -> Result<VifRequest, VifError> {
        let VifDrivers { project, subnets, .. } = &self.drivers;
        let project = project.project(pod).await.step("find the project of the pod")?;
        let pod_subnets = subnets.subnets(pod, &project).await;
        let pod_subnets = pod_subnets.step("find the subnets of the pod").map_err(VifError::Subnets)?;
        if pod_subnets.is_empty() {
            return Err(VifError::NoSubnet);
        }
        Ok(VifRequest {
            owner: owner.clone(),
            node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            host_ip: pod.status.as_ref().and_then(|status| status.host_ip.as_deref()?.parse().ok()),
            project,
            subnets: pod_subnets,
            security_groups: Vec::new(),
        })
    }

    /// Returns the names of the pod's additional interfaces, and the requests for its VIFs without security groups: first that for
    /// the default VIF, then those for the additional ones.
    pub(super) async fn placed_requests(
        &self,
        pod: &Pod,
        owner: &Owner,
    ) -> Result<(Vec<String>, Vec<VifRequest>), VifError> {
        let additional = self.additional_networks(pod).map_err(VifError::Networks)?;
        let mut requests = vec![self.placed_request(pod, owner).await?];
        for AdditionalNetwork { interface, attachment } in &additional {
            let subnet = self.drivers.subnets.subnet(&attachment.subnet_id, &requests[0].project).await;
            let subnet = subnet.step(format!("find the subnet of interface {interface}"))?;
            requests.push(VifRequest { subnets: vec![subnet], ..requests[0].clone() });
        }
        Ok((additional.into_iter().map(|network| network.interface).collect(), requests))
    }

    /// Requests the pod's VIFs from the pool, and stores them in the pod's in-memory record.
    pub(super) async fn request(&self, pod: &Pod, owner: &Owner) -> Result<PodState, VifError> {
        let (interfaces, mut requests) = self.placed_requests(pod, owner).await?;
        let groups = self.drivers.security_groups.security_groups(pod, &requests[0].project).await;
        let groups = groups.step("find the security groups of the pod").map_err(VifError::SecurityGroups)?;
        for request in &mut requests {
            request.security_groups.clone_from(&groups);
        }
        // Recorded before the calls: if they are interrupted, the next attempt reads the marks.
        self.records.set(&owner.uid, VifRecord::Requested);
        let mut vifs = self.create(owner, &requests).await?;
        let default_vif = vifs.remove(0);
        let state = PodState { default_vif, additional_vifs: interfaces.into_iter().zip(vifs).collect() };
        self.records.set(&owner.uid, VifRecord::Created(Box::new(state.clone())));
        Ok(state)
    }

    /// Creates a VIF for each request. If a request fails, the VIFs that were created before are
    /// released.
    async fn create(&self, owner: &Owner, requests: &[VifRequest]) -> Result<Vec<Vif>, StepError> {
        let mut created = Vec::with_capacity(requests.len());
        let pool = &self.drivers.pool;
        for request in requests {
            let is_default = created.is_empty();
            match if is_default { pool.request_vif(request) } else { pool.request_additional_vif(request) }
                .await
            {
                Ok(vif) => {
                    self.claims.add(&owner.uid, &vif);
                    created.push(vif);
                }
                Err(error) => {
                    // A VIF that cannot be released now is found by its mark.
                    let released = self.release(owner, &created).await;
                    if !error.ambiguous() && released.is_ok() {
                        self.records.remove(&owner.uid);
                    }
                    return Err(error).step("request a VIF");
                }
            }
        }
        Ok(created)
    }

    /// Returns the additional networks that the pod requests. Returns an error if the request is malformed, or if a network
    /// does not exist, is invalid, is not allowed for the pod, or requires another VIF driver than that of its node.
    fn additional_networks(&self, pod: &Pod) -> Result<Vec<AdditionalNetwork>, NetworksError> {
        let Some(additional) = &self.drivers.additional else {
            return Ok(Vec::new());
        };
        let requested = additional.of(pod)?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let of_node = node.and_then(|node| self.drivers.pool.vif_driver_of_node(node));
        let node_driver = of_node.as_ref().unwrap_or(&additional.driver);
        for AdditionalNetwork { interface, attachment } in &requested {
            if let Some(driver) = attachment.driver_type.as_ref().filter(|driver| *driver != node_driver) {
                return Err(NetworksError::Unavailable(format!(
                    "the network of interface {interface} requires the VIF driver `{driver}`, but the node uses another one"
                )));
            }
        }
        Ok(requested)
    }

    /// Writes the annotation and the finalizer. The in-memory record stays until an event shows
    /// both, also if the API server refuses the write: the next attempt uses the same VIFs. Returns
    /// `false` if the pod was or is being deleted; VIFs that it never used are then released, and others when it has ended.
    pub(super) async fn publish(&self, pod: &Pod, owner: &Owner, state: &PodState) -> Result<bool, VifError> {
        let text = state.write();
        let patch = MetadataPatch::default().annotate(KURYR_VIF, text).add_finalizer(FINALIZER).claim();
        match self.writer.metadata(pod, &self.accept(patch, owner, state)).await {
            Ok(Written::Done) => Ok(true),
            Ok(Written::Gone) => {
                if let Some(record) = self.records.get(&owner.uid).filter(|_| !self.may_use_vifs(pod)) {
                    self.release(owner, &record.vifs()).await?;
                    self.records.remove(&owner.uid);
                }
                Ok(false)
            }
            Err(error) => Err(error).step(WRITE).map_err(VifError::Step),
        }
    }

    /// Ensures that the published VIFs belong to this pod alone, exist and are active, and releases those `surplus` VIFs that it does not
    /// use. A VIF that does not belong to the pod is not changed. A pod whose sandbox has no IP address yet gets
    /// other VIFs if a published VIF does not belong to it or no longer exists.
    async fn check(
        &self,
        pod: &Pod,
        owner: &Owner,
        state: PodState,
        mut surplus: Vec<Vif>,
    ) -> Result<(), VifError> {
        let published: Vec<Vif> = state.vifs().cloned().collect();
        let marks = self.accept(MetadataPatch::default(), owner, &state).claim();
        let checked = match self.verify(pod, owner, &published).await {
            Ok(()) => {
                // The marks do not tell whether the annotation once named a VIF.
                if let Some(VifRecord::Owned(_)) = self.records.get(&owner.uid) {
                    surplus.retain(|vif| self.claims.is_known_unpublished(&owner.uid, vif));
                }
                self.release(owner, &surplus).await?;
                self.records.remove(&owner.uid);
                if !state.additional_vifs.is_empty() {
                    self.several.set(&owner.uid, state.clone());
                }
                // Taken over, or changed by others. The event of this write follows.
                if !marks.changes_nothing_of(pod) {
                    return Ok(self.writer.metadata(pod, &marks).await.map(drop).step(WRITE)?);
                }
                if published.iter().any(|vif| !vif.active) {
                    self.activate(pod, owner, state).await
                } else {
                    Ok(())
                }
            }
            foreign => foreign,
        };
        match checked {
            Err(error) if error.needs_another_vif() && is_replaceable(pod) => {
                if !self.installation.selects(pod) {
                    return self.withdraw(pod).await;
                }
                let Owner { namespace, name, uid } = owner;
                warn!(namespace, name, %uid, error = staffetta_handler::causes(&error), "replacing the VIF of the pod");
                let is_foreign = matches!(error, VifError::Shared | VifError::Foreign(_));
                self.replace(pod, owner, published, is_foreign).await
            }
            checked => checked,
        }
    }

    /// Publishes other VIFs: those of the pod that the annotation named before a foreign one, or else
    /// new ones. The old VIFs are released when an event shows the new ones,
    /// because older events may show the old VIFs until then.
    async fn replace(
        &self,
        pod: &Pod,
        owner: &Owner,
        old: Vec<Vif>,
        is_foreign: bool,
    ) -> Result<(), VifError> {
        let own = if is_foreign { self.marked_vifs(owner).await? } else { Vec::new() };
        let own = own.into_iter().filter(|vif| old.iter().all(|old| old.id != vif.id)).collect();
        let state = match self.assigned(pod, owner, own).await?.1 {
            Some(state) => state,
            None => self.request(pod, owner).await?,
        };
        self.records.set(&owner.uid, VifRecord::Replaced { state: Box::new(state.clone()), old });
        self.publish(pod, owner, &state).await.map(drop)
    }

    /// Activates the inactive VIFs, and writes the annotation again when all VIFs are active.
    /// Returns [`VifError::NotActive`] if a VIF is not active yet.
    async fn activate(&self, pod: &Pod, owner: &Owner, mut state: PodState) -> Result<(), VifError> {
        let mut inactive = None;
        for vif in state.vifs_mut().filter(|vif| !vif.active) {
            let activation = self.drivers.pool.activate_vif(owner, vif).await;
            match activation.step("activate the VIF").map_err(VifError::Activate)? {
                Activation::Active(active) => *vif = Vif { active: true, ..active },
                Activation::NotYet { poll_after } => {
                    inactive = Some(VifError::NotActive { vif: vif.id.clone(), poll_after });
                }
            }
        }
        if let Some(inactive) = inactive {
            return Err(inactive);
        }
        let text = state.write_over(annotation(pod).unwrap_or_default());
        let patch = self.accept(MetadataPatch::default().annotate(KURYR_VIF, text), owner, &state).claim();
        Ok(self.writer.metadata(pod, &patch).await.map(drop).step(WRITE)?)
    }

    /// Releases VIFs one by one and stops at the first failure.
    pub(super) async fn release(&self, owner: &Owner, vifs: &[Vif]) -> Result<(), StepError> {
        for vif in vifs {
            self.claims.remove(&owner.uid, vif);
            let released = self.drivers.pool.release_vif(owner, vif).await;
            released.step(format!("release the VIF {}", vif.id))?;
        }
        Ok(())
    }
}
