use proptest::prelude::*;
use staffetta_driver::{
    Listener, LoadBalancerSpec, Member, Pool, PoolSettings, PoolSpec, Protocol, SessionPersistence,
};

use super::*;
use crate::lb::testing::{listener, load_balancer, public_ip};

/// The order of the steps of one plan.
fn rank(step: &Step) -> u8 {
    match step {
        Step::DisassociatePublicIp => 0,
        Step::ReleasePublicIp => 1,
        Step::ReleaseLoadBalancer => 2,
        Step::SetMembers(..) => 3,
        Step::ReleaseListener(_) => 4,
        Step::EnsureLoadBalancer { .. } => 5,
        Step::EnsureListener(_) => 6,
        Step::AcquirePublicIp { .. } => 7,
        Step::AssociatePublicIp => 8,
    }
}

fn spec(listener: Listener) -> ListenerSpec {
    let Pool { settings, members, .. } = listener.pool.expect("it was made with one");
    let members = members.into_iter().map(|member| member.spec).collect();
    ListenerSpec { at: listener.at, settings: listener.settings, pool: PoolSpec { settings, members } }
}

fn wanted(vip: &str, ports: &[u16], ips: &[&str], public_ip: Option<PublicAddress>) -> Wanted {
    Wanted {
        load_balancer: LoadBalancerSpec {
            name: "default/web".into(),
            project: "memory".into(),
            subnet: "services".into(),
            vip: vip.parse().unwrap(),
            provider: None,
            security_groups: None,
            listeners: ports.iter().map(|port| spec(listener(Protocol::Tcp, *port, ips))).collect(),
            adopt: None,
        },
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
    for groups in [vec!["web".into()], Vec::new()] {
        wanted.load_balancer.security_groups = Some(groups);
        assert_eq!(plan(Some(&wanted), &standing), [Step::EnsureLoadBalancer { adopt: None }]);
    }
}

#[test]
fn on_a_port_that_was_left_alone_the_wanted_load_balancer_is_made_and_elsewhere_it_goes_first() {
    let mut left = standing("10.0.0.1", &[], &[], None);
    let port = left.load_balancer.as_mut().unwrap();
    (port.id, port.status) = (port.port.as_str().into(), Provisioning::Error);
    assert!(!left.is_broken(), "there never was one");
    let made = Step::EnsureLoadBalancer { adopt: None };
    let here = wanted("10.0.0.1", &[80], &[], None);
    assert_eq!(plan(Some(&here), &left), std::slice::from_ref(&made));
    let elsewhere = wanted("10.0.0.2", &[80], &[], None);
    assert_eq!(plan(Some(&elsewhere), &left), [Step::ReleaseLoadBalancer, made]);
    assert_eq!(plan(None, &left), [Step::ReleaseLoadBalancer]);
}

#[test]
fn a_listener_without_a_pool_gets_one() {
    let wanted = wanted("10.0.0.1", &[80], &["10.1.0.1"], None);
    let mut standing = standing("10.0.0.1", &[80], &[], None);
    standing.load_balancer.as_mut().unwrap().listeners[0].pool = None;
    let steps = plan(Some(&wanted), &standing);
    assert_eq!(steps, [Step::EnsureListener(wanted.load_balancer.listeners[0].clone())], "with its members");
}

#[test]
fn a_member_is_its_address_port_and_name() {
    let wanted = wanted("10.0.0.1", &[80], &["10.1.0.1"], None);
    let mut standing = standing("10.0.0.1", &[80], &["10.1.0.1"], None);
    let pool = standing.load_balancer.as_mut().unwrap().listeners[0].pool.as_mut().unwrap();
    pool.members[0].spec.name = "default/its-predecessor:8080".into();
    assert_eq!(plan(Some(&wanted), &standing).iter().map(rank).collect::<Vec<_>>(), [3]);
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
    let standing = Standing { unmarked: true, ..standing("10.0.0.1", &[81], &[], Some(Allocation::Pool)) };
    let expected = [
        Step::EnsureLoadBalancer { adopt: Some("lb".into()) },
        Step::AcquirePublicIp { address: PublicAddress::Any, adopt: Some("public".into()) },
    ];
    assert_eq!(plan(Some(&wanted), &standing), expected);
}

#[test]
fn a_load_balancer_of_another_provider_is_made_anew() {
    let mut wanted = wanted("10.0.0.1", &[80], &[], None);
    let standing = standing("10.0.0.1", &[80], &[], None);
    wanted.load_balancer.provider = Some("memory".into());
    assert_eq!(plan(Some(&wanted), &standing), []);
    wanted.load_balancer.provider = Some("other".into());
    assert_eq!(plan(Some(&wanted), &standing).iter().map(rank).collect::<Vec<_>>(), [2, 5]);
}

/// What is said of one tree: its address, its listeners by port, and its groups.
#[derive(Clone, Debug)]
struct Tree {
    vip: usize,
    listeners: Vec<Drawn>,
    guarded: bool,
}

/// What is said of one listener.
#[derive(Clone, Debug)]
struct Drawn {
    port: u16,
    timeout: bool,
    persistence: bool,
    members: usize,
    /// Of a tree that stands: whether its pool is there.
    pool: bool,
}

const VIPS: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const IPS: [&str; 3] = ["10.1.0.1", "10.1.0.2", "10.1.0.3"];

impl Drawn {
    fn listener(&self) -> Listener {
        let mut made = listener(Protocol::Tcp, self.port, &IPS[..self.members]);
        made.settings.client_timeout_ms = self.timeout.then_some(1000);
        let persistence = self.persistence.then_some(SessionPersistence { timeout_s: None });
        made.pool.as_mut().unwrap().settings = PoolSettings { persistence, ..PoolSettings::default() };
        made
    }

    fn standing(&self) -> Listener {
        let made = self.listener();
        Listener { pool: made.pool.filter(|_| self.pool), ..made }
    }
}

impl Tree {
    fn groups(&self) -> Vec<staffetta_driver::SecurityGroupId> {
        vec![if self.guarded { "web".into() } else { "default".into() }]
    }
}

fn tree() -> impl Strategy<Value = Tree> {
    let drawn = (prop::bool::ANY, prop::bool::ANY, 0..4_usize, prop::bool::weighted(0.8));
    let listeners = prop::collection::btree_map(80..84_u16, drawn, 0..4);
    (0..2_usize, listeners, prop::bool::ANY).prop_map(|(vip, listeners, guarded)| {
        let drawn = |(port, (timeout, persistence, members, pool))| Drawn {
            port,
            timeout,
            persistence,
            members,
            pool,
        };
        Tree { vip, listeners: listeners.into_iter().map(drawn).collect(), guarded }
    })
}

/// What stands after a step, in a world that does what it is asked for.
fn take(step: &Step, wanted: &Wanted, standing: &mut Standing) {
    let spec = &wanted.load_balancer;
    let made = |spec: &ListenerSpec, found: Option<&Listener>| {
        let members = spec.pool.members.iter().map(|spec| Member { id: "m".into(), spec: spec.clone() });
        let settings = spec.pool.settings.clone();
        let pool = match found.and_then(|found| found.pool.clone()) {
            Some(pool) => Pool { settings, ..pool },
            None => Pool { id: "p".into(), settings, members: members.collect() },
        };
        Listener { id: "l".into(), at: spec.at, settings: spec.settings.clone(), pool: Some(pool) }
    };
    match (step, &mut standing.load_balancer) {
        (Step::DisassociatePublicIp, _) => standing.lead_to(None),
        (Step::ReleasePublicIp, _) => standing.public_ip = None,
        (Step::ReleaseLoadBalancer, tree) => *tree = None,
        (Step::EnsureLoadBalancer { .. }, Some(tree)) => {
            tree.disabled = false;
            tree.security_groups = spec.security_groups.clone().unwrap_or_default();
        }
        (Step::EnsureLoadBalancer { .. }, tree) => {
            *tree = Some(LoadBalancer {
                security_groups: spec.security_groups.clone().unwrap_or_default(),
                listeners: spec.listeners.iter().map(|spec| made(spec, None)).collect(),
                ..load_balancer(&spec.name, &spec.vip.to_string())
            });
        }
        (Step::ReleaseListener(at), Some(tree)) => tree.listeners.retain(|listener| listener.at != *at),
        (Step::EnsureListener(spec), Some(tree)) => {
            let listener = made(spec, tree.listener(spec.at));
            tree.listeners.retain(|present| present.at != spec.at);
            tree.listeners.push(listener);
        }
        (Step::SetMembers(at, members), Some(tree)) => {
            let listener = tree.listeners.iter_mut().find(|listener| listener.at == *at).unwrap();
            let member = |spec: &MemberSpec| Member { id: "m".into(), spec: spec.clone() };
            listener.pool.as_mut().unwrap().members = members.iter().map(member).collect();
        }
        (Step::AcquirePublicIp { address, .. }, _) => {
            let acquired = match address {
                PublicAddress::Any => public_ip(Allocation::Pool),
                PublicAddress::Named(ip) => PublicIp { ip: *ip, ..public_ip(Allocation::User) },
            };
            standing.public_ip = Some(PublicIp { port: None, ..acquired });
        }
        (Step::AssociatePublicIp, Some(tree)) => {
            let port = Some(tree.port.clone());
            standing.lead_to(port);
        }
        (step, None) => panic!("{step:?} without a load balancer"),
    }
}

/// How many calls it takes at least to change the one tree into the other, public addresses aside.
fn fewest(old: Option<(&Tree, bool)>, new: &Tree) -> usize {
    let Some((old, broken)) = old else { return 1 };
    if broken || old.vip != new.vip {
        return 2;
    }
    let of = |tree: &Tree, port: u16| tree.listeners.iter().find(|listener| listener.port == port).cloned();
    let released = old.listeners.iter().filter(|listener| of(new, listener.port).is_none()).count();
    let calls = new.listeners.iter().map(|wanted| match of(old, wanted.port).filter(|found| found.pool) {
        None => 1,
        Some(found) => {
            let settings = (found.timeout, found.persistence) != (wanted.timeout, wanted.persistence);
            usize::from(settings) + usize::from(found.members != wanted.members)
        }
    });
    released + usize::from(old.guarded != new.guarded) + calls.sum::<usize>()
}

proptest! {
    #[test]
    fn from_any_tree_to_any_other_the_plan_leads_in_the_fewest_calls_and_then_there_is_none(
        (old, new) in (tree(), tree()),
        public in prop::option::of(prop::bool::ANY),
        old_public in prop::option::of(prop::sample::select(vec![Allocation::Pool, Allocation::User])),
        (there, broken) in (prop::bool::weighted(0.8), prop::bool::weighted(0.2)),
    ) {
        let public = public.map(|any| if any { PublicAddress::Any } else { PublicAddress::Named([1, 2, 3, 4].into()) });
        let mut wanted = wanted(VIPS[new.vip], &[], &[], public);
        wanted.load_balancer.security_groups = Some(new.groups());
        wanted.load_balancer.listeners = new.listeners.iter().map(|drawn| spec(drawn.listener())).collect();
        let mut standing = standing(VIPS[old.vip], &[], &[], old_public);
        if let Some(tree) = &mut standing.load_balancer {
            tree.security_groups = old.groups();
            tree.listeners = old.listeners.iter().rev().map(Drawn::standing).collect();
            if broken {
                tree.status = Provisioning::Error;
            }
        }
        standing.load_balancer = standing.load_balancer.filter(|_| there);

        let steps = plan(Some(&wanted), &standing);
        prop_assert!(steps.is_sorted_by_key(rank), "{steps:?}");
        let calls = steps.iter().filter(|step| step.changes_load_balancer()).count();
        prop_assert_eq!(calls, fewest(there.then_some((&old, broken)), &new), "{:?}", steps);
        for step in &steps {
            take(step, &wanted, &mut standing);
        }
        prop_assert_eq!(plan(Some(&wanted), &standing), []);
        let tree = standing.load_balancer.clone().unwrap();
        prop_assert_eq!(tree.listeners.len(), new.listeners.len());
        for wanted in &wanted.load_balancer.listeners {
            prop_assert!(wanted.is_made(tree.listener(wanted.at).unwrap()));
        }
        for step in plan(None, &standing) {
            take(&step, &wanted, &mut standing);
        }
        prop_assert!(standing.is_empty());
    }
}
