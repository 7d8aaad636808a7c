//! Octavia: which calls are made, and what only one does that can be told to fail.

mod calls;
mod faults;
mod large;
mod providers;

use staffetta_driver::{
    ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerDriver, LoadBalancerProgress, LoadBalancerSpec,
    Protocol, Subnet,
};
use staffetta_openstack::{LbaasV2Driver, OctaviaDefaults};

use crate::fake::Fake;
use crate::scenarios::balancers::{HTTP, listener, members, until_not_pending};
use crate::scenarios::world::World;

const SCTP: ListenerPort = ListenerPort { protocol: Protocol::Sctp, port: 9000 };

/// A cluster that has looked at what stands, as each does at its start.
async fn started(fake: &Fake, world: &World) -> (LbaasV2Driver, Subnet) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    assert!(driver.load_balancers(None).await.unwrap().is_empty());
    fake.requests();
    (driver, subnet)
}

/// The spec of the service of that number.
fn numbered(spec: &LoadBalancerSpec, number: u8) -> LoadBalancerSpec {
    LoadBalancerSpec { vip: [10, 1, 0, 100 + number].into(), ..spec.clone() }
}

/// The requests to Octavia so far, without what they ask for.
fn asked_of_octavia(fake: &Fake) -> Vec<String> {
    let requests = fake.requests().into_iter().filter_map(|request| {
        let (method, path) = request.split_once(" /v2/lbaas/")?;
        let path = path.split(['?', '/']).collect::<Vec<_>>();
        let last = path.iter().rev().find(|part| ["members", "status"].contains(part));
        Some(format!("{method} {}{}", path[0], last.map(|last| format!("/{last}")).unwrap_or_default()))
    });
    requests.collect()
}

async fn made(driver: &LbaasV2Driver, world: &World, spec: &LoadBalancerSpec) -> LoadBalancer {
    let made = driver.ensure_load_balancer(&world.owner("web"), spec).await.unwrap();
    assert_eq!(until_not_pending(driver, &made).await, LoadBalancerProgress::Active);
    made
}

fn listeners(subnet: &Subnet) -> Vec<ListenerSpec> {
    let at = |port| ListenerPort { port, ..HTTP };
    (80..83).map(|port| listener(at(port), members(subnet, &[1, 2, 3]))).collect()
}
