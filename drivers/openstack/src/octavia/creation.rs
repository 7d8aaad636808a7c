//! Creates load balancers, adopts those of earlier controllers, and repairs their ownership marks.

use serde_json::{Value, json};
use staffetta_driver::{
    DriverError, LoadBalancer, LoadBalancerId, LoadBalancerSpec, Owner, ProvisioningStatus, Reason,
};

use super::LbaasV2Driver;
use super::adoption::write_mark;
use super::pacing::{LoadBalancerPacing, ProvisioningOperation};
use super::provisioning::busy;
use super::request;
use super::tree;
use super::wire::{LoadBalancerBody, OctaviaResource, PENDING_DELETE};
use crate::error::{DriverResult, OpenStackError, Result, StepName, is_too_large};
use crate::mark;
use crate::poll::Pacing;
use crate::text::{is_well_formed, without_nulls};

const CREATE: &str = LoadBalancerBody::CREATE;

impl LbaasV2Driver {
    /// Returns the load balancer of `owner`, or the first one if several were created because of a lost response. A load balancer that is
    /// being deleted, or of which only the port exists, is ignored.
    pub(super) async fn existing(&self, owner: &Owner) -> DriverResult<Option<LoadBalancer>> {
        if self.cache.has_none(&owner.uid) {
            return Ok(None);
        }
        let trees = self.trees(Some(owner)).await?.into_iter().map(|marked| marked.resource);
        Ok(trees.into_iter().find(|tree| !tree.is_port_alone()))
    }

    /// Adopts the load balancer that an earlier controller created for the same service: writes the ownership mark of `owner`. Returns
    /// `None` and changes nothing if the load balancer does not exist, has an ownership mark of another owner, or does not have the
    /// address, subnet and project of the spec, because an annotation may name any load balancer.
    pub(super) async fn adopt(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
        id: &LoadBalancerId,
    ) -> DriverResult<Option<LoadBalancer>> {
        const STEP: &str = "adopt a load balancer";
        if !is_well_formed(id.as_str()) {
            return Ok(None);
        }
        self.provisioning.check_ready(id, STEP).await?;
        let found: Option<LoadBalancerBody> =
            self.octavia.get(STEP, id.as_str(), LoadBalancerBody::FIELDS).await?;
        let Some(found) = found else { return Ok(None) };
        let is_in_place = found.vip_address == Some(spec.vip)
            && found.vip_subnet_id.as_ref() == Some(&spec.subnet)
            && found.project_id == spec.project;
        let is_free = match self.owner_of(&found) {
            Some(marked) => marked.uid == owner.uid,
            None => !mark::is_marked(&found.description, &found.tags),
        };
        if !is_in_place || !is_free {
            return Ok(None);
        }
        let body = self.mark(STEP, owner, &found).await?;
        self.tree(&body).await
    }

    /// Writes the ownership mark of `owner` into the description and tags of a load balancer, and caches the owner. Other tags stay.
    async fn mark(
        &self,
        step: StepName,
        owner: &Owner,
        found: &LoadBalancerBody,
    ) -> DriverResult<LoadBalancerBody> {
        let body = write_mark(&self.octavia, &self.provisioning, &self.cluster, (step, owner), found).await?;
        self.cache.owners.insert(found.id.clone(), owner.uid.clone());
        Ok(body)
    }

    /// Sets the security groups of an existing load balancer to those of `spec`, and enables it. Sends no request if nothing differs.
    pub(super) async fn update(
        &self,
        mut existing: LoadBalancer,
        spec: &LoadBalancerSpec,
    ) -> DriverResult<LoadBalancer> {
        let groups = spec.security_groups.as_ref().filter(|groups| existing.security_groups != **groups);
        let change = without_nulls(json!({
            "vip_sg_ids": groups,
            "admin_state_up": existing.disabled.then_some(true),
        }));
        if change != json!({}) {
            let call = self.octavia.update::<LoadBalancerBody>(existing.id.as_str(), &change).done();
            self.provisioning.change(&existing.id, LoadBalancerBody::UPDATE, call).await?;
            existing.status = ProvisioningStatus::Pending;
        }
        if let Some(groups) = groups {
            existing.security_groups.clone_from(groups);
        }
        existing.disabled = false;
        Ok(existing)
    }

    /// Creates a load balancer with its listeners by one call, and with as many of their members as a request holds. If that call is rejected
    /// because of a listener or a quota, creates the load balancer without listeners. If too many creations are in flight in the project, the
    /// error is [`Reason::Queued`].
    pub(super) async fn create(&self, owner: &Owner, spec: &LoadBalancerSpec) -> DriverResult<LoadBalancer> {
        let tagged = self.octavia.features().await?.tags;
        let _permit = self.provisioning.admit(&owner.uid, &spec.project)?;
        let port = if self.own_ports {
            match self.ports.ensure(owner, spec).await {
                Ok(port) => Some(port),
                Err(error) => return Err(self.explain_conflict(owner, spec, error).await),
            }
        } else {
            // A port that this driver created before holds the address.
            self.release_ports(owner, None).await?;
            None
        };
        let body = |listeners: Vec<Value>| {
            without_nulls(json!({
                "name": spec.name,
                "project_id": spec.project,
                "description": mark::description(&self.cluster, owner),
                "tags": tagged.then(|| mark::tags(&self.cluster, Some(owner))),
                "vip_address": spec.vip,
                "vip_subnet_id": spec.subnet,
                "vip_port_id": port,
                "vip_sg_ids": spec.security_groups.as_ref().filter(|groups| !groups.is_empty()),
                "provider": spec.provider,
                "admin_state_up": true,
                "listeners": (!listeners.is_empty()).then_some(listeners),
            }))
        };
        let items = spec.listeners.iter().map(|listener| 2 + listener.pool.members.len()).sum::<usize>();
        let bare = request::length(&[json!({ LoadBalancerBody::KEY: body(Vec::new()), "listeners": [] })]);
        let created = loop {
            let limit = self.octavia.body_limit();
            // What does not fit is created by later changes.
            let listeners = request::listeners(spec, limit.saturating_sub(bare));
            match self.octavia.create(body(listeners), 1 + items).await {
                Err(error) if is_too_large(&error) && self.octavia.body_limit() < limit => {}
                // The error of a listener is reported when that listener is created alone.
                Err(error) if !spec.listeners.is_empty() && may_concern_a_listener(&error) => {
                    break self.octavia.create(body(Vec::new()), 1).await;
                }
                result => break result,
            }
        };
        let created: LoadBalancerBody = match created {
            Ok(created) => created,
            Err(error) => {
                if error.ambiguous() {
                    self.cache.dirty.insert(owner.uid.clone());
                }
                return Err(self.explain_conflict(owner, spec, error.into()).await);
            }
        };
        self.cache.owners.insert(created.id.clone(), owner.uid.clone());
        self.provisioning.start(&created.id, ProvisioningOperation::Create);
        let listeners = self.created_listeners(&created);
        let groups = spec.security_groups.clone().unwrap_or_default();
        tree::load_balancer(&created, groups, listeners).ok_or_else(|| {
            let detail = format!("the load balancer {} was created without an address", created.id);
            DriverError::new(Reason::Unavailable, CREATE).detail(detail)
        })
    }

    /// Handles the error of an address that is in use, and returns the error to report. If a load balancer of this cluster that is being
    /// deleted has the address, the error has a short retry delay. If a load balancer of `owner` has the address, but lists lack it because
    /// its tags were removed, writes its ownership mark again, so that the next attempt finds it.
    async fn explain_conflict(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
        error: DriverError,
    ) -> DriverError {
        let text = error.to_string();
        // The messages about an address, and about a port.
        if !["already allocated", "already used by device"].iter().any(|words| text.contains(words)) {
            return error;
        }
        let filter = vec![("vip_address", spec.vip.to_string())];
        let step = "find the load balancer that has an address";
        let found = self.octavia.list(step, &filter, LoadBalancerBody::FIELDS).await;
        let Ok(found): Result<Vec<LoadBalancerBody>, _> = found else { return error };
        let has_address = |body: &&LoadBalancerBody| {
            body.vip_address == Some(spec.vip) && body.vip_subnet_id.as_ref() == Some(&spec.subnet)
        };
        let ours = found.iter().filter(has_address).find_map(|body| Some((self.owner_of(body)?, body)));
        let Some((marked, body)) = ours else { return error };
        if body.provisioning_status != PENDING_DELETE {
            if marked.uid != owner.uid {
                return error;
            }
            if let Err(error) = self.mark("mark a load balancer again", owner, body).await {
                return error;
            }
        }
        busy(&body.id, CREATE).because(error).after(5 * LoadBalancerPacing::MIN_INTERVAL)
    }
}

/// Returns `true` if the cause of the rejection may be a listener or a part of it: an option that the provider lacks (status 501), an
/// invalid listener (400), or a quota. If the exceeded quota is that of load balancers, the next request is rejected too.
fn may_concern_a_listener(error: &OpenStackError) -> bool {
    matches!(error.status(), Some(400 | 501)) || error.reason() == Reason::Quota
}
