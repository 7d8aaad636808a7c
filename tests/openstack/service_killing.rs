//! Controllers that are killed again and again while services come, change and go. Octavia's own list tells in the end what
//! leaked and what was made twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use staffetta_real_openstack::Service;

use crate::killing::{below, start};
use crate::services::Shop;
use crate::world::World;

/// How many services come in all, and how many there are at a time.
const SERVICES: usize = 30;
const ALIVE: usize = 6;

/// How many controllers are killed at least.
const KILLS: usize = 8;

/// The endpoint that the services have in the end.
const LAST: &str = "10.128.0.99";

/// Services come, get other endpoints and go; answers those that stay.
async fn churn(shop: &Shop<'_>) -> Vec<String> {
    let mut alive = Vec::new();
    for number in 0..SERVICES {
        if alive.len() == ALIVE {
            let name: String = alive.swap_remove(chosen(ALIVE));
            shop.delete(&name).await;
        }
        let name = format!("web-{number}");
        shop.service(&name, "ClusterIP", &["10.128.0.10"]).await;
        alive.push(name);
        tokio::time::sleep(Duration::from_millis(700)).await; // the speed of the churn
        shop.endpoints(&alive[chosen(alive.len())], &["10.128.0.10", "10.128.0.11"]).await;
    }
    for name in &alive {
        shop.endpoints(name, &[LAST]).await;
    }
    alive
}

fn chosen(count: usize) -> usize {
    usize::try_from(below(count as u64)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_it_is_killed_each_service_has_one_load_balancer_on_a_real_openstack() {
    let Some(world) = World::start().await else { return };
    let shop = Shop::new(&world).await;
    let options = world.options(&shop.options(""));
    let over = AtomicBool::new(false);
    let churned = async {
        let alive = churn(&shop).await;
        over.store(true, Ordering::Relaxed);
        alive
    };
    let killed = async {
        let mut kills = 0;
        while kills < KILLS || !over.load(Ordering::Relaxed) {
            let mut controller = start(&world, &options).await;
            tokio::time::sleep(Duration::from_millis(500 + below(4000))).await; // the point is that it is any time
            controller.signal("KILL").await;
            assert!(!controller.ends().await.success());
            kills += 1;
        }
    };
    let (alive, ()) = tokio::join!(churned, killed);
    let mut last = start(&world, &options).await;
    for name in &alive {
        let made = shop.until_served(name, &[LAST]).await;
        shop.until_written(name, &made).await;
    }
    let gone = async || world.tenant.load_balancers().await.len() == alive.len();
    world.until_within(crate::services::PATIENCE, "those of services that went are gone", gone).await;
    let calls = world.stack.calls(Service::Octavia).await.of_controller(&world.tenant.id);
    let made = calls
        .count(|call| call.method == "POST" && call.path.ends_with("/loadbalancers") && call.status == "201");
    assert!(made <= SERVICES, "{made} load balancers were made for {SERVICES} services");
    assert!(made > ALIVE, "{made} load balancers were made, and controllers were killed in vain");
    for name in &alive {
        shop.delete(name).await;
    }
    shop.until_empty().await;
    assert!(last.terminate().await.success());
}
