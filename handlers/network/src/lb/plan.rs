//! What leads from what stands to what is wanted.

use staffetta_driver::{
    Allocation, ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerId, MemberSpec, Provisioning, PublicIp,
    PublicIpId,
};

use super::standing::Standing;
use super::wanted::{PublicAddress, Wanted};

/// One call of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    DisassociatePublicIp,
    ReleasePublicIp,
    ReleaseLoadBalancer,
    /// With its pool, which goes first.
    ReleaseListener(ListenerPort),
    /// What is not there comes with all that hangs on it.
    EnsureLoadBalancer {
        adopt: Option<LoadBalancerId>,
    },
    /// With its pool and their settings; what is not there comes with its members.
    EnsureListener(ListenerSpec),
    /// All members of that listener's pool.
    SetMembers(ListenerPort, Vec<MemberSpec>),
    AcquirePublicIp {
        address: PublicAddress,
        adopt: Option<PublicIpId>,
    },
    AssociatePublicIp,
}

impl Step {
    /// Whether the load balancer must take changes for it. Else it concerns the public address only, and the load balancer
    /// stands without it.
    pub(super) fn changes_load_balancer(&self) -> bool {
        match self {
            Self::ReleaseLoadBalancer
            | Self::ReleaseListener(_)
            | Self::EnsureLoadBalancer { .. }
            | Self::EnsureListener(_)
            | Self::SetMembers(..) => true,
            Self::DisassociatePublicIp
            | Self::ReleasePublicIp
            | Self::AcquirePublicIp { .. }
            | Self::AssociatePublicIp => false,
        }
    }
}

/// The steps from what stands to what is wanted; nothing is wanted of a service that goes.
///
/// First goes what is to go: a public address that is not wanted or leads to a load balancer that goes; a load balancer
/// that cannot become the wanted one. Then the load balancer is made with all that hangs on it. Of one that stays, each pool
/// whose members differ gets them by one call, before anything that may be refused: what is wrong with one port is no reason
/// why another should lead to pods that are gone. Then pools and listeners of ports that left the service go, and those come
/// that are missing or treat connections otherwise. Last comes the public address. When nothing is to be done, there is no
/// step.
///
/// What a predecessor made is marked before anything else; what is to be done then is decided anew.
pub(super) fn plan(wanted: Option<&Wanted>, standing: &Standing) -> Vec<Step> {
    if wanted.is_some() && standing.unmarked {
        return adoption(standing);
    }
    let kept = standing
        .load_balancer
        .as_ref()
        .filter(|found| wanted.is_some_and(|wanted| can_become(found, wanted)));
    let kept_ip = standing.public_ip.as_ref().filter(|found| {
        wanted.and_then(|wanted| wanted.public_ip).is_some_and(|wanted| serves(found, wanted))
    });
    let leads_there = |public_ip: &PublicIp| {
        kept.is_some_and(|load_balancer| public_ip.port.as_ref() == Some(&load_balancer.port))
    };

    let mut steps = Vec::new();
    if let Some(public_ip) = &standing.public_ip {
        if public_ip.port.is_some() && (kept_ip.is_none() || !leads_there(public_ip)) {
            steps.push(Step::DisassociatePublicIp);
        }
        if kept_ip.is_none() {
            steps.push(Step::ReleasePublicIp);
        }
    }
    // On a port that was left alone, the wanted one is made.
    let used = |found: &LoadBalancer| {
        found.is_port_alone() && wanted.is_some_and(|wanted| is_in_place(found, wanted))
    };
    if kept.is_none() && standing.load_balancer.as_ref().is_some_and(|found| !used(found)) {
        steps.push(Step::ReleaseLoadBalancer);
    }
    let Some(wanted) = wanted else { return steps };

    match kept {
        Some(load_balancer) => steps.extend(changes(load_balancer, wanted)),
        None => steps.push(Step::EnsureLoadBalancer { adopt: None }),
    }
    if let Some(address) = wanted.public_ip {
        if kept_ip.is_none() {
            steps.push(Step::AcquirePublicIp { address, adopt: None });
        }
        if !kept_ip.is_some_and(leads_there) {
            steps.push(Step::AssociatePublicIp);
        }
    }
    steps
}

/// What is to be changed of a load balancer that stays.
fn changes(found: &LoadBalancer, wanted: &Wanted) -> Vec<Step> {
    let listeners = &wanted.load_balancer.listeners;
    let mut steps = Vec::new();
    for ListenerSpec { at, pool: wanted, .. } in listeners {
        // A pool that is not there is made with its members.
        let Some(pool) = found.listener(*at).and_then(|listener| listener.pool.as_ref()) else { continue };
        let mut present: Vec<_> = pool.members.iter().map(|member| &member.spec).collect();
        present.sort();
        if !present.into_iter().eq(&wanted.members) {
            steps.push(Step::SetMembers(*at, wanted.members.clone()));
        }
    }
    let surplus = found.listeners.iter().map(|listener| listener.at);
    let surplus = surplus.filter(|at| listeners.iter().all(|listener| listener.at != *at));
    steps.extend(surplus.map(Step::ReleaseListener));
    // Groups go before ranges come, which the other side may not take beside them.
    if found.disabled || !is_guarded(found, wanted) {
        steps.push(Step::EnsureLoadBalancer { adopt: None });
    }
    let made = |spec: &ListenerSpec| found.listener(spec.at).is_some_and(|present| spec.is_made(present));
    let unmade = listeners.iter().filter(|spec| !made(spec));
    steps.extend(unmade.cloned().map(Step::EnsureListener));
    steps
}

fn adoption(standing: &Standing) -> Vec<Step> {
    let adopt = standing.load_balancer.as_ref().map(|load_balancer| load_balancer.id.clone());
    let mut steps = vec![Step::EnsureLoadBalancer { adopt }];
    if let Some(public_ip) = standing.public_ip.as_ref().filter(|found| found.allocation == Allocation::Pool)
    {
        let adopt = Some(public_ip.id.clone());
        steps.push(Step::AcquirePublicIp { address: PublicAddress::Any, adopt });
    }
    steps
}

/// Whether the load balancer can become the wanted one: address, subnet, project and provider cannot be changed.
fn can_become(found: &LoadBalancer, wanted: &Wanted) -> bool {
    let spec = &wanted.load_balancer;
    let served = match (&found.provider, &spec.provider) {
        (Some(found), Some(wanted)) => found == wanted,
        _ => true,
    };
    found.status != Provisioning::Error && served && is_in_place(found, wanted)
}

fn is_in_place(found: &LoadBalancer, wanted: &Wanted) -> bool {
    let spec = &wanted.load_balancer;
    (found.vip, &found.subnet, &found.project) == (spec.vip, &spec.subnet, &spec.project)
}

fn is_guarded(found: &LoadBalancer, wanted: &Wanted) -> bool {
    let groups = wanted.load_balancer.security_groups.as_ref();
    groups.is_none_or(|groups| found.security_groups == *groups)
}

/// Whether the public address is the wanted one. One that the user named is given up when it is named no more.
pub(super) fn serves(found: &PublicIp, wanted: PublicAddress) -> bool {
    match wanted {
        PublicAddress::Any => found.allocation == Allocation::Pool,
        PublicAddress::Named(ip) => found.ip == ip,
    }
}

#[cfg(test)]
mod tests;
