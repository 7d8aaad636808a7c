//! Whatever is asked in whatever order: the network answers the same behind HTTP as in this process, and its ledger says
//! what came of it.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use serde_json::{Value, json};
use staffetta_driver::{DriverError, Listener, LoadBalancer, LoadBalancerSpec, PublicIp, Vif};
use staffetta_memory::MemoryOptions;
use staffetta_memory::http::{EffectKind, EffectLog, ResourceKind};

use crate::world::{
    Drivers, ListenerCalls, Place, Remote, World, any_address, balancer, http, instant, member, owner,
};

/// A call. The numbers choose the cluster, the owner, and the thing among those of the answers so far.
#[derive(Clone, Copy, Debug)]
enum Act {
    RequestVif(usize),
    ReleaseVif(usize, usize),
    ActivateVif(usize, usize),
    ListVifs(Option<usize>),
    EnsureBalancer(usize, usize),
    ReleaseBalancer(usize, usize),
    EnsureListener(usize),
    ReleaseListener(usize),
    SetMembers(usize, usize),
    ListBalancers(Option<usize>),
    Acquire(usize),
    Associate(usize, usize),
    Disassociate(usize, usize),
    ReleaseAddress(usize, usize),
    ListAddresses(Option<usize>),
}

fn acts() -> impl Strategy<Value = Vec<(bool, Act)>> {
    let (owner, thing) = (0..4_usize, 0..8_usize);
    let act = prop_oneof![
        3 => owner.clone().prop_map(Act::RequestVif),
        2 => (owner.clone(), thing.clone()).prop_map(|(owner, thing)| Act::ReleaseVif(owner, thing)),
        1 => (owner.clone(), thing.clone()).prop_map(|(owner, thing)| Act::ActivateVif(owner, thing)),
        1 => prop::option::of(owner.clone()).prop_map(Act::ListVifs),
        3 => (owner.clone(), 0..3_usize).prop_map(|(owner, spec)| Act::EnsureBalancer(owner, spec)),
        1 => (owner.clone(), thing.clone()).prop_map(|(owner, thing)| Act::ReleaseBalancer(owner, thing)),
        2 => thing.clone().prop_map(Act::EnsureListener),
        1 => thing.clone().prop_map(Act::ReleaseListener),
        2 => (thing.clone(), 0..3_usize).prop_map(|(thing, members)| Act::SetMembers(thing, members)),
        1 => prop::option::of(owner.clone()).prop_map(Act::ListBalancers),
        3 => owner.clone().prop_map(Act::Acquire),
        2 => (thing.clone(), thing.clone()).prop_map(|(address, balancer)| Act::Associate(address, balancer)),
        1 => (thing.clone(), thing.clone()).prop_map(|(address, balancer)| Act::Disassociate(address, balancer)),
        2 => (owner.clone(), thing).prop_map(|(owner, thing)| Act::ReleaseAddress(owner, thing)),
        1 => prop::option::of(owner).prop_map(Act::ListAddresses),
    ];
    prop::collection::vec((any::<bool>(), act), 1..60)
}

/// One who calls, and keeps what was answered.
struct Caller {
    clusters: [Drivers; 2],
    vifs: Vec<Vif>,
    balancers: Vec<LoadBalancer>,
    listeners: Vec<(usize, Listener)>,
    addresses: Vec<PublicIp>,
}

impl Caller {
    fn new(world: &World) -> Self {
        let clusters = [world.drivers("east"), world.drivers("west")];
        let (vifs, balancers) = (Vec::new(), Vec::new());
        Self { clusters, vifs, balancers, listeners: Vec::new(), addresses: Vec::new() }
    }

    /// Calls, and returns the result as JSON; `None` if the call has no resource to act on yet.
    async fn act(&mut self, east: bool, act: Act) -> Option<Value> {
        let drivers = &self.clusters[usize::from(east)];
        let nobody = |number: usize| owner(&number.to_string());
        let specs = [balancer("10.0.0.1"), balancer("10.0.0.2"), guarded()];
        Some(match act {
            Act::RequestVif(who) => {
                let request = drivers.vif_request(&who.to_string()).await;
                said(keep(drivers.vifs.request_vif(&request).await, &mut self.vifs))
            }
            Act::ReleaseVif(who, which) => {
                said(drivers.vifs.release_vif(&nobody(who), chosen(&self.vifs, which)?).await)
            }
            Act::ActivateVif(who, which) => {
                said(drivers.vifs.activate_vif(&nobody(who), chosen(&self.vifs, which)?).await)
            }
            Act::ListVifs(who) => said(drivers.vifs.vifs(who.map(nobody).as_ref()).await),
            Act::EnsureBalancer(who, spec) => {
                let made = drivers.balancers.ensure_load_balancer(&nobody(who), &specs[spec]).await;
                said(keep(made, &mut self.balancers))
            }
            Act::ReleaseBalancer(who, which) => {
                let id = &chosen(&self.balancers, which)?.id;
                said(drivers.balancers.release_load_balancer(&nobody(who), id).await)
            }
            Act::EnsureListener(which) => {
                let made = drivers.balancers.ensure_listener(chosen(&self.balancers, which)?, &http()).await;
                let place = which % self.balancers.len();
                said(made.inspect(|listener| self.listeners.push((place, listener.clone()))))
            }
            Act::ReleaseListener(which) => {
                let (balancer, listener) = chosen(&self.listeners, which)?;
                said(drivers.balancers.release_listener(&self.balancers[*balancer], listener).await)
            }
            Act::SetMembers(which, number) => {
                let (balancer, listener) = chosen(&self.listeners, which)?;
                let members = [member("10.1.0.1"), member("10.1.0.2")];
                let balancer = &self.balancers[*balancer];
                said(drivers.balancers.set_members(balancer, listener.at, &members[..number]).await)
            }
            Act::ListBalancers(who) => said(drivers.balancers.load_balancers(who.map(nobody).as_ref()).await),
            Act::Acquire(who) => {
                let taken = drivers.public_ips.acquire(&nobody(who), &any_address()).await;
                said(keep(taken, &mut self.addresses))
            }
            Act::Associate(which, to) => {
                let port = &chosen(&self.balancers, to)?.port;
                said(drivers.public_ips.associate(chosen(&self.addresses, which)?, port).await)
            }
            Act::Disassociate(which, from) => {
                let port = &chosen(&self.balancers, from)?.port;
                said(drivers.public_ips.disassociate(chosen(&self.addresses, which)?, port).await)
            }
            Act::ReleaseAddress(who, which) => {
                said(drivers.public_ips.release(&nobody(who), chosen(&self.addresses, which)?).await)
            }
            Act::ListAddresses(who) => said(drivers.public_ips.public_ips(who.map(nobody).as_ref()).await),
        })
    }
}

fn guarded() -> LoadBalancerSpec {
    LoadBalancerSpec { security_groups: Some(vec!["other".into()]), ..balancer("10.0.0.1") }
}

fn chosen<T>(things: &[T], which: usize) -> Option<&T> {
    things.get(which.checked_rem(things.len())?)
}

fn keep<T: Clone>(answer: Result<T, DriverError>, things: &mut Vec<T>) -> Result<T, DriverError> {
    answer.inspect(|thing| things.push(thing.clone()))
}

/// An answer as data, without the request id that only one of the two has.
fn said<T: serde::Serialize>(answer: Result<T, DriverError>) -> Value {
    match answer {
        Ok(answer) => json!({ "ok": answer }),
        Err(error) => {
            let mut error = serde_json::to_value(error).unwrap();
            error.as_object_mut().unwrap().remove("request_id");
            json!({ "failed": error })
        }
    }
}

async fn compare(acts: Vec<(bool, Act)>) -> Result<(), TestCaseError> {
    let options = MemoryOptions {
        port_quota: Some(3),
        load_balancer_quota: Some(2),
        public_ips: "203.0.113.0/29".parse().unwrap(),
        ..instant()
    };
    let remote = Remote::start(options.clone());
    let mut near = Caller::new(&Place::InMemory.world(options));
    let mut far = Caller::new(&World::OverHttp(remote.clone()));
    for (east, act) in acts {
        prop_assert_eq!(far.act(east, act).await, near.act(east, act).await, "{:?}", act);
    }
    check(&remote.client.effects().await.unwrap(), &remote).await
}

/// The ledger is whole, and what it says to exist exists.
async fn check(ledger: &EffectLog, remote: &Remote) -> Result<(), TestCaseError> {
    for entry in ledger.entries() {
        prop_assert!(entry.request_id.is_some() && entry.owner.is_some());
        prop_assert!(entry.kind != ResourceKind::Port || entry.effect != EffectKind::Changed);
    }
    let existing = |kind| ledger.existing(kind).into_keys().map(str::to_owned).collect::<BTreeSet<_>>();
    let client = &remote.client;
    let ports = client.ports().await.unwrap().into_iter().map(|port| port.vif.id.to_string()).collect();
    prop_assert_eq!(existing(ResourceKind::Port), ports);
    let balancers = client.load_balancers().await.unwrap();
    let balancers = balancers.into_iter().map(|marked| marked.resource.id.to_string()).collect();
    prop_assert_eq!(existing(ResourceKind::LoadBalancer), balancers);
    let addresses = client.public_ips().await.unwrap();
    let addresses = addresses.into_iter().map(|marked| marked.resource.id.to_string()).collect();
    prop_assert_eq!(existing(ResourceKind::PublicIp), addresses);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_network_answers_the_same_behind_http_and_its_ledger_says_what_exists(acts in acts()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(compare(acts))?;
    }
}
