use proptest::prelude::*;
use staffetta_driver::{
    Listener, LoadBalancerSpec, Member, MemberSpec, Pool, PoolSettings, PoolSpec, Protocol,
    SessionPersistence,
};

use super::*;
use crate::lb::testing::{listener, load_balancer, public_ip};

/// Returns the rank of a step in the order of a plan.
fn rank(step: &LbStep) -> u8 {
    match step {
        LbStep::ChangeListener(ListenerChange::SetMembers(..)) => 0,
        LbStep::ChangeListener(ListenerChange::Release(_)) => 1,
        LbStep::DisassociatePublicIp => 2,
        LbStep::ReleasePublicIp => 3,
        LbStep::ReleaseLoadBalancer => 4,
        LbStep::EnsureLoadBalancer { .. } => 5,
        LbStep::ChangeListener(ListenerChange::Ensure(_)) => 6,
        LbStep::AcquirePublicIp { .. } => 7,
        LbStep::AssociatePublicIp => 8,
    }
}

fn spec(listener: Listener) -> ListenerSpec {
    let Pool { settings, members, .. } = listener.pool.expect("it was created with one");
    let members = members.into_iter().map(|member| member.spec).collect();
    ListenerSpec { at: listener.at, settings: listener.settings, pool: PoolSpec { settings, members } }
}

fn desired(vip: &str, ports: &[u16], ips: &[&str], public_ip: Option<PublicAddress>) -> DesiredState {
    DesiredState {
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

fn state(vip: &str, ports: &[u16], ips: &[&str], public: Option<Allocation>) -> LbaasState {
    let listeners = ports.iter().map(|port| listener(Protocol::Tcp, *port, ips)).collect();
    LbaasState {
        load_balancer: Some(LoadBalancer { listeners, ..load_balancer("default/web", vip) }),
        public_ip: public.map(public_ip),
        unmarked: false,
    }
}

#[test]
fn the_desired_state_needs_no_step() {
    let desired = desired("10.0.0.1", &[80, 81], &["10.1.0.1"], Some(PublicAddress::Any));
    let state = state("10.0.0.1", &[81, 80], &["10.1.0.1"], Some(Allocation::Pool));
    assert_eq!(plan(Some(&desired), &state), []);
    assert_eq!(plan(None, &LbaasState::default()), []);
}

#[test]
fn security_groups_are_changed_in_place_and_left_to_the_provider_if_none_are_named() {
    let mut desired = desired("10.0.0.1", &[80], &[], None);
    let state = state("10.0.0.1", &[80], &[], None);
    assert_eq!(plan(Some(&desired), &state), []);
    for groups in [vec!["web".into()], Vec::new()] {
        desired.load_balancer.security_groups = Some(groups);
        assert_eq!(plan(Some(&desired), &state), [LbStep::EnsureLoadBalancer { adopt: None }]);
    }
}

#[test]
fn the_port_of_an_interrupted_creation_is_reused_in_place_and_released_elsewhere() {
    let mut left = state("10.0.0.1", &[], &[], None);
    let port = left.load_balancer.as_mut().unwrap();
    (port.id, port.status) = (port.port.as_str().into(), ProvisioningStatus::Error);
    assert!(!left.is_broken(), "it is a port only");
    let made = LbStep::EnsureLoadBalancer { adopt: None };
    let here = desired("10.0.0.1", &[80], &[], None);
    assert_eq!(plan(Some(&here), &left), std::slice::from_ref(&made));
    let elsewhere = desired("10.0.0.2", &[80], &[], None);
    assert_eq!(plan(Some(&elsewhere), &left), [LbStep::ReleaseLoadBalancer, made]);
    assert_eq!(plan(None, &left), [LbStep::ReleaseLoadBalancer]);
}

#[test]
fn a_listener_without_a_pool_gets_one() {
    let desired = desired("10.0.0.1", &[80], &["10.1.0.1"], None);
    let mut state = state("10.0.0.1", &[80], &[], None);
    state.load_balancer.as_mut().unwrap().listeners[0].pool = None;
    let steps = plan(Some(&desired), &state);
    assert_eq!(
        steps,
        [LbStep::ChangeListener(ListenerChange::Ensure(desired.load_balancer.listeners[0].clone()))],
        "with its members"
    );
}

#[test]
fn a_member_is_its_address_port_and_name() {
    let desired = desired("10.0.0.1", &[80], &["10.1.0.1"], None);
    let mut state = state("10.0.0.1", &[80], &["10.1.0.1"], None);
    let pool = state.load_balancer.as_mut().unwrap().listeners[0].pool.as_mut().unwrap();
    pool.members[0].spec.name = "default/its-predecessor:8080".into();
    assert_eq!(plan(Some(&desired), &state).iter().map(rank).collect::<Vec<_>>(), [0]);
}

#[test]
fn a_deleted_service_releases_everything_public_address_first() {
    let state = state("10.0.0.1", &[80], &["10.1.0.1"], Some(Allocation::User));
    let expected = [LbStep::DisassociatePublicIp, LbStep::ReleasePublicIp, LbStep::ReleaseLoadBalancer];
    assert_eq!(plan(None, &state), expected);
}

#[test]
fn resources_of_kuryr_are_marked_first() {
    let desired = desired("10.0.0.2", &[80], &[], None);
    let state = LbaasState { unmarked: true, ..state("10.0.0.1", &[81], &[], Some(Allocation::Pool)) };
    let expected = [
        LbStep::EnsureLoadBalancer { adopt: Some("lb".into()) },
        LbStep::AcquirePublicIp { address: PublicAddress::Any, adopt: Some("public".into()) },
    ];
    assert_eq!(plan(Some(&desired), &state), expected);
}

#[test]
fn a_load_balancer_of_another_provider_is_replaced() {
    let mut desired = desired("10.0.0.1", &[80], &[], None);
    let state = state("10.0.0.1", &[80], &[], None);
    desired.load_balancer.provider = Some("memory".into());
    assert_eq!(plan(Some(&desired), &state), []);
    desired.load_balancer.provider = Some("other".into());
    let expected = [LbStep::ReleaseLoadBalancer, LbStep::EnsureLoadBalancer { adopt: None }];
    assert_eq!(plan(Some(&desired), &state), expected);
}

/// A load balancer in short form: its address, its listeners by port, and its groups.
#[derive(Clone, Debug)]
struct Tree {
    vip: usize,
    listeners: Vec<Drawn>,
    guarded: bool,
}

/// A listener in short form.
#[derive(Clone, Debug)]
struct Drawn {
    port: u16,
    timeout: bool,
    persistence: bool,
    members: usize,
    /// `true` if an observed listener has its pool.
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

    fn state(&self) -> Listener {
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

/// Applies a step to the state like a driver that succeeds.
fn take(step: &LbStep, desired: &DesiredState, state: &mut LbaasState) {
    let spec = &desired.load_balancer;
    let made = |spec: &ListenerSpec, found: Option<&Listener>| {
        let members = spec.pool.members.iter().map(|spec| Member { id: "m".into(), spec: spec.clone() });
        let settings = spec.pool.settings.clone();
        let pool = match found.and_then(|found| found.pool.clone()) {
            Some(pool) => Pool { settings, ..pool },
            None => Pool { id: "p".into(), settings, members: members.collect() },
        };
        Listener { id: "l".into(), at: spec.at, settings: spec.settings.clone(), pool: Some(pool) }
    };
    match (step, &mut state.load_balancer) {
        (LbStep::DisassociatePublicIp, _) => state.associate(None),
        (LbStep::ReleasePublicIp, _) => state.public_ip = None,
        (LbStep::ReleaseLoadBalancer, tree) => *tree = None,
        (LbStep::EnsureLoadBalancer { .. }, Some(tree)) => {
            tree.disabled = false;
            tree.security_groups = spec.security_groups.clone().unwrap_or_default();
        }
        (LbStep::EnsureLoadBalancer { .. }, tree) => {
            *tree = Some(LoadBalancer {
                security_groups: spec.security_groups.clone().unwrap_or_default(),
                listeners: spec.listeners.iter().map(|spec| made(spec, None)).collect(),
                ..load_balancer(&spec.name, &spec.vip.to_string())
            });
        }
        (LbStep::ChangeListener(ListenerChange::Release(at)), Some(tree)) => {
            tree.listeners.retain(|listener| listener.at != *at);
        }
        (LbStep::ChangeListener(ListenerChange::Ensure(spec)), Some(tree)) => {
            let listener = made(spec, tree.listener(spec.at));
            tree.listeners.retain(|present| present.at != spec.at);
            tree.listeners.push(listener);
        }
        (LbStep::ChangeListener(ListenerChange::SetMembers(at, members)), Some(tree)) => {
            let listener = tree.listeners.iter_mut().find(|listener| listener.at == *at).unwrap();
            let member = |spec: &MemberSpec| Member { id: "m".into(), spec: spec.clone() };
            listener.pool.as_mut().unwrap().members = members.iter().map(member).collect();
        }
        (LbStep::AcquirePublicIp { address, .. }, _) => {
            let acquired = match address {
                PublicAddress::Any => public_ip(Allocation::Pool),
                PublicAddress::Named(ip) => PublicIp { ip: *ip, ..public_ip(Allocation::User) },
            };
            state.public_ip = Some(PublicIp { port: None, ..acquired });
        }
        (LbStep::AssociatePublicIp, Some(tree)) => {
            let port = Some(tree.port.clone());
            state.associate(port);
        }
        (step, None) => panic!("{step:?} without a load balancer"),
    }
}

/// Returns the minimum number of calls from one load balancer to the other, without public
/// addresses.
fn fewest(old: Option<(&Tree, bool)>, new: &Tree) -> usize {
    let Some((old, broken)) = old else { return 1 };
    if broken || old.vip != new.vip {
        return 2;
    }
    let of = |tree: &Tree, port: u16| tree.listeners.iter().find(|listener| listener.port == port).cloned();
    let released = old.listeners.iter().filter(|listener| of(new, listener.port).is_none()).count();
    let calls = new.listeners.iter().map(|desired| match of(old, desired.port).filter(|found| found.pool) {
        None => 1,
        Some(found) => {
            let settings = (found.timeout, found.persistence) != (desired.timeout, desired.persistence);
            usize::from(settings) + usize::from(found.members != desired.members)
        }
    });
    released + usize::from(old.guarded != new.guarded) + calls.sum::<usize>()
}

proptest! {
    #[test]
    fn a_plan_makes_the_fewest_calls_and_the_next_one_is_empty(
        (old, new) in (tree(), tree()),
        public in prop::option::of(prop::bool::ANY),
        old_public in prop::option::of(prop::sample::select(vec![Allocation::Pool, Allocation::User])),
        (there, broken) in (prop::bool::weighted(0.8), prop::bool::weighted(0.2)),
    ) {
        let public = public.map(|any| if any { PublicAddress::Any } else { PublicAddress::Named([1, 2, 3, 4].into()) });
        let mut desired = desired(VIPS[new.vip], &[], &[], public);
        desired.load_balancer.security_groups = Some(new.groups());
        desired.load_balancer.listeners = new.listeners.iter().map(|drawn| spec(drawn.listener())).collect();
        let mut state = state(VIPS[old.vip], &[], &[], old_public);
        if let Some(tree) = &mut state.load_balancer {
            tree.security_groups = old.groups();
            tree.listeners = old.listeners.iter().rev().map(Drawn::state).collect();
            if broken {
                tree.status = ProvisioningStatus::Error;
            }
        }
        state.load_balancer = state.load_balancer.filter(|_| there);

        let steps = plan(Some(&desired), &state);
        prop_assert!(steps.is_sorted_by_key(rank), "{steps:?}");
        let calls = steps.iter().filter(|step| step.changes_load_balancer()).count();
        prop_assert_eq!(calls, fewest(there.then_some((&old, broken)), &new), "{:?}", steps);
        for step in &steps {
            take(step, &desired, &mut state);
        }
        prop_assert_eq!(plan(Some(&desired), &state), []);
        let tree = state.load_balancer.clone().unwrap();
        prop_assert_eq!(tree.listeners.len(), new.listeners.len());
        for desired in &desired.load_balancer.listeners {
            prop_assert!(desired.is_made(tree.listener(desired.at).unwrap()));
        }
        for step in plan(None, &state) {
            take(&step, &desired, &mut state);
        }
        prop_assert!(state.is_empty());
    }
}
