//! Controllers that are killed again and again while services come, change and go. Octavia's own list tells in the end what
//! leaked and what was made twice.

use std::time::Duration;

use staffetta_real_openstack::Service;

use crate::killing::{below, start};
use crate::services::{PATIENCE, Shop, creations};
use crate::world::World;

/// How many controllers are killed, how many services come while one runs, and how many there are at a time.
const KILLS: usize = 8;
const COME: usize = 4;
const ALIVE: usize = 6;

/// The endpoint that the services have in the end.
const LAST: &str = "10.128.0.99";

/// Some services come, some get other endpoints, and of those that were alive some go.
async fn churn(shop: &Shop<'_>, round: usize, alive: &mut Vec<String>) {
    for number in 0..COME {
        if alive.len() == ALIVE {
            let name = alive.swap_remove(chosen(ALIVE));
            shop.delete(&name).await;
        }
        let name = format!("web-{round}-{number}");
        shop.service(&name, "ClusterIP", &["10.128.0.10"]).await;
        alive.push(name);
        tokio::time::sleep(Duration::from_millis(700)).await; // the speed of the churn
        shop.endpoints(&alive[chosen(alive.len())], &["10.128.0.10", "10.128.0.11"]).await;
    }
}

fn chosen(count: usize) -> usize {
    usize::try_from(below(count as u64)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_it_is_killed_each_service_has_one_load_balancer_on_a_real_openstack() {
    let Some(world) = World::start().await else { return };
    let shop = Shop::new(&world).await;
    let options = world.options(&shop.options(""));
    let mut alive = Vec::new();
    for round in 0..KILLS {
        let mut controller = start(&world, &options).await;
        let made = world.gate.count(&creations());
        let killed = async {
            // Where a start takes long, none would get any further: every other one is let alone until it makes something.
            if round % 2 == 0 {
                let makes = async || world.gate.count(&creations()) > made;
                world.until_within(PATIENCE, "a load balancer is made", makes).await;
            }
            tokio::time::sleep(Duration::from_millis(below(4500))).await; // the point is that it is any time
            controller.signal("KILL").await;
            assert!(!controller.ends().await.success());
        };
        tokio::join!(churn(&shop, round, &mut alive), killed);
    }
    for name in &alive {
        shop.endpoints(name, &[LAST]).await;
    }
    let mut last = start(&world, &options).await;
    for name in &alive {
        let made = shop.until_served(name, &[LAST]).await;
        shop.until_written(name, &made).await;
    }
    let gone = async || world.tenant.load_balancers().await.len() == alive.len();
    world.until_within(PATIENCE, "those of services that went are gone", gone).await;
    let calls = world.stack.calls(Service::Octavia).await.of_controller(&world.tenant.id);
    let made = calls
        .count(|call| call.method == "POST" && call.path.ends_with("/loadbalancers") && call.status == "201");
    let services = KILLS * COME;
    assert!(made <= services, "{made} load balancers were made for {services} services");
    assert!(made > ALIVE, "{made} load balancers were made, and controllers were killed in vain");
    for name in &alive {
        shop.delete(name).await;
    }
    shop.until_empty().await;
    assert!(last.terminate().await.success());
}
