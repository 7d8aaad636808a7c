//! Load balancers of a real Octavia that fail or do not become ready.

use crate::services::{PATIENCE, Shop};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_load_balancer_in_error_is_made_anew_and_served_when_octavia_is_mended_on_a_real_openstack() {
    let world = World::alone().await;
    let shop = Shop::new(&world).await;
    let controller = world.controller(&shop.options("")).await;
    let broken = world.stack.without_certificates();
    shop.service("web", "ClusterIP", &["10.128.0.10"]).await;
    world.until_reported_within(PATIENCE, "web", "LoadBalancerReplaced").await;
    world.until_reported_within(PATIENCE, "web", "LoadBalancerBroken").await;
    drop(broken);
    let made = shop.until_served("web", &["10.128.0.10"]).await;
    shop.until_written("web", &made).await;
    shop.delete("web").await;
    shop.until_empty().await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_load_balancer_that_is_stuck_in_pending_is_reported_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    // This provider takes all orders, and never does anything.
    let options = "[kubernetes]\nendpoints_driver_octavia_provider = \"noop_driver\"\n\
                   [relay]\nretry_timeout = \"3s\"\n";
    let controller = world.controller(&shop.options(options)).await;
    shop.service("web", "ClusterIP", &["10.128.0.10"]).await;
    world.until_reported_within(PATIENCE, "web", "LoadBalancerPending").await;
    assert_eq!(shop.balancer("web").await.unwrap().status, "PENDING_CREATE");
    shop.endpoints("web", &["10.128.0.11"]).await;
    let reported = world.tenant.load_balancers().await;
    assert_eq!(reported.len(), 1, "no second one is made: {reported:?}");
    controller.stop().await.unwrap();
}
