//! Plans the steps from the observed state of a load balancer to the desired one: a pure function.

use staffetta_driver::{
    Allocation, ListenerChange, ListenerSpec, LoadBalancer, LoadBalancerId, ProvisioningStatus, PublicIp,
    PublicIpId,
};

use super::desired::{DesiredState, PublicAddress};
use super::state::LbaasState;

/// A step of a plan: one call of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LbStep {
    /// Disassociates the public address from the load balancer.
    DisassociatePublicIp,
    /// Releases the public address of the service.
    ReleasePublicIp,
    /// Releases the load balancer with its listeners, pools and members.
    ReleaseLoadBalancer,
    /// Creates a missing load balancer with its listeners, pools and members, or corrects the
    /// security groups of an existing one and enables it.
    EnsureLoadBalancer {
        /// The id of Kuryr's load balancer that gets the ownership mark (tag or label); `None` for
        /// any other.
        adopt: Option<LoadBalancerId>,
    },
    /// Creates, changes or releases one listener, with its pool, of an existing load balancer.
    ChangeListener(ListenerChange),
    /// Takes the public address from the pool, or finds the one that the user named.
    AcquirePublicIp {
        /// The public address that the service requests.
        address: PublicAddress,
        /// The id of Kuryr's public address that gets the ownership mark; `None` for any other.
        adopt: Option<PublicIpId>,
    },
    /// Associates the public address with the load balancer.
    AssociatePublicIp,
}

impl LbStep {
    /// Returns `true` if the step changes the load balancer, which must be active before the step.
    /// All other steps concern only the public address.
    pub(super) fn changes_load_balancer(&self) -> bool {
        matches!(self, Self::ReleaseLoadBalancer | Self::EnsureLoadBalancer { .. } | Self::ChangeListener(_))
    }

    /// Returns `true` if the step releases the public address, or its association.
    pub(super) fn releases_public_ip(&self) -> bool {
        matches!(self, Self::DisassociatePublicIp | Self::ReleasePublicIp)
    }

    /// Returns `true` if the step may open the load balancer to more clients.
    fn may_widen_access(&self) -> bool {
        matches!(self, Self::EnsureLoadBalancer { .. } | Self::ChangeListener(ListenerChange::Ensure(_)))
    }
}

/// Computes the steps from `state` to `desired`. `desired` is `None` for a service that is to have
/// no load balancer.
///
/// In an existing load balancer, pools with other members are updated first, by one call for each
/// pool, so that an error of one port, or of the public address, does not leave another port with
/// deleted pods as members. Then surplus listeners are released. A public address that is no longer
/// desired is released after that, and before missing or different listeners are created or changed:
/// a service that is no longer public has no source ranges, and must not be open to everybody while it
/// still has the address.
///
/// A load balancer that cannot be changed into the desired one is released after its public address.
/// A missing load balancer is created with all its parts. The desired public address comes last.
///
/// Resources that Kuryr created get an ownership mark before anything else; the next plan continues
/// from there.
pub(super) fn plan(desired: Option<&DesiredState>, state: &LbaasState) -> Vec<LbStep> {
    if desired.is_some() && state.unmarked {
        return adoption(state);
    }
    let found = state.load_balancer.as_ref();
    let kept = found.filter(|found| desired.is_some_and(|desired| can_become(found, desired)));
    let kept_ip = state.public_ip.as_ref().filter(|found| {
        desired.and_then(|desired| desired.public_ip).is_some_and(|address| serves(found, address))
    });
    let is_associated = |public_ip: &PublicIp| {
        kept.is_some_and(|load_balancer| public_ip.port.as_ref() == Some(&load_balancer.port))
    };

    let mut steps =
        kept.zip(desired).map_or_else(Vec::new, |(load_balancer, desired)| changes(load_balancer, desired));
    if let Some(public_ip) = &state.public_ip {
        let mut release = Vec::new();
        if public_ip.port.is_some() && (kept_ip.is_none() || !is_associated(public_ip)) {
            release.push(LbStep::DisassociatePublicIp);
        }
        if kept_ip.is_none() {
            release.push(LbStep::ReleasePublicIp);
        }
        let at = steps.iter().position(LbStep::may_widen_access).unwrap_or(steps.len());
        drop(steps.splice(at..at, release));
    }
    // The port of an interrupted creation is used for the new load balancer.
    let is_reused = |found: &LoadBalancer| {
        found.is_port_alone() && desired.is_some_and(|desired| is_in_place(found, desired))
    };
    if kept.is_none() && found.is_some_and(|found| !is_reused(found)) {
        steps.push(LbStep::ReleaseLoadBalancer);
    }
    let Some(desired) = desired else { return steps };

    if kept.is_none() {
        steps.push(LbStep::EnsureLoadBalancer { adopt: None });
    }
    if let Some(address) = desired.public_ip {
        if kept_ip.is_none() {
            steps.push(LbStep::AcquirePublicIp { address, adopt: None });
        }
        if !kept_ip.is_some_and(is_associated) {
            steps.push(LbStep::AssociatePublicIp);
        }
    }
    steps
}

/// Returns the steps that change an existing load balancer into the desired one.
fn changes(found: &LoadBalancer, desired: &DesiredState) -> Vec<LbStep> {
    let listeners = &desired.load_balancer.listeners;
    let mut steps = Vec::new();
    for ListenerSpec { at, pool: desired, .. } in listeners {
        // A missing pool is created with its members.
        let Some(pool) = found.listener(*at).and_then(|listener| listener.pool.as_ref()) else { continue };
        let mut present: Vec<_> = pool.members.iter().map(|member| &member.spec).collect();
        present.sort();
        if !present.into_iter().eq(&desired.members) {
            let change = ListenerChange::SetMembers(*at, desired.members.clone());
            steps.push(LbStep::ChangeListener(change));
        }
    }
    let surplus = found.listeners.iter().map(|listener| listener.at);
    let surplus = surplus.filter(|at| listeners.iter().all(|listener| listener.at != *at));
    steps.extend(surplus.map(|at| LbStep::ChangeListener(ListenerChange::Release(at))));
    // Security groups are removed before source ranges are set, because a provider may not allow
    // both.
    let groups = desired.load_balancer.security_groups.as_ref();
    if found.disabled || groups.is_some_and(|groups| found.security_groups != *groups) {
        steps.push(LbStep::EnsureLoadBalancer { adopt: None });
    }
    let is_made = |spec: &ListenerSpec| found.listener(spec.at).is_some_and(|present| spec.is_made(present));
    let missing = listeners.iter().filter(|spec| !is_made(spec)).cloned();
    steps.extend(missing.map(|spec| LbStep::ChangeListener(ListenerChange::Ensure(spec))));
    steps
}

/// Returns the steps that add this cluster's ownership marks to resources that Kuryr created.
fn adoption(state: &LbaasState) -> Vec<LbStep> {
    let adopt = state.load_balancer.as_ref().map(|load_balancer| load_balancer.id.clone());
    let mut steps = vec![LbStep::EnsureLoadBalancer { adopt }];
    if let Some(public_ip) = state.public_ip.as_ref().filter(|found| found.allocation == Allocation::Pool) {
        let adopt = Some(public_ip.id.clone());
        steps.push(LbStep::AcquirePublicIp { address: PublicAddress::Any, adopt });
    }
    steps
}

/// Returns `true` if the load balancer can be changed into the desired one. It must not be in the state
/// ERROR; its address, subnet, project and provider cannot be changed.
fn can_become(found: &LoadBalancer, desired: &DesiredState) -> bool {
    let providers = found.provider.as_ref().zip(desired.load_balancer.provider.as_ref());
    let same_provider = providers.is_none_or(|(found, desired)| found == desired);
    found.status != ProvisioningStatus::Error && same_provider && is_in_place(found, desired)
}

/// Returns `true` if the load balancer has the desired address, subnet and project.
fn is_in_place(found: &LoadBalancer, desired: &DesiredState) -> bool {
    let spec = &desired.load_balancer;
    (found.vip, &found.subnet, &found.project) == (spec.vip, &spec.subnet, &spec.project)
}

/// Returns `true` if the public address is the desired one. A user-provided address is the desired
/// one only as long as the service names it.
fn serves(found: &PublicIp, desired: PublicAddress) -> bool {
    match desired {
        PublicAddress::Any => found.allocation == Allocation::Pool,
        PublicAddress::Named(ip) => found.ip == ip,
    }
}

#[cfg(test)]
mod tests;
