//! What Neutron is asked, and how often.

use futures_util::future::join_all;
use staffetta_driver::{Activation, PodVifDriver, StockKey, StockOrder, VifStock};
use staffetta_openstack::NeutronStock;

use crate::fake;
use crate::scenarios::world::activated;

#[tokio::test]
async fn a_pod_costs_one_call_and_its_release_another() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    fake.requests();
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    assert!(matches!(driver.activate_vif(&vif).await.unwrap(), Activation::NotYet { .. }));
    driver.release_vif(&world.owner("web"), &vif).await.unwrap();
    assert_eq!(fake.requests(), ["POST ports".to_owned(), format!("DELETE ports/{}", vif.id)]);
}

#[tokio::test]
async fn what_the_marks_showed_is_released_without_another_look() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let vif = world.bound("east").request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    let successor = world.bound("east");
    successor.vifs(None).await.unwrap();
    fake.requests();
    successor.release_vif(&world.owner("other"), &vif).await.unwrap();
    assert!(fake.requests().is_empty());
    successor.release_vif(&world.owner("web"), &vif).await.unwrap();
    assert_eq!(fake.requests(), [format!("DELETE ports/{}", vif.id)]);
}

#[tokio::test]
async fn one_list_answers_for_many_who_wait() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let requests: Vec<_> = (0..60).map(|pod| world.request(&format!("pod-{pod}"), &host, &subnet)).collect();
    let made = join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let vifs: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    for vif in &vifs {
        world.wire(&vif.id, &host).await;
    }
    fake.requests();
    // As a process that has just started and knows none of them.
    let driver = world.bound("east");
    let active = join_all(vifs.iter().map(|vif| activated(&driver, vif))).await;
    assert!(active.into_iter().all(|vif| vif.unwrap().active));
    let requests = fake.requests();
    assert!(requests.iter().all(|request| request.starts_with("GET ports?")), "{requests:?}");
    assert_eq!(requests.len(), 2, "the first is alone, the others come together");
}

#[tokio::test]
async fn a_list_in_pages_is_read_whole() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = NeutronStock::new(world.bound("east"));
    let request = world.request("any", &host, &subnet);
    let key = StockKey::new(host, &request);
    let order = StockOrder { key, subnets: vec![subnet], security_groups: Vec::new(), count: 10 };
    assert_eq!(stock.make(&order).await.vifs.len(), 10);
    fake.state().page = Some(3);
    assert_eq!(stock.list().await.unwrap().len(), 10);
}

#[tokio::test]
async fn a_lot_of_ports_is_made_by_one_call_and_bindings_that_come_late_are_read_by_one_list() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = NeutronStock::new(world.bound("east"));
    stock.list().await.unwrap();
    fake.state().binds_late = true;
    fake.requests();
    let request = world.request("any", &host, &subnet);
    let key = StockKey::new(host, &request);
    let order = StockOrder { key, subnets: vec![subnet], security_groups: Vec::new(), count: 20 };
    let made = stock.make(&order).await;
    assert!(made.failure.is_none() && made.vifs.len() == 20, "{:?}", made.failure);
    assert!(made.vifs.iter().all(|vif| vif.plugin == "ovs" && vif.has_traffic_filtering));
    let requests = fake.requests();
    assert_eq!(requests[0], "POST ports");
    // The first port is asked for alone.
    assert!(
        requests.len() <= 3 && requests[1..].iter().all(|request| request.starts_with("GET ports?")),
        "{requests:?}"
    );
}
