//! What leads from what stands to what is wanted.

use staffetta_driver::{
    Allocation, ListenerSpec, LoadBalancer, LoadBalancerId, MemberSpec, Provisioning, PublicIp, PublicIpId,
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
    ReleaseListener(ListenerSpec),
    EnsureLoadBalancer { adopt: Option<LoadBalancerId> },
    /// With its pool.
    EnsureListener(ListenerSpec),
    /// All members of that listener's pool.
    SetMembers(ListenerSpec, Vec<MemberSpec>),
    AcquirePublicIp { address: PublicAddress, adopt: Option<PublicIpId> },
    AssociatePublicIp,
}

impl Step {
    /// Whether it concerns the public address only, so that the load balancer stands without it.
    pub(super) fn is_public(&self) -> bool {
        matches!(
            self,
            Self::DisassociatePublicIp
                | Self::ReleasePublicIp
                | Self::AcquirePublicIp { .. }
                | Self::AssociatePublicIp
        )
    }
}

/// The steps from what stands to what is wanted; nothing is wanted of a service that goes.
///
/// First goes what is to go: a public address that is not wanted or leads to a load balancer that goes; a load balancer
/// that cannot become the wanted one; pools and listeners of ports that left the service. Then the load balancer is made,
/// then listeners with their pools, then each pool gets its members by one call, and last comes the public address. When
/// nothing is to be done, there is no step.
///
/// What a predecessor made is marked before anything else; what is to be done then is decided anew.
pub(super) fn plan(wanted: Option<&Wanted>, standing: &Standing) -> Vec<Step> {
    if wanted.is_some() && standing.unmarked {
        return adoption(standing);
    }
    let kept = standing.load_balancer.as_ref().filter(|found| wanted.is_some_and(|wanted| can_become(found, wanted)));
    let kept_ip = standing
        .public_ip
        .as_ref()
        .filter(|found| wanted.and_then(|wanted| wanted.public_ip).is_some_and(|wanted| serves(found, wanted)));
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
    if standing.load_balancer.is_some() && kept.is_none() {
        steps.push(Step::ReleaseLoadBalancer);
    }
    let Some(wanted) = wanted else { return steps };

    let listeners = kept.into_iter().flat_map(|load_balancer| &load_balancer.listeners);
    let surplus = listeners.filter(|listener| !wanted.listeners.contains_key(&listener.at));
    steps.extend(surplus.map(|listener| Step::ReleaseListener(listener.at)));
    if kept.is_none_or(|load_balancer| !is_guarded(load_balancer, wanted)) {
        steps.push(Step::EnsureLoadBalancer { adopt: None });
    }
    let pool = |at| kept.and_then(|load_balancer| load_balancer.listener(at)?.pool.as_ref());
    let missing = wanted.listeners.keys().filter(|at| pool(**at).is_none());
    steps.extend(missing.map(|at| Step::EnsureListener(*at)));
    for (at, members) in &wanted.listeners {
        let mut present: Vec<_> = pool(*at).into_iter().flat_map(|pool| &pool.members).map(|member| &member.spec).collect();
        present.sort();
        if !present.into_iter().eq(members) {
            steps.push(Step::SetMembers(*at, members.clone()));
        }
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

fn adoption(standing: &Standing) -> Vec<Step> {
    let adopt = standing.load_balancer.as_ref().map(|load_balancer| load_balancer.id.clone());
    let mut steps = vec![Step::EnsureLoadBalancer { adopt }];
    if let Some(public_ip) = standing.public_ip.as_ref().filter(|found| found.allocation == Allocation::Pool) {
        let adopt = Some(public_ip.id.clone());
        steps.push(Step::AcquirePublicIp { address: PublicAddress::Any, adopt });
    }
    steps
}

/// Whether the load balancer can become the wanted one: address, subnet and project cannot be changed.
fn can_become(found: &LoadBalancer, wanted: &Wanted) -> bool {
    let spec = &wanted.load_balancer;
    found.status != Provisioning::Error
        && (found.vip, &found.subnet, &found.project) == (spec.vip, &spec.subnet, &spec.project)
}

fn is_guarded(found: &LoadBalancer, wanted: &Wanted) -> bool {
    let groups = &wanted.load_balancer.security_groups;
    groups.is_empty() || found.security_groups == *groups
}

/// Whether the public address is the wanted one. One that the user named is given up when it is named no more.
pub(super) fn serves(found: &PublicIp, wanted: PublicAddress) -> bool {
    match wanted {
        PublicAddress::Any => found.allocation == Allocation::Pool,
        PublicAddress::Named(ip) => found.ip == ip,
    }
}
