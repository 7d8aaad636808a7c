//! Services of OpenStack that cannot be reached for a while.

use std::time::Duration;

use http::{Method, StatusCode};
use staffetta_real_openstack::{Match, Seen, Service};

use crate::services::Shop;
use crate::world::World;

/// The duration of an outage of Neutron or Octavia.
const MINUTE: Duration = Duration::from_secs(60);

/// The duration of an outage of another service.
const OUTAGE: Duration = Duration::from_secs(12);

/// The lifetime of a controller whose tokens are valid for `TOKEN_LIFE` seconds.
const WORK: Duration = Duration::from_secs(40);
const TOKEN_LIFE: &str = "24"; // each is used for half of it
const USUAL_TOKEN_LIFE: &str = "3600";

async fn away(service: Service, outage: Duration) {
    let world = World::alone().await;
    let controller = world.controller("").await;
    world.pod("before").await;
    world.pod("ends").await;
    world.until_active(&["before", "ends"]).await;
    world.stack.stop(service).await;
    let asked = world.gate.seen().len();
    world.pod("during").await;
    world.end_pod("ends").await;
    tokio::time::sleep(outage).await; // that is the fault
    let asked = world.gate.seen().len() - asked;
    // Two objects are tried once a second and a sweep every two seconds, and what does no harm is asked twice at a time.
    let most = 6 * usize::try_from(outage.as_secs()).unwrap();
    assert!(asked <= most, "{asked} calls while {service:?} was away");
    let said = world.until_reported("during", "DriverUnavailable").await;
    assert!(world.vifs("during").await.is_empty(), "{said}");
    world.stack.resume().await;
    world.pod("after").await;
    world.until_active(&["before", "during", "after"]).await;
    world.until_gone("ends").await;
    world.until_ports(3).await;
    let ports = world.ports().await.into_iter().map(|port| port.id).collect();
    assert_eq!(world.named().await, ports);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn while_neutron_is_away_for_a_minute_pods_wait_and_are_not_forgotten_on_a_real_openstack() {
    away(Service::Neutron, MINUTE).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn while_keystone_is_away_pods_wait_and_are_not_forgotten_on_a_real_openstack() {
    away(Service::Keystone, OUTAGE).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn while_the_database_is_away_pods_wait_and_are_not_forgotten_on_a_real_openstack() {
    away(Service::Database, OUTAGE).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn while_octavia_is_away_for_a_minute_services_wait_and_are_not_forgotten_on_a_real_openstack() {
    let world = World::alone().await;
    let shop = Shop::new(&world).await;
    let controller = world.controller(&shop.options("")).await;
    for name in ["stays", "goes"] {
        shop.service(name, "ClusterIP", &["10.128.0.10"]).await;
        let made = shop.until_served(name, &["10.128.0.10"]).await;
        shop.until_written(name, &made).await;
    }
    world.stack.stop(Service::Octavia).await;
    let asked = world.gate.seen().len();
    shop.service("comes", "ClusterIP", &["10.128.0.11"]).await;
    shop.endpoints("stays", &["10.128.0.12"]).await;
    shop.delete("goes").await;
    tokio::time::sleep(MINUTE).await; // that is the fault
    let asked = world.gate.seen().len() - asked;
    // Three objects are tried once a second, a sweep and a comparison every two seconds, and what does no harm is asked twice
    // at a time.
    let most = 8 * usize::try_from(MINUTE.as_secs()).unwrap();
    assert!(asked <= most, "{asked} calls while Octavia was away");
    world.until_reported("comes", "DriverUnavailable").await;
    world.stack.resume().await;
    for (name, endpoint) in [("stays", "10.128.0.12"), ("comes", "10.128.0.11")] {
        shop.until_served(name, &[endpoint]).await;
        shop.delete(name).await;
    }
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn tokens_that_live_for_seconds_are_renewed_in_time_and_cost_no_pod_on_a_real_openstack() {
    let world = World::alone().await;
    restart_keystone(&world, TOKEN_LIFE).await;
    let controller = world.controller("").await;
    let began = tokio::time::Instant::now();
    let mut pods = 0;
    while began.elapsed() < WORK {
        let name = format!("web-{pods}");
        world.pod(&name).await;
        world.until_active(&[&name]).await;
        pods += 1;
    }
    controller.stop().await.unwrap();
    let most = began.elapsed().as_secs() / 12 + 2;
    restart_keystone(&world, USUAL_TOKEN_LIFE).await;
    assert_eq!(world.ports().await.len(), pods);
    let logins = world.gate.count(&Match::any().method(Method::POST).path("/identity/v3/auth/tokens"));
    assert!((3..=usize::try_from(most).unwrap()).contains(&logins), "{logins} logins");
    let refused = |seen: &Seen| seen.answered.is_some_and(|(_, status)| status == StatusCode::UNAUTHORIZED);
    let seen = world.gate.seen();
    assert!(!seen.iter().any(refused), "a call was made with a token that had expired");
}

async fn restart_keystone(world: &World, token_life: &str) {
    world.stack.stop(Service::Keystone).await;
    world.stack.resume_with(&["--token-life", token_life]).await;
}
