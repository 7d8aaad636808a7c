//! The driver `lbaasv2` with the option `own_vip_port`: the ports of virtual addresses, which the driver creates in Neutron.

use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{
    LoadBalancerDriver, LoadBalancerSpec, NetworkPolicyDriver, ProvisioningStatus, Reason,
};
use staffetta_openstack::OctaviaDefaults;

use super::balancers::{HTTP, listener, members, only, patiently, spec, until_not_pending};
use super::world::{World, text};

pub(crate) async fn the_port_of_the_address_may_be_ours_and_goes_with_the_load_balancer(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let options = OctaviaDefaults { own_vip_port: true, ..OctaviaDefaults::default() };
    let driver = world.balancers("east", &options);
    let group = world
        .create("security-groups", "security_group", json!({ "name": "web", "project_id": world.project }))
        .await;
    let mut spec = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1]))]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    let port = world.port(made.port.as_str()).await;
    assert_eq!(port["fixed_ips"][0]["ip_address"], json!("10.1.0.100"), "{port}");
    let taken = driver.ensure_load_balancer(&world.owner("other"), &spec).await.unwrap_err();
    assert_eq!(taken.reason(), Reason::Conflict, "{taken}");
    assert!(taken.to_string().contains("already allocated"), "{taken}");
    until_not_pending(&driver, &made).await;
    spec.security_groups = Some(vec![text(&group["id"]).into()]);
    let guarded = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(Some(guarded.security_groups), spec.security_groups);
    // Octavia puts them on its port, beside its own, and takes away what somebody else puts there.
    let (_, reported) = world.balance(Method::GET, &format!("loadbalancers/{}", made.id), &Value::Null).await;
    assert_eq!(reported["loadbalancer"]["vip_sg_ids"], json!([group["id"]]), "{reported}");
    until_not_pending(&driver, &made).await;
    let found = only(&driver).await;
    assert_eq!(Some(&found.security_groups), spec.security_groups.as_ref());
    let again = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(again.status, ProvisioningStatus::Active, "there is nothing to change");
    // Octavia has its port as long as it is there.
    patiently(async || driver.release_load_balancer(&world.owner("web"), &made.id).await).await;
    assert!(world.port(made.port.as_str()).await.is_null());
    assert_eq!(driver.load_balancers(None).await.unwrap(), []);
}

pub(crate) async fn a_load_balancer_is_guarded_alike_whoever_made_its_port(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let before = world.balancers("east", &OctaviaDefaults::default());
    let mut spec = spec(world, &before, &subnet, Vec::new()).await;
    let made = before.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    until_not_pending(&before, &made).await;
    let driver =
        world.balancers("east", &OctaviaDefaults { own_vip_port: true, ..OctaviaDefaults::default() });
    let group = world.policies("east").create_group(&"g".into(), None).await.unwrap();
    spec.security_groups = Some(vec![group.id]);
    patiently(async || driver.ensure_load_balancer(&world.owner("web"), &spec).await).await;
    until_not_pending(&driver, &made).await;
    let found = only(&driver).await;
    assert_eq!((&found.port, Some(&found.security_groups)), (&made.port, spec.security_groups.as_ref()));
    let again = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(again.status, ProvisioningStatus::Active, "there is nothing to change");
}

pub(crate) async fn a_port_of_ours_goes_with_its_load_balancer_though_none_are_made_by_now(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let own = OctaviaDefaults { own_vip_port: true, ..OctaviaDefaults::default() };
    let before = world.balancers("east", &own);
    let spec = spec(world, &before, &subnet, vec![listener(HTTP, members(&subnet, &[1]))]).await;
    let made = before.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    until_not_pending(&before, &made).await;
    world.allow_balancers(1).await;
    let left = LoadBalancerSpec { vip: [10, 1, 0, 101].into(), ..spec.clone() };
    before.ensure_load_balancer(&world.owner("left"), &left).await.unwrap_err();
    world.allow_balancers(-1).await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let found = driver.load_balancers(None).await.unwrap();
    let alone = |alone| found.iter().find(|marked| marked.resource.is_port_alone() == alone).unwrap();
    assert_eq!((found.len(), &alone(false).resource.port), (2, &made.port));
    let port = alone(true).resource.port.clone();
    // The address is free for another of the same owner, whose port is Octavia's.
    let other = driver.ensure_load_balancer(&world.owner("left"), &left).await.unwrap();
    assert_ne!(other.port, port);
    assert!(world.port(port.as_str()).await.is_null());
    patiently(async || driver.release_load_balancer(&world.owner("web"), &made.id).await).await;
    assert!(world.port(made.port.as_str()).await.is_null());
}

pub(crate) async fn a_port_that_was_left_without_a_load_balancer_is_found_and_used_or_given_back(
    world: &World,
) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let options = OctaviaDefaults { own_vip_port: true, ..OctaviaDefaults::default() };
    world.allow_balancers(0).await;
    let driver = world.balancers("east", &options);
    let spec = spec(world, &driver, &subnet, Vec::new()).await;
    for name in ["web", "other"] {
        let vip = if name == "web" { spec.vip } else { [10, 1, 0, 101].into() };
        let spec = LoadBalancerSpec { vip, ..spec.clone() };
        let error = driver.ensure_load_balancer(&world.owner(name), &spec).await.unwrap_err();
        assert_eq!(error.reason(), Reason::Quota, "{error}");
    }
    let mut left = driver.load_balancers(None).await.unwrap();
    left.retain(|marked| marked.owner == Some(world.owner("other")));
    assert_eq!((left.len(), left[0].resource.status), (1, ProvisioningStatus::Error));
    driver.release_load_balancer(&world.owner("other"), &left[0].resource.id).await.unwrap();
    assert_eq!(driver.load_balancers(None).await.unwrap().len(), 1);
    world.allow_balancers(-1).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(only(&driver).await.port, made.port);
}
