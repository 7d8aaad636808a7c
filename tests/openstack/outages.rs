//! Services that are away for a while.

use std::time::Duration;

use staffetta_real_openstack::Service;

use crate::world::World;

/// How long a service is away.
const OUTAGE: Duration = Duration::from_secs(8);

async fn away(services: &[Service]) {
    let Some(world) = World::alone().await else { return };
    let controller = world.controller("").await;
    world.pod("before").await;
    world.pod("ends").await;
    world.until_active(&["before", "ends"]).await;
    for service in services {
        world.stack.stop(*service).await;
    }
    let asked = world.gate.seen().len();
    world.pod("during").await;
    world.end_pod("ends").await;
    tokio::time::sleep(OUTAGE).await; // that is the fault
    let asked = world.gate.seen().len() - asked;
    assert!(asked <= 60, "{asked} calls while {services:?} was away");
    assert!(world.vifs("during").await.is_empty());
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
async fn while_neutron_is_away_pods_wait_and_are_not_forgotten_on_a_real_openstack() {
    away(&[Service::Neutron]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_keystone_is_away_pods_wait_and_are_not_forgotten_on_a_real_openstack() {
    away(&[Service::Keystone]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_away_pods_wait_and_are_not_forgotten_on_a_real_openstack() {
    away(&[Service::Database]).await;
}
