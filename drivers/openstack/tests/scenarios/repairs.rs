//! Listeners and pools that were left half gone, or half removed by somebody.

use staffetta_driver::{ListenerPort, LoadBalancerDriver};
use staffetta_openstack::OctaviaDefaults;

use super::balancers::{HTTP, asked, listener, members, only, patiently, settled, spec, until_made};
use super::world::World;

const ALT: ListenerPort = ListenerPort { port: 81, ..HTTP };

pub(crate) async fn a_listener_that_is_wanted_again_while_it_goes_gets_a_pool_again(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let listeners = vec![listener(HTTP, members(&subnet, &[1])), listener(ALT, Vec::new())];
    let wanted = spec(world, &driver, &subnet, listeners).await;
    let mut balancer = driver.ensure_load_balancer(&world.owner("web"), &wanted).await.unwrap();
    settled(&driver, &balancer).await;
    let goes = balancer.listener(ALT).unwrap().clone();
    let left = patiently(async || driver.release_listener(&balancer, &goes).await).await.unwrap();
    assert_eq!((&left.id, &left.pool), (&goes.id, &None));
    balancer.listeners.retain(|listener| listener.at != ALT);
    balancer.listeners.push(left);
    until_made(&driver, &balancer, &wanted.listeners[1]).await;
    let found = only(&driver).await;
    assert_eq!(asked(&found), wanted.listeners);
    assert_eq!(found.listener(ALT).unwrap().id, goes.id);
}
