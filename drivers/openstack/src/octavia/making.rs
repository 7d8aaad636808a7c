//! Makes a load balancer with its tree, or finds and marks the one that is there.

use staffetta_driver::{
    DriverError, LoadBalancer, LoadBalancerId, LoadBalancerSpec, Owner, PortId, Provisioning, Reason,
};

use super::LbaasV2Driver;
use super::board::FIRST_STEP;
use super::tree;
use super::waiting::busy;
use super::wire::{
    GOING, LOAD_BALANCER_FIELDS, LoadBalancerChange, LoadBalancerTold, NewListener, NewLoadBalancer,
};
use crate::cloud::well_formed;
use crate::error::OpenStackError;
use crate::mark::{self, cluster_tag, uid_tag};

impl LbaasV2Driver {
    /// The load balancer that is marked for `owner`; the first one where a lost answer made more. What goes is none, nor is
    /// one of which only the port was made: another is made on that port.
    pub(super) async fn standing(&self, owner: &Owner) -> Result<Option<LoadBalancer>, DriverError> {
        if self.memory.has_none(&owner.uid) {
            return Ok(None);
        }
        let trees = self.trees(Some(owner)).await?.into_iter().map(|marked| marked.thing);
        Ok(trees.into_iter().find(|tree| !tree.is_port_alone()))
    }

    /// The load balancer that a predecessor made, marked for `owner` from now on; none where it does not exist any more, is
    /// another's, or is not where the spec wants one: then it is no predecessor's of this one, whoever says so.
    pub(super) async fn adopted(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
        id: &LoadBalancerId,
    ) -> Result<Option<LoadBalancer>, DriverError> {
        const STEP: &str = "adopt a load balancer";
        if !well_formed(id.as_str()) {
            return Ok(None);
        }
        self.waiting.takes(id, STEP).await?;
        let Some(found) = self.octavia.whole_load_balancer(STEP, id).await? else { return Ok(None) };
        let is_in_place = found.vip_address == Some(spec.vip)
            && found.vip_subnet_id.as_ref() == Some(&spec.subnet)
            && found.project_id == spec.project;
        if !is_in_place {
            return Ok(None);
        }
        let is_anothers = self.owner_of(&found).is_some_and(|marked| marked.uid != owner.uid)
            || mark::is_marked(&found.description, &found.tags) && self.owner_of(&found).is_none();
        if is_anothers {
            return Ok(None);
        }
        let told = self.mark(STEP, owner, &found).await?;
        self.tree(&LoadBalancerTold { listeners: Vec::new(), pools: Vec::new(), ..told }).await
    }

    /// Marks a load balancer for `owner`; the tags that others gave it stay.
    async fn mark(
        &self,
        step: &'static str,
        owner: &Owner,
        found: &LoadBalancerTold,
    ) -> Result<LoadBalancerTold, DriverError> {
        let tags = self.octavia.features().await?.tags.then(|| {
            let mut tags = found.tags.clone();
            tags.extend(self.tags(owner));
            tags.sort_unstable();
            tags.dedup();
            tags
        });
        let description = Some(mark::description(&self.cluster, owner));
        let change = LoadBalancerChange { description, tags, ..LoadBalancerChange::default() };
        match self.octavia.change_load_balancer(step, &found.id, &change).await {
            Ok(told) => {
                self.waiting.changed(&found.id);
                self.memory.owns(&owner.uid, &found.id);
                Ok(told)
            }
            Err(error) => Err(self.explained(&found.id, step, error).await),
        }
    }

    /// One that stands gets the security groups of `spec`, and is switched on.
    pub(super) async fn guarded(
        &self,
        mut standing: LoadBalancer,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        const STEP: &str = "change a load balancer";
        let wanted = spec.security_groups.as_ref().filter(|groups| standing.security_groups != **groups);
        let change = LoadBalancerChange {
            vip_sg_ids: wanted.map(Vec::as_slice),
            admin_state_up: standing.disabled.then_some(true),
            ..LoadBalancerChange::default()
        };
        if change.vip_sg_ids.is_some() || change.admin_state_up.is_some() {
            self.waiting.takes(&standing.id, STEP).await?;
            if let Err(error) = self.octavia.change_load_balancer(STEP, &standing.id, &change).await {
                return Err(self.explained(&standing.id, STEP, error).await);
            }
            self.waiting.changed(&standing.id);
            standing.status = Provisioning::Pending;
        }
        if let Some(wanted) = wanted {
            standing.security_groups.clone_from(wanted);
        }
        standing.disabled = false;
        Ok(standing)
    }

    /// Makes a load balancer by one call with all that hangs on it; without it where something of that is refused, or is one more
    /// than a quota allows.
    pub(super) async fn make(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
    ) -> Result<LoadBalancer, DriverError> {
        let tagged = self.octavia.features().await?.tags;
        let tags = if tagged { self.tags(owner) } else { Vec::new() };
        let making = self.waiting.making(&owner.uid, &spec.project)?;
        let port = if self.own_ports {
            match self.ports.ensure(owner, spec).await {
                Ok(port) => Some(port),
                Err(error) => return Err(self.taken(owner, spec, error).await),
            }
        } else {
            // One that is left of ours holds the address.
            self.release_ports(owner, None).await?;
            None
        };
        let whole = self.create(owner, spec, tags.clone(), port.clone(), tree::whole_listeners(spec)).await;
        let made = match whole {
            // What is wrong with a listener is told of that listener when it is made by itself.
            Err(error) if !spec.listeners.is_empty() && may_be_of_a_listener(&error) => {
                self.create(owner, spec, tags, port, Vec::new()).await
            }
            result => result,
        };
        let told = match made {
            Ok(told) => told,
            Err(error) => {
                if error.ambiguous() {
                    self.memory.doubt(&owner.uid);
                }
                return Err(self.taken(owner, spec, error.into()).await);
            }
        };
        self.memory.owns(&owner.uid, &told.id);
        making.made(&told.id);
        let listeners = self.tree_of_answer(&told);
        let unreadable = || {
            let detail = format!("the load balancer {} was made without an address", told.id);
            DriverError::new(Reason::Unavailable, "make a load balancer").detail(detail)
        };
        let groups = spec.security_groups.clone().unwrap_or_default();
        tree::load_balancer(&told, groups, listeners).ok_or_else(unreadable)
    }

    async fn create(
        &self,
        owner: &Owner,
        spec: &LoadBalancerSpec,
        tags: Vec<String>,
        vip_port_id: Option<PortId>,
        listeners: Vec<NewListener>,
    ) -> Result<LoadBalancerTold, OpenStackError> {
        let new = NewLoadBalancer {
            name: &spec.name,
            project_id: &spec.project,
            description: mark::description(&self.cluster, owner),
            tags,
            vip_address: spec.vip,
            vip_subnet_id: &spec.subnet,
            vip_port_id,
            vip_sg_ids: spec.security_groups.as_deref().unwrap_or_default(),
            provider: spec.provider.as_deref(),
            admin_state_up: true,
            listeners,
        };
        self.octavia.create(&new).await
    }

    /// Why an address is taken. Where a load balancer of this cluster has it that goes, it is free in a moment. Where the one of
    /// `owner` has it, which no list told of because somebody took its tags off, it gets them back, and the next attempt finds it.
    async fn taken(&self, owner: &Owner, spec: &LoadBalancerSpec, error: DriverError) -> DriverError {
        let said = error.to_string();
        // Of an address, and of a port of ours.
        if !["already allocated", "already used by device"].iter().any(|words| said.contains(words)) {
            return error;
        }
        let filter = vec![("vip_address", spec.vip.to_string())];
        let step = "find the load balancer that has an address";
        let Ok(found) = self.octavia.load_balancers(step, &filter, &LOAD_BALANCER_FIELDS).await else {
            return error;
        };
        let is_there = |told: &&LoadBalancerTold| {
            told.vip_address == Some(spec.vip) && told.vip_subnet_id.as_ref() == Some(&spec.subnet)
        };
        let ours = found.iter().filter(is_there).find_map(|told| Some((self.owner_of(told)?, told)));
        let Some((of, told)) = ours else { return error };
        if told.provisioning_status != GOING {
            if of.uid != owner.uid {
                return error;
            }
            if let Err(unmarked) = self.mark("mark a load balancer again", owner, told).await {
                return unmarked;
            }
        }
        busy(&told.id, "make a load balancer").because(error).after(5 * FIRST_STEP)
    }

    fn tags(&self, owner: &Owner) -> Vec<String> {
        vec![cluster_tag(&self.cluster), uid_tag(&owner.uid)]
    }
}

/// Whether a refusal of the whole may be about something that hangs on the load balancer: an option that the provider lacks
/// (501), a malformed listener (400), a quota. Whether that is one of load balancers is seen by the next attempt.
fn may_be_of_a_listener(error: &OpenStackError) -> bool {
    matches!(error.status(), Some(400 | 501)) || error.reason() == Reason::Quota
}
