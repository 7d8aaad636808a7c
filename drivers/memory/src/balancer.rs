//! One simulated load balancer, with the clock passed in.

use std::time::Duration;

use tokio::time::Instant;

use staffetta_driver::{
    ClusterId, DriverError, Listener, ListenerSpec, LoadBalancer, LoadBalancerProgress, Member, MemberSpec,
    Owner, Pool, ProvisioningStatus, Reason,
};

/// A load balancer with its mark.
#[derive(Debug)]
pub(super) struct MemoryLoadBalancer {
    pub(super) cluster: Option<ClusterId>,
    pub(super) owner: Option<Owner>,
    pub(super) tree: LoadBalancer,
    /// The time until which it takes no change.
    pub(super) busy_until: Instant,
    /// `true` if it is in the state ERROR after that time.
    pub(super) failed: bool,
}

impl MemoryLoadBalancer {
    /// The load balancer as it is now.
    pub(super) fn at(&self, now: Instant) -> LoadBalancer {
        let status = match self.progress(now) {
            LoadBalancerProgress::Active => ProvisioningStatus::Active,
            LoadBalancerProgress::Pending { .. } => ProvisioningStatus::Pending,
            LoadBalancerProgress::Error => ProvisioningStatus::Error,
        };
        LoadBalancer { status, ..self.tree.clone() }
    }

    /// Returns the progress of its last change.
    pub(super) fn progress(&self, now: Instant) -> LoadBalancerProgress {
        if now < self.busy_until {
            LoadBalancerProgress::Pending { poll_after: self.busy_until - now }
        } else if self.failed {
            LoadBalancerProgress::Error
        } else {
            LoadBalancerProgress::Active
        }
    }

    pub(super) fn is_of(&self, cluster: &ClusterId, owner: Option<&Owner>) -> bool {
        let marked_for = |owner: &Owner| self.owner.as_ref().is_some_and(|marked| marked.uid == owner.uid);
        self.cluster.as_ref() == Some(cluster) && owner.is_none_or(marked_for)
    }

    /// Fails while it takes no change.
    pub(super) fn ensure_idle(&self, step: &'static str, now: Instant) -> Result<(), DriverError> {
        let LoadBalancerProgress::Pending { poll_after } = self.progress(now) else { return Ok(()) };
        let error = DriverError::new(Reason::Conflict, step).after(poll_after);
        Err(error.detail(format!("the load balancer {} is PENDING_UPDATE", self.tree.id)))
    }

    /// Makes a change; only one that changes something keeps the load balancer busy, for `delay`.
    pub(super) fn change<T>(
        &mut self,
        step: &'static str,
        now: Instant,
        delay: Duration,
        change: impl FnOnce(&mut LoadBalancer) -> Result<T, DriverError>,
    ) -> Result<T, DriverError> {
        self.ensure_idle(step, now)?;
        if self.failed {
            let detail = format!("the load balancer {} is in the state ERROR", self.tree.id);
            return Err(DriverError::new(Reason::Refused, step).detail(detail));
        }
        let mut changed = self.tree.clone();
        let answer = change(&mut changed)?;
        if changed != self.tree {
            self.tree = changed;
            self.busy_until = now + delay;
        }
        Ok(answer)
    }
}

/// The listener as `spec` describes it; what stands of it keeps its id, and a pool that stands its members. `id` makes ids: 2
/// for a listener, 3 for a pool, 4 for a member.
pub(super) fn listener(
    present: Option<&Listener>,
    spec: &ListenerSpec,
    mut id: impl FnMut(u8) -> String,
) -> Listener {
    let listener_id = present.map_or_else(|| id(2).into(), |present| present.id.clone());
    let settings = spec.pool.settings.clone();
    let pool = match present.and_then(|present| present.pool.as_ref()) {
        Some(pool) => Pool { settings, ..pool.clone() },
        None => Pool { id: id(3).into(), settings, members: members(&[], &spec.pool.members, &mut id) },
    };
    Listener { id: listener_id, at: spec.at, settings: spec.settings.clone(), pool: Some(pool) }
}

/// The members as they are wanted; those that stay keep their ids.
pub(super) fn members(
    present: &[Member],
    wanted: &[MemberSpec],
    mut id: impl FnMut(u8) -> String,
) -> Vec<Member> {
    let known = |spec: &MemberSpec| {
        let same = |member: &&Member| (member.spec.ip, member.spec.port) == (spec.ip, spec.port);
        present.iter().find(same).map(|member| member.id.clone())
    };
    let member =
        |spec: &MemberSpec| Member { id: known(spec).unwrap_or_else(|| id(4).into()), spec: spec.clone() };
    wanted.iter().map(member).collect()
}
