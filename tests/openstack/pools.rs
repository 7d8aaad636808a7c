//! Pools of ports that are created before pods request them.

use std::collections::BTreeSet;

use http::Method;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};
use staffetta_real_openstack::Match;

use crate::world::World;

const POOL: &str = r#"
[kubernetes]
vif_pool_driver = "neutron"
[vif_pool]
ports_pool_min = 4
ports_pool_batch = 6
ports_pool_max = 12
ports_pool_update_frequency = "1s"
"#;

/// A call that makes ports.
fn creation() -> Match {
    Match::any().method(Method::POST).path("/network/v2.0/ports")
}

/// Starts the pool by a first pod, and waits until it is warm.
async fn warm(world: &World) {
    world.pod("first").await;
    world.until_active(&["first"]).await;
    world.until("the pool is warm", async || world.ports().await.len() > 4).await;
    let mut count = 0;
    world
        .until("the pool makes no more", async || {
            let before = std::mem::replace(&mut count, world.ports().await.len());
            tokio::time::sleep(std::time::Duration::from_millis(500)).await; // between two looks
            before == count
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_warm_pool_hands_out_what_is_there_and_takes_it_back_on_a_real_openstack() {
    let world = World::start().await;
    let controller = world.controller(POOL).await;
    warm(&world).await;
    let ready: BTreeSet<_> = world.ports().await.into_iter().map(|port| port.id).collect();
    world.pod("second").await;
    let vif = world.until_annotated("second").await;
    assert!(ready.contains(&vif.id), "it was there before");
    world.until_active(&["second"]).await;
    world.end_pod("second").await;
    world.until_gone("second").await;
    assert!(world.tenant.port(&vif.id).await.is_some(), "what comes back is kept");
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_burst_beyond_the_pool_shares_its_calls_and_what_is_too_much_is_destroyed_on_a_real_openstack() {
    let world = World::start().await;
    let controller = world.controller(POOL).await;
    let names: Vec<_> = (0..30).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    world.until_active(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let calls = world.gate.count(&creation());
    assert!(calls <= 15, "{calls} calls made the ports of 30 pods");
    let ports: BTreeSet<_> = world.ports().await.into_iter().map(|port| port.id).collect();
    assert!(world.named().await.is_subset(&ports));
    for name in &names {
        world.end_pod(name).await;
    }
    world.until("no more than the most are kept", async || world.ports().await.len() <= 12).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn after_a_restart_the_pool_knows_what_is_free_and_what_pods_use_on_a_real_openstack() {
    let world = World::start().await;
    let boundless = POOL.replace("ports_pool_max = 12", "ports_pool_max = 0");
    let controller = world.controller(&boundless).await;
    warm(&world).await;
    controller.stop().await.unwrap();
    let before: BTreeSet<_> = world.ports().await.into_iter().map(|port| port.id).collect();
    let calls = world.gate.count(&creation());
    let controller = world.controller(&boundless).await;
    let free = "staffetta_vif_pool_vifs{pool=\"neutron\",state=\"free\"}";
    let cooled = async || world.figure(&controller, free).await == before.len() - 1;
    world.until("what was found has cooled down", cooled).await;
    for name in ["a", "b", "c"] {
        world.pod(name).await;
        let vif = world.until_annotated(name).await;
        assert!(before.contains(&vif.id), "it was there before the restart");
    }
    assert_eq!(world.named().await.len(), 4, "nobody shares a port");
    let made = world.gate.count(&creation()) - calls;
    assert!(made <= 2, "{made} calls made ports after the restart");
    // What comes back is known again, whichever process handed it out, and is kept for others.
    for name in ["first", "a", "b", "c"] {
        world.end_pod(name).await;
        world.until_gone(name).await;
    }
    world.pod("last").await;
    world.until_active(&["last"]).await;
    assert_eq!(world.gate.count(&Match::any().method(Method::DELETE).path("/network/v2.0/ports/")), 0);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_pool_that_may_not_fill_itself_serves_pods_all_the_same_on_a_real_openstack() {
    let world = World::start().await;
    world.tenant.quota("port", 3).await;
    let controller = world.controller(POOL).await;
    for name in ["one", "two", "three", "four"] {
        world.pod(name).await;
    }
    world.until("three pods have a port", async || world.named().await.len() == 3).await;
    let mut waiting = "";
    for name in ["one", "two", "three", "four"] {
        if world.vifs(name).await.is_empty() {
            waiting = name;
        }
    }
    let said = world.until_reported(waiting, "QuotaExceeded").await;
    assert!(said.contains("quota"), "{said}");
    world.tenant.quota("port", 20).await;
    world.until_active(&["one", "two", "three", "four"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_port_of_the_pool_that_is_deleted_outside_is_handed_to_no_pod_for_long_on_a_real_openstack() {
    let world = World::start().await;
    let controller = world.controller(POOL).await;
    warm(&world).await;
    let named = world.named().await;
    for port in world.ports().await.into_iter().filter(|port| !named.contains(&port.id)) {
        world.tenant.delete("port", &port.id).await;
    }
    // A sweep that was under way meanwhile has seen some of them.
    let lists =
        || world.gate.count(&Match::any().method(Method::GET).path("/network/v2.0/ports?").path("tags="));
    let before = lists();
    world.until("two more sweeps are done", async || lists() >= before + 6).await;
    world.until("the pool has filled itself again", async || world.ports().await.len() > 4).await;
    world.pod_on(&world.node, "late", json!({})).await;
    world.until_active(&["late"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn two_controllers_by_mistake_with_a_pool_give_each_pod_a_port_of_its_own_on_a_real_openstack() {
    let world = World::start().await;
    let first = world.controller(POOL).await;
    warm(&world).await;
    let second = world.controller(POOL).await;
    let names: Vec<_> = (0..30).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    // Each deletes ports of the other's pool in its garbage collection. A pod that shows one gets another.
    world
        .until("each pod shows an active port that exists and that no other pod shows", async || {
            let mut shown = Vec::new();
            for name in &names {
                let vifs = world.vifs(name).await;
                shown.extend(vifs.into_iter().filter(|vif| vif.active).map(|vif| vif.id));
            }
            let ports: BTreeSet<_> = world.ports().await.into_iter().map(|port| port.id).collect();
            let distinct: BTreeSet<_> = shown.iter().cloned().collect();
            shown.len() == names.len() && distinct.len() == names.len() && distinct.is_subset(&ports)
        })
        .await;
    for name in names.iter().map(String::as_str).chain(["first"]) {
        world.end_pod(name).await;
    }
    world.until("no more than both pools keep is left", async || world.ports().await.len() <= 24).await;
    for controller in [first, second] {
        controller.stop().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_namespace_that_goes_takes_its_network_with_it_and_what_the_pool_kept_there_on_a_real_openstack() {
    let world = World::on_a_whole_kubernetes().await;
    let (prefixes, router) =
        (world.tenant.subnet_pool("10.192.0.0/14", 24).await, world.tenant.router().await);
    let options =
        format!("{POOL}\n[namespace_subnet]\npod_subnet_pool = {prefixes:?}\npod_router = {router:?}\n");
    let options = options.replacen(
        "[kubernetes]",
        "[kubernetes]\nenabled_handlers = [\"vif\", \"namespace\"]\npod_subnets_driver = \"namespace\"\n\
         namespace_project_driver = \"default\"\nnamespace_subnet_driver = \"namespace\"",
        1,
    );
    let controller = world.controller(&options).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let shop = json!({ "metadata": { "name": "shop" } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(shop).unwrap()).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "shop");
    world.until("pods may come", async || accounts.get_opt("default").await.unwrap().is_some()).await;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "shop");
    let pod = json!({ "metadata": { "name": "web" }, "spec": { "nodeName": world.node,
        "automountServiceAccountToken": false, "containers": [{ "name": "c", "image": "i" }] } });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let mut network = String::new();
    world
        .until("the network of the namespace is there, and the pool is warm in it", async || {
            let shown = namespaces.get("shop").await.unwrap();
            let shown = shown.annotations().get("staffetta.dev/namespace-network").cloned();
            let shown: Value = serde_json::from_str(&shown.unwrap_or("{}".to_owned())).unwrap();
            network = shown["network"].as_str().unwrap_or_default().to_owned();
            !network.is_empty() && world.tenant.pod_ports(&network).await.len() > 4
        })
        .await;
    let patience = DeleteParams::default().grace_period(0);
    pods.delete("web", &patience).await.unwrap();
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    let gone = async || namespaces.get_opt("shop").await.unwrap().is_none();
    world.until("the namespace is gone", gone).await;
    let networks = world.tenant.things("networks").await;
    assert!(networks.iter().all(|known| known["id"] != network.as_str()), "{network} is still there");
    // Nobody tries to make ports there for pods that do not come any more.
    world.pod("elsewhere").await;
    world.until_active(&["elsewhere"]).await;
    let refused = world.gate.seen().into_iter().filter(|call| {
        creation().takes(&call.method, &call.path_and_query)
            && call.answered.is_some_and(|(_, status)| status == 404)
    });
    assert_eq!(refused.count(), 0);
    controller.stop().await.unwrap();
}
