//! The methods of the driver `lbaasv2` for whole load balancers: list, create, report progress and release.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    DriverError, LoadBalancer, LoadBalancerDriver, LoadBalancerId, LoadBalancerProgress, LoadBalancerSpec,
    NamespaceObserver, NormalizedSpec, Owned, Owner, Reason,
};

use super::LbaasV2Driver;
use super::feasible::feasible;
use super::options::MemberMode;
use super::pacing::{ProvisioningOperation, ProvisioningOutcome};
use super::provisioning::busy;
use super::vip_port::port_id;
use super::wire::{LoadBalancerBody, OctaviaResource, PENDING_DELETE};
use crate::error::DriverResult;
use crate::poll::PollState;
use crate::text::{self, is_well_formed};

const DELETE: &str = LoadBalancerBody::DELETE;

#[async_trait]
impl LoadBalancerDriver for LbaasV2Driver {
    async fn load_balancers(&self, owner: Option<&Owner>) -> DriverResult<Vec<Owned<LoadBalancer>>> {
        self.trees(owner).await
    }

    async fn normalize(&self, spec: LoadBalancerSpec) -> DriverResult<NormalizedSpec> {
        let NormalizedSpec { mut spec, without } =
            feasible(spec, &self.defaults, self.octavia.features().await?);
        for member in spec.listeners.iter_mut().flat_map(|listener| &mut listener.pool.members) {
            member.subnet = self.members.of(&member.name, member.ip, &spec.subnet).await?;
            member.name = text::name(&member.name);
        }
        Ok(NormalizedSpec { spec, without })
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> DriverResult<LoadBalancer> {
        if let Some(existing) = self.existing(owner).await? {
            return self.update(existing, spec).await;
        }
        if let Some(id) = &spec.adopt
            && let Some(adopted) = self.adopt(owner, spec, id).await?
        {
            return Ok(adopted);
        }
        self.create(owner, spec).await
    }

    async fn progress(&self, load_balancer: &LoadBalancer) -> DriverResult<LoadBalancerProgress> {
        let id = &load_balancer.id;
        if !is_well_formed(id.as_str()) {
            return Err(not_found(id));
        }
        match self.provisioning.state(id).await? {
            PollState::Final(ProvisioningOutcome::Active) => Ok(LoadBalancerProgress::Active),
            PollState::Final(ProvisioningOutcome::Error) => Ok(LoadBalancerProgress::Error),
            PollState::Final(ProvisioningOutcome::Deleted) => {
                self.cache.owners.remove(id);
                Err(not_found(id))
            }
            PollState::Pending { poll_after, .. } => Ok(LoadBalancerProgress::Pending { poll_after }),
        }
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> DriverResult<()> {
        if !is_well_formed(id.as_str()) {
            return Ok(());
        }
        let is_owned = if let Some(uid) = self.cache.owners.get(id) {
            uid == owner.uid
        } else {
            let step = "read the owner of a load balancer";
            let found = self.octavia.get(step, id.as_str(), LoadBalancerBody::FIELDS).await?;
            // The port of a deleted load balancer may remain.
            found.is_none_or(|body| self.owner_of(&body).is_some_and(|marked| marked.uid == owner.uid))
        };
        if !is_owned {
            return Ok(());
        }
        let deleting = self.provisioning.is_deleting(id) || self.delete(id).await?;
        // Octavia uses the port until the load balancer is deleted.
        if deleting && self.ports.may_have(owner) {
            match self.provisioning.state(id).await? {
                PollState::Final(ProvisioningOutcome::Deleted) => {}
                PollState::Pending { poll_after, .. } => return Err(busy(id, DELETE).after(poll_after)),
                PollState::Final(outcome) => return Err(not_deleted(id, outcome)),
            }
        }
        self.provisioning.forget(id);
        self.release_ports(owner, Some(id)).await?;
        self.cache.owners.remove(id);
        Ok(())
    }

    /// Returns the observer that records the networks of namespaces in the member mode `L2`, in which the namespace of a member determines
    /// its subnet; `None` in the mode `L3`.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        (self.members.mode == MemberMode::L2).then(|| Arc::clone(&self.members.namespaces) as _)
    }
}

impl LbaasV2Driver {
    /// Starts the deletion of a load balancer. Returns `false` if it does not exist.
    async fn delete(&self, id: &LoadBalancerId) -> DriverResult<bool> {
        let deleting = match self.octavia.delete_load_balancer(id).await {
            Ok(existed) => existed,
            // The deletion is in progress.
            Err(error) if error.mentions(PENDING_DELETE) => true,
            Err(error) => match self.provisioning.explain(id, DELETE, error).await {
                // The operation that made it immutable was its deletion.
                error if error.reason() == Reason::NotFound => false,
                error => return Err(error),
            },
        };
        if deleting {
            self.provisioning.start(id, ProvisioningOperation::Delete);
        }
        Ok(deleting)
    }

    /// Deletes the ports of virtual addresses that this driver created for `owner`, except those that a load balancer other than `deleted`
    /// uses.
    pub(super) async fn release_ports(
        &self,
        owner: &Owner,
        deleted: Option<&LoadBalancerId>,
    ) -> DriverResult<()> {
        if !self.ports.may_have(owner) {
            return Ok(());
        }
        let ports = self.ports.marked(Some(owner)).await?;
        let existing = if ports.is_empty() { Vec::new() } else { self.marked(Some(owner)).await? };
        let is_used = |port: &_| {
            existing
                .iter()
                .any(|(_, body)| Some(&body.id) != deleted && body.vip_port_id.as_ref() == Some(port))
        };
        let (used, unused): (Vec<_>, Vec<_>) = ports.iter().map(|(_, port)| port_id(port)).partition(is_used);
        for port in &unused {
            self.ports.delete(port).await?;
        }
        if used.is_empty() {
            self.ports.forget(owner);
        }
        Ok(())
    }
}

/// Returns the error of a load balancer whose deletion failed. It has no retry delay, so the caller backs off.
fn not_deleted(id: &LoadBalancerId, outcome: ProvisioningOutcome) -> DriverError {
    let state = if outcome == ProvisioningOutcome::Error { "ERROR" } else { "ACTIVE" };
    let detail = format!("the load balancer {id} could not be deleted; it is in the state {state}");
    DriverError::new(Reason::Unavailable, DELETE).detail(detail)
}

/// Returns the error of a load balancer that does not exist.
fn not_found(id: &LoadBalancerId) -> DriverError {
    let detail = format!("the load balancer {} does not exist any more", id.as_str().escape_debug());
    DriverError::new(Reason::NotFound, "read the status of a load balancer").detail(detail)
}
