//! Quotas, full subnets, and networks that are gone.

use staffetta_driver::{BulkVifDriver, PodVifDriver, Reason, VifRequest};
use staffetta_openstack::Quota;

use super::stock::order;
use super::world::World;

pub(crate) async fn a_quota_makes_pods_wait_and_its_raising_lets_them_go_on(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    world.allow_ports(1).await;
    driver.request_vif(&world.request("a", &host, &subnet)).await.unwrap();
    let error = driver.request_vif(&world.request("b", &host, &subnet)).await.unwrap_err();
    assert_eq!((error.reason(), error.transient(), error.ambiguous()), (Reason::Quota, true, false));
    assert!(
        error.to_string().contains("Quota exceeded") && error.to_string().contains("(request req-"),
        "{error}"
    );
    world.allow_ports(2).await;
    driver.request_vif(&world.request("b", &host, &subnet)).await.unwrap();
    world.allow_ports(-1).await;
}

pub(crate) async fn a_quota_is_read_with_the_number_in_use(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let network = world.cloud.network();
    let ports = async || network.quotas(&world.project).await.unwrap().unwrap()["port"];
    world.allow_ports(1000).await;
    let before = ports().await;
    assert_eq!(before.limit, 1000);
    world.bound("east").request_vif(&world.request("a", &host, &subnet)).await.unwrap();
    assert_eq!(ports().await, Quota { used: before.used + 1, ..before });
    world.allow_ports(-1).await;
    assert_eq!(ports().await.limit, -1);
}

pub(crate) async fn a_full_subnet_is_reported_as_such_and_leaves_nothing(world: &World) {
    // The router's address and one more.
    let (subnet, host) = (world.subnet("10.1.0.0/30").await, world.host("node").await);
    let driver = world.bound("east");
    let vif = driver.request_vif(&world.request("a", &host, &subnet)).await.unwrap();
    let error = driver.request_vif(&world.request("b", &host, &subnet)).await.unwrap_err();
    assert_eq!((error.reason(), error.ambiguous()), (Reason::NoAddress, false));
    assert_eq!(world.ports(&subnet).await.len(), 1);
    driver.release_vif(&world.owner("a"), &vif).await.unwrap();
    driver.request_vif(&world.request("b", &host, &subnet)).await.unwrap();
}

pub(crate) async fn a_network_that_is_gone_is_reported_by_name(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    world.remove(&format!("networks/{}", subnet.network.id)).await;
    let error = world.bound("east").request_vif(&world.request("a", &host, &subnet)).await.unwrap_err();
    assert_eq!(error.reason(), Reason::NotFound);
    assert!(error.to_string().contains(subnet.network.id.as_str()), "{error}");
}

pub(crate) async fn a_group_that_is_not_in_the_project_is_reported_with_the_project(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let group = "00000000-0000-4000-8000-000000000000";
    let request = VifRequest { security_groups: vec![group.into()], ..world.request("a", &host, &subnet) };
    let alone = driver.request_vif(&request).await.unwrap_err();
    let stock = driver;
    let of_a_pool = stock.create_vifs(&order(&stock, &request, 2)).await.failure.unwrap();
    for error in [alone, of_a_pool] {
        assert_eq!(error.reason(), Reason::NotFound);
        let said = error.to_string();
        assert!(said.contains(group) && said.contains(world.project.as_str()), "{said}");
    }
    assert!(world.ports(&subnet).await.is_empty());
}
