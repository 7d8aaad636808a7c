//! Ownership marks in other projects.

use serde_json::json;
use staffetta_driver::{LoadBalancerDriver, PodVifDriver, PublicIpRequest, Reason, ServicePublicIpDriver};
use staffetta_openstack::{OctaviaDefaults, Projects};

use super::balancers;
use super::world::World;

/// The same cloud for drivers of a cluster that has another project only.
fn elsewhere(world: &World) -> World {
    let projects = Projects::new(["0c9f2bd1c2a14f3e9b4d5c0f8f0e9a77".into()]);
    World {
        cloud: world.cloud.in_projects(projects),
        neutron: world.neutron.clone(),
        octavia: world.octavia.clone(),
        token: world.token.clone(),
        project: world.project.clone(),
        client: world.client.clone(),
        _keep: Box::new(()),
    }
}

pub(crate) async fn a_port_in_another_project_is_not_ours_whatever_its_mark_says(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let (web, ours) = (world.owner("web"), world.bound("east"));
    let made = ours.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    let driver = elsewhere(world).bound("east");
    assert_eq!(driver.vifs(None).await.unwrap(), []);
    assert_eq!(driver.vifs(Some(&web)).await.unwrap(), []);
    assert_eq!(driver.activate_vif(&web, &made).await.unwrap_err().reason(), Reason::Refused);
    driver.release_vif(&web, &made).await.unwrap();
    assert_eq!(ours.vifs(Some(&web)).await.unwrap().len(), 1);
}

pub(crate) async fn a_public_address_in_another_project_is_not_ours_whatever_its_mark_says(world: &World) {
    let (subnet, pool) = (world.subnet("10.1.0.0/24").await, world.external("203.0.113.0/29").await);
    world.join(&subnet, &pool).await;
    let (web, ours) = (world.owner("web"), world.floating("east", &pool));
    let port = "00000000-0000-4000-8000-000000000000".into();
    let request = PublicIpRequest { project: world.project.clone(), named: None, port, adopt: None };
    let made = ours.acquire(&web, &request).await.unwrap();
    let unmarked = json!({ "floating_network_id": pool.network.id, "project_id": world.project });
    world.create("floatingips", "floatingip", unmarked).await;
    let driver = elsewhere(world).floating("east", &pool);
    assert_eq!(driver.public_ips(None).await.unwrap(), []);
    assert_eq!(driver.public_ips(Some(&web)).await.unwrap(), []);
    driver.release(&web, &made).await.unwrap();
    assert_eq!(ours.public_ips(Some(&web)).await.unwrap().len(), 1);
}

pub(crate) async fn a_load_balancer_in_another_project_is_not_ours_whatever_its_mark_says(world: &World) {
    let (subnet, options) = (world.subnet("10.1.0.0/24").await, OctaviaDefaults::default());
    let (web, ours) = (world.owner("web"), world.balancers("east", &options));
    let spec = balancers::spec(world, &ours, &subnet, Vec::new()).await;
    let made = ours.ensure_load_balancer(&web, &spec).await.unwrap();
    let driver = elsewhere(world).balancers("east", &options);
    assert_eq!(driver.load_balancers(None).await.unwrap(), []);
    assert_eq!(driver.load_balancers(Some(&web)).await.unwrap(), []);
    driver.release_load_balancer(&web, &made.id).await.unwrap();
    assert_eq!(ours.load_balancers(Some(&web)).await.unwrap().len(), 1);
}
