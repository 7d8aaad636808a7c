//! Whatever was wanted before and whatever went wrong on the way: in the end stands what is wanted, and nothing else.

use proptest::prelude::*;
use staffetta_driver::memory::{Fault, PublicIpMethod};
use staffetta_driver::{DriverError, Reason};

use super::*;
use crate::lb::plan::plan;
use crate::lb::wanted::PublicAddress;

#[derive(Clone, Debug)]
enum Act {
    /// The service wants this.
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

/// A service spec with ports that all have the name by which the slices know theirs.
fn wanted(ip: u8, ports: &[u16], public: Option<PublicAddress>) -> LbaasServiceSpec {
    LbaasServiceSpec {
        ip: [10, 0, 0, ip].into(),
        lb_ip: match public {
            Some(PublicAddress::Named(ip)) => Some(ip),
            _ => None,
        },
        ports: ports.iter().map(|number| port("http", *number)).collect(),
        reach: if public.is_some() { Reach::LoadBalancer } else { Reach::ClusterIP },
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
        // An address that the user made bears no mark: that it leads here is known to this process only, until it is written
        // down.
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
    /// A restart that may fail to read the marks, and is then tried again.
    async fn restart_quietly(&mut self) {
        self.replace(self.drivers(), true);
        for _ in 0..20 {
            let recovered = tokio::time::timeout(Duration::from_secs(1), self.sweep.recover()).await;
            if matches!(recovered, Ok(Ok(()))) {
                return;
            }
        }
        panic!("no fault lasts so long");
    }

    /// Delivers everything, with failures and hangs as they come.
    async fn deliver_all(&self, slices: &std::collections::BTreeMap<u8, Vec<String>>) {
        for (uid, ips) in slices {
            let ips: Vec<_> = ips.iter().map(String::as_str).collect();
            let _ = tokio::time::timeout(Duration::from_secs(1), self.slice(&format!("s{uid}"), &ips)).await;
        }
        let _ = tokio::time::timeout(Duration::from_secs(1), self.event()).await;
    }
}

async fn converges(acts: Vec<Act>) {
    // Public addresses do not rest, and there are enough for all that are lost on the way.
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
    // A change that nobody told of is found when the driver refuses, or at the next start.
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
    let wanted = Wanted::of(&owner, &spec, (&Asked::of(&service).unwrap(), &world.options), &endpoints);
    let tree = world.tree();
    let (_, public_ip) =
        world.services.public_ips().into_iter().find(|(_, held)| held.port.is_some()).unzip();
    let standing = Standing { load_balancer: Some(tree.clone()), public_ip, unmarked: false };
    assert_eq!(plan(Some(&wanted), &standing), [], "what stands is what is wanted");
    let ours = world.services.public_ips().into_iter().filter(|(owner, _)| owner.is_some()).count();
    assert_eq!(ours, usize::from(wanted.public_ip == Some(PublicAddress::Any)), "and nothing else");
    let listeners: Vec<_> = tree.listeners.iter().map(|listener| listener.at).collect();
    assert_eq!(listeners.len(), wanted.load_balancer.listeners.len());
    assert_eq!(
        annotation::write(&world.shown().unwrap()),
        annotation::write(&standing),
        "and it is written down"
    );
    assert_eq!(world.ingress(), standing.reachable().map(|held| held.ip).into_iter().collect::<Vec<_>>());

    world.delete();
    world.event().await.unwrap();
    assert!(world.services.load_balancers().is_empty());
    assert!(world.services.public_ips().iter().all(|(owner, held)| owner.is_none() && held.port.is_none()));
    assert_eq!(world.finalizers(), [THEIRS]);
}

proptest! {
    #[test]
    fn in_the_end_stands_what_is_wanted_and_a_second_plan_is_empty(acts in prop::collection::vec(act(), 1..14)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(converges(acts));
    }
}
