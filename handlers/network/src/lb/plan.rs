//! What leads from what stands to what is wanted.

use staffetta_driver::{
    Allocation, ListenerPort, LoadBalancer, LoadBalancerId, MemberSpec, Provisioning, PublicIp, PublicIpId,
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
    EnsureLoadBalancer {
        adopt: Option<LoadBalancerId>,
    },
    /// With its pool.
    EnsureListener(ListenerPort),
    /// All members of that listener's pool.
    SetMembers(ListenerPort, Vec<MemberSpec>),
    AcquirePublicIp {
        address: PublicAddress,
        adopt: Option<PublicIpId>,
    },
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
        let mut present: Vec<_> =
            pool(*at).into_iter().flat_map(|pool| &pool.members).map(|member| &member.spec).collect();
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
    if let Some(public_ip) = standing.public_ip.as_ref().filter(|found| found.allocation == Allocation::Pool)
    {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use staffetta_driver::{LoadBalancerSpec, Protocol};

    use super::*;
    use crate::lb::testing::{listener, load_balancer, public_ip};

    /// The order of the steps of one plan.
    fn rank(step: &Step) -> u8 {
        match step {
            Step::DisassociatePublicIp => 0,
            Step::ReleasePublicIp => 1,
            Step::ReleaseLoadBalancer => 2,
            Step::ReleaseListener(_) => 3,
            Step::EnsureLoadBalancer { .. } => 4,
            Step::EnsureListener(_) => 5,
            Step::SetMembers(..) => 6,
            Step::AcquirePublicIp { .. } => 7,
            Step::AssociatePublicIp => 8,
        }
    }

    fn wanted(vip: &str, ports: &[u16], ips: &[&str], public_ip: Option<PublicAddress>) -> Wanted {
        let members = |port: &u16| {
            let listener = listener(Protocol::Tcp, *port, ips);
            let members = listener.pool.into_iter().flat_map(|pool| pool.members).map(|member| member.spec);
            (listener.at, members.collect())
        };
        Wanted {
            load_balancer: LoadBalancerSpec {
                name: "default/web".into(),
                project: "memory".into(),
                subnet: "services".into(),
                vip: vip.parse().unwrap(),
                security_groups: Vec::new(),
                adopt: None,
            },
            listeners: ports.iter().map(members).collect::<BTreeMap<_, _>>(),
            public_ip,
        }
    }

    fn standing(vip: &str, ports: &[u16], ips: &[&str], public: Option<Allocation>) -> Standing {
        let listeners = ports.iter().map(|port| listener(Protocol::Tcp, *port, ips)).collect();
        Standing {
            load_balancer: Some(LoadBalancer { listeners, ..load_balancer("default/web", vip) }),
            public_ip: public.map(public_ip),
            unmarked: false,
        }
    }

    #[test]
    fn what_stands_as_it_is_wanted_takes_no_step() {
        let wanted = wanted("10.0.0.1", &[80, 81], &["10.1.0.1"], Some(PublicAddress::Any));
        let standing = standing("10.0.0.1", &[81, 80], &["10.1.0.1"], Some(Allocation::Pool));
        assert_eq!(plan(Some(&wanted), &standing), []);
        assert_eq!(plan(None, &Standing::default()), []);
    }

    #[test]
    fn security_groups_are_changed_in_place_and_those_that_nobody_names_are_left_to_the_other_side() {
        let mut wanted = wanted("10.0.0.1", &[80], &[], None);
        let standing = standing("10.0.0.1", &[80], &[], None);
        assert_eq!(plan(Some(&wanted), &standing), []);
        wanted.load_balancer.security_groups = vec!["web".into()];
        assert_eq!(plan(Some(&wanted), &standing), [Step::EnsureLoadBalancer { adopt: None }]);
    }

    #[test]
    fn a_listener_without_a_pool_gets_one() {
        let wanted = wanted("10.0.0.1", &[80], &["10.1.0.1"], None);
        let mut standing = standing("10.0.0.1", &[80], &[], None);
        standing.load_balancer.as_mut().unwrap().listeners[0].pool = None;
        let steps = plan(Some(&wanted), &standing);
        assert_eq!(steps.iter().map(rank).collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn a_member_is_its_address_port_and_name() {
        let wanted = wanted("10.0.0.1", &[80], &["10.1.0.1"], None);
        let mut standing = standing("10.0.0.1", &[80], &["10.1.0.1"], None);
        let pool = standing.load_balancer.as_mut().unwrap().listeners[0].pool.as_mut().unwrap();
        pool.members[0].spec.name = "default/its-predecessor:8080".into();
        assert_eq!(plan(Some(&wanted), &standing).iter().map(rank).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn a_service_that_goes_gives_everything_back_public_address_first() {
        let standing = standing("10.0.0.1", &[80], &["10.1.0.1"], Some(Allocation::User));
        let expected = [Step::DisassociatePublicIp, Step::ReleasePublicIp, Step::ReleaseLoadBalancer];
        assert_eq!(plan(None, &standing), expected);
    }

    #[test]
    fn what_a_predecessor_made_is_marked_before_anything_else() {
        let wanted = wanted("10.0.0.2", &[80], &[], None);
        let standing =
            Standing { unmarked: true, ..standing("10.0.0.1", &[81], &[], Some(Allocation::Pool)) };
        let expected = [
            Step::EnsureLoadBalancer { adopt: Some("lb".into()) },
            Step::AcquirePublicIp { address: PublicAddress::Any, adopt: Some("public".into()) },
        ];
        assert_eq!(plan(Some(&wanted), &standing), expected);
    }

    proptest! {
        #[test]
        fn what_goes_goes_first_and_every_pool_is_set_by_one_call(
            (vip, ports, ips) in (0..2_usize, prop::collection::btree_set(80..84_u16, 0..4), 0..3_usize),
            (old_vip, old_ports, old_ips) in (0..2_usize, prop::collection::btree_set(80..84_u16, 0..4), 0..3_usize),
            public in prop::option::of(prop::bool::ANY),
            old_public in prop::option::of(prop::sample::select(vec![Allocation::Pool, Allocation::User])),
            (there, broken) in (prop::bool::weighted(0.8), prop::bool::weighted(0.2)),
        ) {
            const VIPS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
            const IPS: [&str; 2] = ["10.1.0.1", "10.1.0.2"];
            let public = public.map(|any| if any { PublicAddress::Any } else { PublicAddress::Named([1, 2, 3, 4].into()) });
            let ports: Vec<_> = ports.into_iter().collect();
            let old_ports: Vec<_> = old_ports.into_iter().collect();
            let wanted = wanted(VIPS[vip], &ports, &IPS[..ips], public);
            let mut standing = standing(VIPS[old_vip], &old_ports, &IPS[..old_ips], old_public);
            if broken {
                standing.load_balancer.as_mut().unwrap().status = Provisioning::Error;
            }
            standing.load_balancer = standing.load_balancer.filter(|_| there);
            let steps = plan(Some(&wanted), &standing);
            prop_assert!(steps.is_sorted_by_key(rank), "{steps:?}");
            let mut set: Vec<_> = steps.iter().filter(|step| rank(step) == 6).collect();
            let calls = set.len();
            set.dedup_by_key(|step| match step { Step::SetMembers(at, _) => Some(*at), _ => None });
            prop_assert_eq!(set.len(), calls);
            let replaced = there && (broken || vip != old_vip);
            prop_assert_eq!(steps.contains(&Step::ReleaseLoadBalancer), replaced);
            prop_assert_eq!(steps.contains(&Step::EnsureLoadBalancer { adopt: None }), replaced || !there);
        }
    }
}
