//! The driver.

use std::sync::Arc;

use async_trait::async_trait;
use staffetta_driver::{
    DriverError, Feasible, Listener, ListenerSpec, LoadBalancer, LoadBalancerDriver, LoadBalancerId,
    LoadBalancerSpec, Marked, Member, MemberSpec, NamespaceObserver, Owner, PoolId, Progress, Reason,
};

use super::LbaasV2Driver;
use super::board::{End, Known};
use super::changing::all_well_formed;
use super::feasible::feasible;
use super::options::MemberMode;
use super::vip_port::port_id;
use super::waiting::busy;
use super::wire::GOING;
use crate::cloud::well_formed;
use crate::error::OpenStackError;

/// The longest name of a member, in characters.
const LONGEST_NAME: usize = 255;
const RELEASE: &str = "release a load balancer";

#[async_trait]
impl LoadBalancerDriver for LbaasV2Driver {
    async fn load_balancers(&self, owner: Option<&Owner>) -> Result<Vec<Marked<LoadBalancer>>, DriverError> {
        self.trees(owner).await
    }

    async fn feasible(&self, spec: LoadBalancerSpec) -> Result<Feasible, DriverError> {
        let Feasible { mut spec, without } = feasible(spec, &self.choices, self.octavia.features().await?);
        for member in spec.listeners.iter_mut().flat_map(|listener| &mut listener.pool.members) {
            member.subnet = self.members.of(&member.name, member.ip, &spec.subnet).await?;
            if let Some((end, _)) = member.name.char_indices().nth(LONGEST_NAME) {
                member.name.truncate(end);
            }
        }
        Ok(Feasible { spec, without })
    }

    async fn ensure_load_balancer(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        if let Some(standing) = self.standing(owner).await? {
            return self.guarded(standing, spec).await;
        }
        if let Some(adopted) = &spec.adopt
            && let Some(adopted) = self.adopted(owner, spec, adopted).await?
        {
            return Ok(adopted);
        }
        self.make(owner, spec).await
    }

    async fn progress(&self, load_balancer: &LoadBalancer) -> Result<Progress, DriverError> {
        let id = &load_balancer.id;
        if !well_formed(id.as_str()) {
            return Err(gone(id));
        }
        match self.waiting.known(id).await? {
            Known::Over(End::Active) => Ok(Progress::Active),
            Known::Over(End::Error) => Ok(Progress::Error),
            Known::Over(End::Gone) => {
                self.memory.forget(id);
                Err(gone(id))
            }
            Known::Busy { ask_again } => Ok(Progress::Pending { ask_again }),
        }
    }

    async fn release_load_balancer(&self, owner: &Owner, id: &LoadBalancerId) -> Result<(), DriverError> {
        if !well_formed(id.as_str()) {
            return Ok(());
        }
        let is_owners = if let Some(uid) = self.memory.owner(id) {
            uid == owner.uid
        } else {
            let found = self.octavia.whole_load_balancer("read the owner of a load balancer", id).await?;
            // Of one that is gone, the port may be left.
            found.is_none_or(|told| self.owner_of(&told).is_some_and(|marked| marked.uid == owner.uid))
        };
        if !is_owners {
            return Ok(());
        }
        if !self.memory.is_going(id) && !self.delete(id).await? {
            self.memory.goes(id);
        }
        // Its port is Octavia's to use as long as it is there.
        if self.memory.is_going(id) && self.ports.may_have(owner) {
            match self.waiting.known(id).await? {
                Known::Over(End::Gone) => {}
                Known::Busy { ask_again } => return Err(busy(id, RELEASE).after(ask_again)),
                Known::Over(end) => {
                    self.memory.stays(id);
                    return Err(stayed(id, end));
                }
            }
        }
        self.waiting.forget(id);
        self.release_ports(owner, Some(id)).await?;
        self.memory.forget(id);
        Ok(())
    }

    async fn ensure_listener(
        &self,
        load_balancer: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        self.advance(load_balancer, spec).await
    }

    async fn release_listener(
        &self,
        load_balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<Option<Listener>, DriverError> {
        const STEP: &str = "release a listener";
        let id = &load_balancer.id;
        if !all_well_formed(listener) {
            return Ok(None);
        }
        if let Some(pool) = &listener.pool {
            let was_there = self.released(id, STEP, self.octavia.delete_pool(&pool.id)).await?;
            self.memory.forget_members(&pool.id);
            if was_there {
                // The listener is next, as soon as the load balancer takes that.
                return Ok(Some(Listener { pool: None, ..listener.clone() }));
            }
        }
        self.released(id, STEP, self.octavia.delete_listener(&listener.id)).await.map(|_| None)
    }

    async fn set_members(
        &self,
        load_balancer: &LoadBalancer,
        pool: &PoolId,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError> {
        self.replace_members(load_balancer, pool, members).await
    }

    /// The subnets of namespaces tell how a member is reached through its own.
    fn namespaces(&self) -> Option<Arc<dyn NamespaceObserver>> {
        (self.members.mode == MemberMode::L2).then(|| Arc::clone(&self.members.namespaces) as _)
    }
}

impl LbaasV2Driver {
    /// Asks a load balancer to go: true when it is gone.
    async fn delete(&self, id: &LoadBalancerId) -> Result<bool, DriverError> {
        match self.octavia.delete_load_balancer(id).await {
            Ok(was_there) => {
                if was_there {
                    self.waiting.changed(id);
                }
                Ok(!was_there)
            }
            // It goes already.
            Err(error) if error.refusal().is_some_and(|refusal| refusal.message.contains(GOING)) => Ok(false),
            Err(error) => match self.explained(id, RELEASE, error).await {
                // What it was busy with was its end.
                error if error.reason() == Reason::NotFound => Ok(true),
                error => Err(error),
            },
        }
    }

    /// Removes the ports that were made for `owner` and that no load balancer has but the one that is gone.
    pub(super) async fn release_ports(
        &self,
        owner: &Owner,
        gone: Option<&LoadBalancerId>,
    ) -> Result<(), DriverError> {
        if !self.ports.may_have(owner) {
            return Ok(());
        }
        let ours = self.ports.marked(Some(owner)).await?;
        let standing = if ours.is_empty() { Vec::new() } else { self.marked(Some(owner)).await? };
        let is_used = |port: &_| {
            standing.iter().any(|(_, told)| Some(&told.id) != gone && told.vip_port_id.as_ref() == Some(port))
        };
        let (used, unused): (Vec<_>, Vec<_>) = ours.iter().map(|(_, port)| port_id(port)).partition(is_used);
        for port in &unused {
            self.ports.remove(port).await?;
        }
        if used.is_empty() {
            self.ports.forget(owner);
        }
        Ok(())
    }

    /// Makes a change that releases something: false when it is gone, alone or with its load balancer.
    pub(super) async fn released(
        &self,
        id: &LoadBalancerId,
        step: &'static str,
        call: impl Future<Output = Result<(), OpenStackError>>,
    ) -> Result<bool, DriverError> {
        match self.changed(id, step, call).await {
            Ok(()) => Ok(true),
            Err(error) if error.reason() == Reason::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// A load balancer that was asked to go, and did not. When to ask again is for whoever waits: not soon.
fn stayed(id: &LoadBalancerId, end: End) -> DriverError {
    let state = if end == End::Error { "ERROR" } else { "ACTIVE" };
    let detail = format!("the load balancer {id} was to be deleted, and is in the state {state}");
    DriverError::new(Reason::Unavailable, RELEASE).detail(detail)
}

fn gone(id: &LoadBalancerId) -> DriverError {
    let detail = format!("the load balancer {} does not exist any more", id.as_str().escape_debug());
    DriverError::new(Reason::NotFound, "read the state of a load balancer").detail(detail)
}
