//! Services get load balancers, which follow their endpoints and are released with them.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::world::{SPEC, STATE, World};

impl World {
    /// The addresses of the members of the first load balancer, sorted.
    pub(crate) fn members(&self) -> Vec<String> {
        let load_balancers = self.services.load_balancers();
        let listeners = load_balancers.iter().flat_map(|(_, balancer)| &balancer.listeners);
        let members = listeners.filter_map(|listener| listener.pool.as_ref()).flat_map(|pool| &pool.members);
        let mut members: Vec<_> = members.map(|member| member.spec.ip.to_string()).collect();
        members.sort();
        members
    }

    async fn annotation(&self, service: &str, key: &str) -> Option<String> {
        let service = self.web_services().get(service).await.unwrap();
        service.metadata.annotations.unwrap_or_default().remove(key)
    }
}

pub(crate) fn http() -> Value {
    json!([{ "name": "http", "port": 80, "protocol": "TCP" }])
}

#[tokio::test]
async fn a_service_gets_a_load_balancer_whose_members_follow_its_endpoints() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.service("web", json!({ "selector": { "app": "web" }, "ports": http() })).await;
    world.slice("web", &["10.10.0.5", "10.10.0.6"]).await;
    world.until("two members stand", async || world.members() == ["10.10.0.5", "10.10.0.6"]).await;
    world
        .until("the spec and the state are written", async || {
            world.annotation("web", SPEC).await.is_some()
                && world.annotation("web", STATE).await.is_some_and(|state| state.contains("10.10.0.6"))
        })
        .await;
    world.set_endpoints("web", &["10.10.0.6", "10.10.0.7"]).await;
    world.until("the members follow", async || world.members() == ["10.10.0.6", "10.10.0.7"]).await;

    world.web_services().delete("web", &DeleteParams::default()).await.unwrap();
    world
        .until("the service is gone", async || world.web_services().get_opt("web").await.unwrap().is_none())
        .await;
    assert!(world.services.load_balancers().is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn headless_external_and_the_kubernetes_service_get_none() {
    let world = World::new().await;
    let controller = world.controller().await;
    world
        .service("headless", json!({ "clusterIP": "None", "selector": { "app": "web" }, "ports": http() }))
        .await;
    world.service("external", json!({ "type": "ExternalName", "externalName": "example.com" })).await;
    world.service("kubernetes", json!({ "ports": http() })).await;
    world.slice("kubernetes", &["192.0.2.20"]).await;
    world.service("web", json!({ "ports": http() })).await;
    world.slice("web", &["192.0.2.10"]).await;
    world
        .until("the service without a selector has its endpoint", async || world.members() == ["192.0.2.10"])
        .await;
    for name in ["headless", "external", "kubernetes"] {
        assert_eq!(world.annotation(name, SPEC).await, None, "{name}");
    }
    assert_eq!(world.services.load_balancers().len(), 1);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_public_address_is_written_into_the_status_and_given_back() {
    let world = World::new().await;
    let controller = world.controller().await;
    world
        .service("web", json!({ "type": "LoadBalancer", "selector": { "app": "web" }, "ports": http() }))
        .await;
    world.slice("web", &["10.10.0.5"]).await;
    world
        .until("the status names the address", async || {
            let service = world.web_services().get("web").await.unwrap();
            let balancer = service.status.and_then(|status| status.load_balancer);
            balancer.and_then(|balancer| balancer.ingress).is_some_and(|ingress| ingress.len() == 1)
        })
        .await;
    assert_eq!(world.services.public_ips().len(), 1);
    world.web_services().delete("web", &DeleteParams::default()).await.unwrap();
    world
        .until("the service is gone", async || world.web_services().get_opt("web").await.unwrap().is_none())
        .await;
    assert!(world.services.load_balancers().is_empty() && world.services.public_ips().is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_restart_neither_removes_members_nor_makes_anything_twice() {
    let world = World::new().await;
    let controller = world.controller().await;
    for number in 0..10 {
        let name = format!("web{number}");
        world.service(&name, json!({ "selector": { "app": name }, "ports": http() })).await;
        world.slice(&name, &[&format!("10.10.0.{number}")]).await;
    }
    let all_stand = async || {
        for number in 0..10 {
            let state = world.annotation(&format!("web{number}"), STATE).await;
            if !state.is_some_and(|state| state.contains(&format!("10.10.0.{number}"))) {
                return false;
            }
        }
        world.members().len() == 10
    };
    world.until("all stand", all_stand).await;
    controller.stop().await.unwrap();
    let before = world.services.load_balancers();
    world.server.clear_requests();

    let controller = world.controller().await;
    world.service("last", json!({ "selector": { "app": "last" }, "ports": http() })).await;
    world.slice("last", &["10.10.1.1"]).await;
    world.until("a new service is served", async || world.members().len() == 11).await;
    let after = world.services.load_balancers();
    for load_balancer in &before {
        assert!(after.contains(load_balancer), "{load_balancer:?} did not change");
    }
    let patched: Vec<_> =
        world.server.requests().into_iter().filter(|r| r.verb == "patch" && r.name != "last").collect();
    assert!(patched.is_empty(), "{patched:?}");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_service_deleted_behind_our_back_while_we_were_down_leaves_nothing() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.service("web", json!({ "selector": { "app": "web" }, "ports": http() })).await;
    world.slice("web", &["10.10.0.5"]).await;
    world.until("it stands", async || world.annotation("web", STATE).await.is_some()).await;
    controller.stop().await.unwrap();
    let without = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    world.web_services().patch("web", &PatchParams::default(), &without).await.unwrap();
    world.web_services().delete("web", &DeleteParams::default()).await.unwrap();
    assert_eq!(world.services.load_balancers().len(), 1);
    let controller = world.controller().await;
    world.until("the sweep has found it", async || world.services.load_balancers().is_empty()).await;
    controller.stop().await.unwrap();
}
