//! A service with more endpoints than one request to Octavia holds. The worker of an amphora needs some tens of milliseconds for each member of
//! a pool that a batch changes, so the pool is not much larger than a request.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Method;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use staffetta_real_openstack::Match;

use crate::services::{Shop, creations};
use crate::world::World;

/// The time limit of a step, which is no speed that is asked for.
const PATIENCE: Duration = Duration::from_secs(900);

/// An EndpointSlice with these endpoints; Kubernetes puts at most 1,000 into one.
fn slice(endpoints: impl IntoIterator<Item = u32>) -> EndpointSlice {
    let endpoint = |endpoint: u32| {
        let name = format!("a-deployment-of-usual-length-{endpoint:05}");
        json!({ "addresses": [address(endpoint)], "conditions": { "ready": true },
            "targetRef": { "kind": "Pod", "namespace": "default", "name": name } })
    };
    let slice = json!({ "metadata": { "name": "large", "labels": { "kubernetes.io/service-name": "large" } },
        "addressType": "IPv4", "endpoints": endpoints.into_iter().map(endpoint).collect::<Vec<_>>(),
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }] });
    serde_json::from_value(slice).unwrap()
}

fn address(endpoint: u32) -> String {
    Ipv4Addr::from(0x0a80_0000 + 256 + endpoint).to_string()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_service_of_a_thousand_endpoints_is_served_on_a_real_openstack() {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    let slices: Api<EndpointSlice> = Api::default_namespaced(world.client.clone());
    let port = json!({ "name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP" });
    let service = json!({ "metadata": { "name": "large" },
        "spec": { "selector": { "app": "large" }, "ports": [port] } });
    let service: Service = serde_json::from_value(service).unwrap();
    slices.create(&PostParams::default(), &slice(0..1000)).await.unwrap();
    shop.services.create(&PostParams::default(), &service).await.unwrap();
    let controller = world.controller(&shop.options("[load_balancers]\ncheck_interval_s = 600\n")).await;

    let until_served = async |endpoints: Vec<u32>| {
        let mut members: Vec<_> =
            endpoints.into_iter().map(|endpoint| format!("{}:8080", address(endpoint))).collect();
        members.sort();
        let wanted = vec![("TCP:80".to_owned(), members)];
        world
            .until_within(PATIENCE, "the service is served", async || {
                tokio::time::sleep(Duration::from_secs(2)).await;
                let found = shop.balancer("large").await;
                found.is_some_and(|found| found.status == "ACTIVE" && found.listeners == wanted)
            })
            .await;
    };
    let batches = Match::any().method(Method::PUT).path("/members");
    let removals = Match::any().method(Method::DELETE).path("/members/");
    let calls = || (world.gate.count(&batches), world.gate.count(&removals));
    until_served((0..1000).collect()).await;
    assert_eq!((world.gate.count(&creations()), calls()), (1, (1, 0)), "neither request is refused");
    world
        .until_within(PATIENCE, "the service shows its load balancer", async || {
            let shown = shop.services.get("large").await.unwrap();
            shown.annotations().contains_key("openstack.org/kuryr-lbaas-state")
        })
        .await;

    // A pod is replaced: one request for the new member, and one for the old one.
    let endpoints = || (1..1000).chain([2000]);
    let patch = Patch::Merge(json!({ "endpoints": slice(endpoints()).endpoints }));
    slices.patch("large", &PatchParams::default(), &patch).await.unwrap();
    until_served(endpoints().collect()).await;
    assert_eq!(calls(), (2, 1));
    controller.stop().await.unwrap();
}
