//! Property: after any changes and failures, the desired state is reached and nothing else exists.

use proptest::prelude::*;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, PublicIpMethod};

use super::*;
use crate::lb::desired::PublicAddress;
use crate::lb::plan::plan;

#[derive(Clone, Debug)]
enum Act {
    /// Changes the service and its spec.
    Want {
        ip: u8,
        ports: Vec<u16>,
        public: Option<PublicAddress>,
    },
    WantNothing,
    Endpoints {
        slice: u8,
        ips: Vec<u8>,
    },
    Balancer(LoadBalancerMethod, Fault),
    Address(PublicIpMethod, Fault),
    Break,
    Remove,
    Restart,
}

fn fault() -> impl Strategy<Value = Fault> {
    let error = || DriverError::new(Reason::Unavailable, "ask");
    prop_oneof![
        Just(Fault::Fail(error())),
        Just(Fault::Fail(DriverError::new(Reason::Refused, "ask"))),
        Just(Fault::DoneThenFail(error())),
        Just(Fault::Hang),
        Just(Fault::DoneThenHang),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    use {LoadBalancerMethod as M, PublicIpMethod as P};
    let method = prop::sample::select(vec![
        M::List,
        M::Progress,
        M::Ensure,
        M::Release,
        M::EnsureListener,
        M::ReleaseListener,
        M::SetMembers,
    ]);
    let public_method =
        prop::sample::select(vec![P::List, P::Acquire, P::Associate, P::Disassociate, P::Release]);
    let ports = prop::collection::btree_set(80..84_u16, 1..4);
    let public = prop::option::weighted(
        0.6,
        prop_oneof![
            3 => Just(PublicAddress::Any),
            2 => (1..3_u8).prop_map(|last| PublicAddress::Named([192, 0, 2, last].into())),
        ],
    );
    let want = (1..4_u8, ports, public);
    prop_oneof![
        5 => want.prop_map(|(ip, ports, public)| Act::Want { ip, ports: ports.into_iter().collect(), public }),
        1 => Just(Act::WantNothing),
        3 => (0..3_u8, prop::collection::vec(1..6_u8, 0..4)).prop_map(|(slice, ips)| Act::Endpoints { slice, ips }),
        3 => (method, fault()).prop_map(|(method, fault)| Act::Balancer(method, fault)),
        2 => (public_method, fault()).prop_map(|(method, fault)| Act::Address(method, fault)),
        1 => Just(Act::Break),
        1 => Just(Act::Remove),
        1 => Just(Act::Restart),
    ]
}

/// Returns a spec whose ports have the name that the slices use.
fn wanted(ip: u8, ports: &[u16], public: Option<PublicAddress>) -> LbaasServiceSpec {
    LbaasServiceSpec {
        ip: [10, 0, 0, ip].into(),
        lb_ip: match public {
            Some(PublicAddress::Named(ip)) => Some(ip),
            _ => None,
        },
        ports: ports.iter().map(|number| port("http", *number)).collect(),
        service_type: if public.is_some() { ServiceType::LoadBalancer } else { ServiceType::ClusterIP },
        ..spec()
    }
}

async fn act_on(world: &mut World, act: Act, slices: &mut std::collections::BTreeMap<u8, Vec<String>>) {
    match act {
        Act::Want { ip, ports, public } => world.want(&wanted(ip, &ports, public)),
        Act::WantNothing => world.want_nothing(),
        Act::Endpoints { slice, ips } => {
            slices.insert(slice, ips.iter().map(|last| format!("10.1.0.{last}")).collect());
        }
        Act::Balancer(method, fault) => world.balancers.faults().inject(method, 1, fault),
        // A user-provided address carries no mark: its association is known to this process only,
        // until it is published.
        Act::Address(PublicIpMethod::Associate, Fault::DoneThenFail(_) | Fault::DoneThenHang) => {}
        Act::Address(method, fault) => world.addresses.faults().inject(method, 1, fault),
        Act::Break => {
            for (_, tree) in world.services.load_balancers() {
                world.services.break_load_balancer(&tree.id);
            }
        }
        Act::Remove => {
            for (_, tree) in world.services.load_balancers() {
                world.services.remove_load_balancer(&tree.id);
            }
        }
        Act::Restart => world.restart_quietly().await,
    }
}

impl World {
    /// Restarts the handler and repeats a failing recovery.
    async fn restart_quietly(&mut self) {
        self.replace(self.drivers(), true);
        for _ in 0..20 {
            let recovered =
                tokio::time::timeout(Duration::from_secs(1), self.garbage_collector().recover()).await;
            if matches!(recovered, Ok(Ok(()))) {
                return;
            }
        }
        panic!("the faults end");
    }

    /// Delivers all events and ignores failures and hangs.
    async fn deliver_all(&self, slices: &std::collections::BTreeMap<u8, Vec<String>>) {
        for (uid, ips) in slices {
            let ips: Vec<_> = ips.iter().map(String::as_str).collect();
            let _ = tokio::time::timeout(Duration::from_secs(1), self.slice(&format!("s{uid}"), &ips)).await;
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), self.event()).await;
    }
}

async fn converges(acts: Vec<Act>) {
    // Public addresses have no cool-down, and there are enough for all that leak.
    let options = MemoryOptions { load_balancer_delay_ms: 0, cool_down_ms: 0, ..MemoryOptions::default() };
    let mut world = World::new(options);
    for last in 1..3 {
        world.services.insert_public_ip([192, 0, 2, last].into());
    }
    let mut slices = std::collections::BTreeMap::new();
    for act in acts {
        act_on(&mut world, act, &mut slices).await;
        world.deliver_all(&slices).await;
    }
    world.balancers.faults().clear();
    world.addresses.faults().clear();
    // An unreported change is found when the driver refuses a call, or at the next start.
    world.restart_quietly().await;
    let _ = world.feed(Event::Added(world.api.object())).await;
    for _ in 0..3 {
        world.deliver_all(&slices).await;
    }
    let service = world.api.object();
    let owner = Owner::of(&service.metadata);
    let Some(spec) = LbaasServiceSpec::of(&service).unwrap() else {
        assert!(world.services.load_balancers().is_empty());
        assert!(
            world.services.public_ips().iter().all(|(owner, held)| owner.is_none() && held.port.is_none())
        );
        assert_eq!((world.shown(), world.ingress()), (None, Vec::new()));
        return;
    };
    let index = EndpointIndex::default();
    for (uid, ips) in &slices {
        let ips: Vec<_> = ips.iter().map(String::as_str).collect();
        staffetta_handler::Index::apply(&index, &Event::Added(slice(&format!("s{uid}"), &ips)));
    }
    let endpoints = index.of(&ServiceKey::of(&service.metadata));
    let wanted = DesiredState::of(
        &owner,
        &spec,
        (&ServiceSettings::of(&service).unwrap(), &world.options),
        &endpoints,
    );
    let tree = world.tree();
    let (_, public_ip) =
        world.services.public_ips().into_iter().find(|(_, held)| held.port.is_some()).unzip();
    let state = LbaasState { load_balancer: Some(tree.clone()), public_ip, unmarked: false };
    assert_eq!(plan(Some(&wanted), &state), [], "the observed state is the desired one");
    let ours = world.services.public_ips().into_iter().filter(|(owner, _)| owner.is_some()).count();
    assert_eq!(ours, usize::from(wanted.public_ip == Some(PublicAddress::Any)), "and nothing else");
    let listeners: Vec<_> = tree.listeners.iter().map(|listener| listener.at).collect();
    assert_eq!(listeners.len(), wanted.load_balancer.listeners.len());
    assert_eq!(annotation::write(&world.shown().unwrap()), annotation::write(&state), "and it is published");
    assert_eq!(world.ingress(), state.reachable().map(|held| held.ip).into_iter().collect::<Vec<_>>());

    world.delete();
    world.event().await.unwrap();
    assert!(world.services.load_balancers().is_empty());
    assert!(world.services.public_ips().iter().all(|(owner, held)| owner.is_none() && held.port.is_none()));
    assert_eq!(world.finalizers(), [THEIRS]);
}

proptest! {
    #[test]
    fn the_desired_state_is_reached_in_the_end_and_another_plan_is_empty(acts in prop::collection::vec(act(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(converges(acts));
    }
}
