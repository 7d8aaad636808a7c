use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use staffetta_driver::{PodSubnetsDriver, Reason, SubnetId};
use staffetta_openstack::{DefaultPodSubnets, NeutronDefaults, Subnets};

use crate::world::{World, ok, refused};

async fn subnets(world: &World, defaults: NeutronDefaults) -> DefaultPodSubnets {
    let subnet = json!({ "subnet": { "id": "a1", "network_id": "n1", "cidr": "10.0.0.0/24", "gateway_ip": "10.0.0.1",
        "dns_nameservers": ["9.9.9.9"], "host_routes": [{ "destination": "10.1.0.0/16", "nexthop": "10.0.0.2" }],
        "name": "pods", "ip_version": 4, "project_id": "p1" } });
    world.answers("GET", "/v2.0/subnets/a1", vec![ok(&subnet)]).await;
    let network = json!({ "network": { "id": "n1", "name": "blue", "mtu": 1450 } });
    world.answers("GET", "/v2.0/networks/n1", vec![ok(&network)]).await;
    let subnets = Arc::new(Subnets::new(world.cloud().network(), &defaults, "east".into()));
    DefaultPodSubnets { subnets, subnet: "a1".into() }
}

#[tokio::test]
async fn a_subnet_is_reported_whole_and_asked_for_once() {
    let world = World::new().await;
    let driver = subnets(&world, NeutronDefaults::default()).await;
    let (pod, project) = (Pod::default(), "p".into());
    let (one, other) = tokio::join!(driver.subnets(&pod, &project), driver.subnets(&pod, &project));
    let subnet = one.unwrap().remove(0);
    assert_eq!(other.unwrap()[0], subnet);
    let reported = serde_json::to_value(&subnet).unwrap();
    let expected = json!({ "id": "a1", "cidr": "10.0.0.0/24", "gateway": "10.0.0.1", "dns": ["9.9.9.9"],
        "routes": [{ "cidr": "10.1.0.0/16", "gateway": "10.0.0.2" }],
        "network": { "id": "n1", "label": "blue", "bridge": null, "mtu": 1450,
            "should_provide_bridge": false, "should_provide_vlan": false } });
    assert_eq!(reported, expected);
    let asked =
        [world.requests("/v2.0/subnets/a1").await.len(), world.requests("/v2.0/networks/n1").await.len()];
    assert_eq!(asked, [1, 1]);
}

#[tokio::test]
async fn the_options_stand_above_what_the_network_says() {
    let world = World::new().await;
    let defaults = NeutronDefaults {
        ovs_bridge: Some("br-pods".into()),
        network_device_mtu: 9000,
        ..NeutronDefaults::default()
    };
    let driver = subnets(&world, defaults).await;
    let network = driver.subnets(&Pod::default(), &"p".into()).await.unwrap().remove(0).network;
    assert_eq!((network.bridge.as_deref(), network.mtu), (Some("br-pods"), Some(9000)));
}

#[tokio::test]
async fn a_subnet_that_does_not_exist_is_reported_and_looked_for_again() {
    let world = World::new().await;
    world.answers("GET", "/v2.0/subnets/a1", vec![refused(404, "SubnetNotFound")]).await;
    let subnets = Arc::new(Subnets::new(world.cloud().network(), &NeutronDefaults::default(), "east".into()));
    let driver = DefaultPodSubnets { subnets, subnet: "a1".into() };
    for _ in 0..2 {
        let error = driver.subnets(&Pod::default(), &"p".into()).await.unwrap_err();
        assert_eq!(error.reason(), Reason::NotFound);
    }
    assert_eq!(world.requests("/v2.0/subnets/a1").await.len(), 2);
}

#[tokio::test]
async fn what_is_no_id_of_a_subnet_asks_for_nothing() {
    let world = World::new().await;
    let subnets = Arc::new(Subnets::new(world.cloud().network(), &NeutronDefaults::default(), "east".into()));
    let driver = DefaultPodSubnets { subnets, subnet: "a1".into() };
    let long = "../".repeat(100);
    for text in ["", "..", "../security-groups", "a1?fields=id", "a1/", "a1%2f..", &long] {
        let error = driver.subnet(&text.into(), &"p1".into()).await.unwrap_err();
        assert_eq!(error.reason(), Reason::NotFound, "{text}");
        assert!(error.to_string().len() < 120, "{error}");
    }
    assert!(world.server.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_network_of_a_pod_is_in_the_project_of_the_pod_or_a_shared_one() {
    let world = World::new().await;
    let subnet = async |additional: &[&str], project: &str| {
        let additional_subnets = additional.iter().map(|id| SubnetId::from(*id)).collect();
        let driver =
            subnets(&world, NeutronDefaults { additional_subnets, ..NeutronDefaults::default() }).await;
        driver.subnet(&"a1".into(), &project.into()).await
    };
    assert_eq!(subnet(&[], "p1").await.unwrap().id, "a1".into());
    let error = subnet(&["b1"], "p2").await.unwrap_err();
    assert_eq!(error.reason(), Reason::Refused);
    assert!(error.to_string().contains("neutron_defaults.additional_subnets"), "{error}");
    assert_eq!(subnet(&["a1"], "p2").await.unwrap().id, "a1".into());
}
