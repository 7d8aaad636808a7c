//! The simulated load balancers, without a lock. The current time is an argument of their methods.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ipnet::IpNet;
use tokio::time::Instant;

use super::MemoryOptions;
use super::ids::IdSequence;
use super::mark::Mark;
use staffetta_driver::{
    ClusterId, DriverError, ListenerChange, LoadBalancer, LoadBalancerId, LoadBalancerProgress,
    LoadBalancerSpec, Owner, PortId, Protocol, ProvisioningStatus, Reason,
};

/// All simulated load balancers.
#[derive(Debug)]
pub(super) struct LoadBalancers {
    /// The maximum number of load balancers, or `None` without a limit.
    pub(super) quota: Option<u32>,
    /// The protocols whose listeners can be neither created nor given new settings.
    pub(super) disabled_protocols: BTreeSet<Protocol>,
    /// The number of creations from now on that put the new load balancer into the state ERROR.
    pub(super) failing_next: u32,
    /// The subnet that must contain the virtual IP addresses; `None` if any address is accepted.
    subnet: Option<IpNet>,
    /// The time for which a load balancer is PENDING after each change.
    delay: Duration,
    /// The load balancers of all clusters, by id.
    pub(super) by_id: BTreeMap<LoadBalancerId, MemoryLoadBalancer>,
    ids: IdSequence,
}

impl LoadBalancers {
    /// Creates the collection without load balancers, with the limits of `options`.
    pub(super) fn new(options: &MemoryOptions) -> Self {
        Self {
            quota: options.load_balancer_quota,
            disabled_protocols: BTreeSet::new(),
            failing_next: 0,
            subnet: options.service_subnet,
            delay: Duration::from_millis(options.load_balancer_delay_ms),
            by_id: BTreeMap::new(),
            ids: IdSequence::default(),
        }
    }

    /// Returns `true` if this is the port of a load balancer's virtual IP address.
    pub(super) fn has_port(&self, port: &PortId) -> bool {
        self.by_id.values().any(|balancer| balancer.tree.port == *port)
    }

    /// Inserts a load balancer with this ownership mark, which is empty for one of another controller.
    pub(super) fn insert(&mut self, mark: Mark, load_balancer: LoadBalancer, now: Instant) {
        let id = load_balancer.id.clone();
        let balancer = MemoryLoadBalancer { mark, tree: load_balancer, busy_until: now, failed: false };
        self.by_id.insert(id, balancer);
    }

    /// Returns the load balancer of the owner, adopts the one that the spec names, or creates one. An existing one gets the security groups
    /// of the spec and is enabled. If this would change it while it is PENDING, the error is [`Reason::Conflict`].
    pub(super) fn ensure(
        &mut self,
        cluster: &ClusterId,
        owner: &Owner,
        spec: &LoadBalancerSpec,
        now: Instant,
    ) -> Result<LoadBalancer, DriverError> {
        let is_own = |balancer: &MemoryLoadBalancer| balancer.mark.is_of(cluster, Some(owner));
        let is_adoptable = |MemoryLoadBalancer { mark, tree, .. }: &MemoryLoadBalancer| {
            let fits = (tree.vip, &tree.subnet, &tree.project) == (spec.vip, &spec.subnet, &spec.project);
            fits && mark.cluster.is_none() && spec.adopt.as_ref() == Some(&tree.id)
        };
        let usable = self.by_id.values_mut().filter(|balancer| is_own(balancer) || is_adoptable(balancer));
        let Some(balancer) = usable.max_by_key(|balancer| is_own(balancer)) else {
            return self.make(cluster, owner, spec, now);
        };
        balancer.mark = Mark::new(cluster, owner);
        let groups = spec.security_groups.as_ref().filter(|groups| balancer.tree.security_groups != **groups);
        if groups.is_some() || balancer.tree.disabled {
            balancer.ensure_idle("change a load balancer", now)?;
            if let Some(groups) = groups {
                balancer.tree.security_groups.clone_from(groups);
            }
            balancer.tree.disabled = false;
            balancer.busy_until = now + self.delay;
        }
        Ok(balancer.at(now))
    }

    /// Creates a load balancer with its listeners and pools, or without any if the protocol of one is disabled. It is PENDING until the
    /// delay of the simulation has passed. The error is [`Reason::Quota`] if the quota is used up, [`Reason::Refused`] if the address is
    /// outside of the subnet, and [`Reason::Conflict`] if it is in use.
    fn make(
        &mut self,
        cluster: &ClusterId,
        owner: &Owner,
        spec: &LoadBalancerSpec,
        now: Instant,
    ) -> Result<LoadBalancer, DriverError> {
        const STEP: &str = "make a load balancer";
        if let Some(quota) = self.quota.filter(|quota| self.by_id.len() >= *quota as usize) {
            return Err(DriverError::new(Reason::Quota, STEP).detail(format!("{quota} are allowed")));
        }
        if let Some(subnet) = self.subnet.filter(|subnet| !subnet.contains(&spec.vip)) {
            let detail = format!("{} lies outside of the subnet {subnet}", spec.vip);
            return Err(DriverError::new(Reason::Refused, STEP).detail(detail));
        }
        if self.by_id.values().any(|balancer| balancer.tree.vip == spec.vip) {
            return Err(DriverError::new(Reason::Conflict, STEP).detail(format!("{} is in use", spec.vip)));
        }
        // As in Octavia, one protocol that nobody serves spoils the whole tree.
        let whole =
            spec.listeners.iter().all(|listener| !self.disabled_protocols.contains(&listener.at.protocol));
        let listeners = if whole { spec.listeners.clone() } else { Vec::new() };
        let spec = LoadBalancerSpec { listeners, provider: Some("memory".into()), ..spec.clone() };
        let (id, port) = (self.ids.next(1), self.ids.next(5));
        let tree = LoadBalancer::created(&spec, id.into(), port.into(), |_| self.ids.next(2));
        let failed = self.failing_next > 0;
        self.failing_next = self.failing_next.saturating_sub(1);
        let balancer = MemoryLoadBalancer {
            mark: Mark::new(cluster, owner),
            tree,
            busy_until: now + self.delay,
            failed,
        };
        let made = balancer.at(now);
        self.by_id.insert(made.id.clone(), balancer);
        Ok(made)
    }

    /// Returns the progress of the last change of a load balancer, or [`Reason::NotFound`] if it does not
    /// exist.
    pub(super) fn progress(
        &self,
        id: &LoadBalancerId,
        now: Instant,
    ) -> Result<LoadBalancerProgress, DriverError> {
        let found = self.by_id.get(id).map(|balancer| balancer.progress(now));
        found.ok_or_else(|| missing("read the status of a load balancer", id))
    }

    /// Returns `true` if the load balancer may be removed now, and `false` if it does not exist or has another owner. While it is PENDING,
    /// the error is [`Reason::Conflict`].
    pub(super) fn removable(
        &self,
        cluster: &ClusterId,
        owner: &Owner,
        id: &LoadBalancerId,
        now: Instant,
    ) -> Result<bool, DriverError> {
        match self.by_id.get(id).filter(|balancer| balancer.mark.is_of(cluster, Some(owner))) {
            Some(balancer) => balancer.ensure_idle("release a load balancer", now).map(|()| true),
            None => Ok(false),
        }
    }

    /// Changes a listener of a load balancer. A change that has an effect makes the load balancer PENDING for the delay of the simulation;
    /// one without an effect does not. The error is [`Reason::Conflict`] while the load balancer is PENDING, [`Reason::Refused`] in the
    /// state ERROR, [`Reason::Unsupported`] for [`ListenerChange::Ensure`] with a disabled protocol, and [`Reason::NotFound`] if the load
    /// balancer or a pool is missing.
    pub(super) fn change_listener(
        &mut self,
        id: &LoadBalancerId,
        change: &ListenerChange,
        now: Instant,
    ) -> Result<LoadBalancer, DriverError> {
        let step = match change {
            ListenerChange::SetMembers(..) => "set the members of a pool",
            ListenerChange::Release(_) => "release a listener",
            ListenerChange::Ensure(_) => "make a listener",
        };
        let Self { by_id, ids, delay, disabled_protocols, .. } = self;
        let balancer = by_id.get_mut(id).ok_or_else(|| missing(step, id))?;
        let at = change.at();
        if matches!(change, ListenerChange::Ensure(_)) && disabled_protocols.contains(&at.protocol) {
            return Err(DriverError::new(Reason::Unsupported, step).detail(at.to_string()));
        }
        balancer.ensure_idle(step, now)?;
        if balancer.failed {
            let detail = format!("the load balancer {id} is in the state ERROR");
            return Err(DriverError::new(Reason::Refused, step).detail(detail));
        }
        let no_pool = || DriverError::new(Reason::NotFound, step).detail(format!("pool of {at}"));
        let changed = balancer.tree.changed(change, |_| ids.next(2)).ok_or_else(no_pool)?;
        if changed.listeners != balancer.tree.listeners {
            balancer.tree = changed;
            balancer.busy_until = now + *delay;
        }
        Ok(balancer.at(now))
    }
}

/// A simulated load balancer with its ownership mark.
#[derive(Debug)]
pub(super) struct MemoryLoadBalancer {
    /// The ownership mark, which a load balancer of another controller does not have.
    pub(super) mark: Mark,
    /// The load balancer with its listeners, pools and members. Its status is not used.
    pub(super) tree: LoadBalancer,
    /// The time until which the load balancer is PENDING and accepts no change.
    pub(super) busy_until: Instant,
    /// `true` if the load balancer is in the state ERROR from `busy_until` on.
    pub(super) failed: bool,
}

impl MemoryLoadBalancer {
    /// Returns the load balancer as it appears at the time `now`: with its status, which depends on the time.
    pub(super) fn at(&self, now: Instant) -> LoadBalancer {
        let status = match self.progress(now) {
            LoadBalancerProgress::Active => ProvisioningStatus::Active,
            LoadBalancerProgress::Pending { .. } => ProvisioningStatus::Pending,
            LoadBalancerProgress::Error => ProvisioningStatus::Error,
        };
        LoadBalancer { status, ..self.tree.clone() }
    }

    /// Returns the progress of the last change of the load balancer.
    fn progress(&self, now: Instant) -> LoadBalancerProgress {
        if now < self.busy_until {
            LoadBalancerProgress::Pending { poll_after: self.busy_until - now }
        } else if self.failed {
            LoadBalancerProgress::Error
        } else {
            LoadBalancerProgress::Active
        }
    }

    /// Returns the error [`Reason::Conflict`], with a retry delay, while the load balancer is PENDING, and `Ok` otherwise.
    fn ensure_idle(&self, step: &'static str, now: Instant) -> Result<(), DriverError> {
        let LoadBalancerProgress::Pending { poll_after } = self.progress(now) else { return Ok(()) };
        let error = DriverError::new(Reason::Conflict, step).after(poll_after);
        Err(error.detail(format!("the load balancer {} is PENDING_UPDATE", self.tree.id)))
    }
}

/// Returns the error of a call for a load balancer that does not exist.
fn missing(step: &'static str, id: &LoadBalancerId) -> DriverError {
    DriverError::new(Reason::NotFound, step).detail(format!("load balancer {id}"))
}
