//! The lifecycle of a pod whose port is bound to its node.

use http::Method;
use serde_json::json;
use staffetta_real_openstack::Match;

use crate::world::{World, content};

/// From the pod to the port, from DOWN to ACTIVE, and back.
async fn life(world: World) {
    let node = world.tenant.node("slow", None).await;
    let controller = world.controller("").await;
    let pod = world.pod_on(&node, "web", json!({})).await;
    let vif = world.until_annotated("web").await;
    assert!(!vif.active, "no agent has reported it");
    assert_eq!((vif.class.as_str(), vif.interface.as_str()), ("VIFOpenVSwitch", "eth0"));
    let port = world.tenant.port(&vif.id).await.unwrap();
    assert_eq!((port.status.as_str(), port.vif_type.as_str()), ("DOWN", "ovs"));
    assert_eq!(port.host, node);
    assert_eq!(port.device_id, pod.metadata.uid.unwrap());
    assert_eq!(port.security_groups, std::slice::from_ref(&world.group));
    assert_eq!(port.address().unwrap().to_string(), vif.address);
    assert_eq!(vif.fields["address"], port.mac_address);
    assert_eq!(content(&vif.fields["network"])["id"], world.subnet.network);

    assert!(world.stack.agents().up(&port.id).await);
    world.until_active(&["web"]).await;
    assert!(world.tenant.port(&vif.id).await.unwrap().active());
    assert_eq!(world.vifs("web").await[0].id, vif.id);

    world.end_pod("web").await;
    world.until_gone("web").await;
    world.until_ports(0).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_pod_gets_a_port_that_its_agent_makes_active_and_gives_it_back_on_a_real_openstack() {
    let world = World::start().await;
    life(world).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_pod_of_a_real_kubernetes_does_the_same_on_a_real_openstack() {
    let world = World::on_a_real_server().await;
    life(world).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn many_pods_at_once_become_active_by_fewer_calls_on_a_real_openstack() {
    let world = World::start().await;
    let controller = world.controller("").await;
    let names: Vec<_> = (0..20).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    world.until_active(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let calls = world.gate.count(&Match::any().method(Method::POST).path("/network/v2.0/ports"));
    assert!(calls < names.len(), "{calls} calls created the ports of {} pods", names.len());
    let ports = world.ports().await;
    assert_eq!(ports.len(), names.len());
    assert_eq!(world.named().await, ports.into_iter().map(|port| port.id).collect());
    for name in &names {
        world.end_pod(name).await;
    }
    world.until_ports(0).await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn what_ended_while_nobody_watched_is_given_back_and_what_is_not_ours_is_left_on_a_real_openstack() {
    let world = World::start().await;
    let controller = world.controller("").await;
    world.pod("stays").await;
    world.until_active(&["stays"]).await;
    let stays = world.vifs("stays").await[0].id.clone();
    controller.stop().await.unwrap();
    let foreign = world.tenant.create_port(&world.subnet, json!({ "name": "foreign" })).await;
    let other = json!({ "device_owner": "compute:kuryr", "device_id": "11111111-2222-3333-4444-555555555555",
        "tags": ["staffetta:cluster=another"] });
    let other = world.tenant.create_port(&world.subnet, other).await;

    // A port of ours whose pod went with its finalizer: only the mark tells.
    world.pod("goes").await;
    let controller = world.controller("").await;
    world.until_active(&["goes"]).await;
    controller.stop().await.unwrap();
    let patch = json!({ "metadata": { "finalizers": null } });
    let patch = kube::api::Patch::Merge(&patch);
    world.pods().patch("goes", &kube::api::PatchParams::default(), &patch).await.unwrap();
    world.end_pod("goes").await;
    world.until_gone("goes").await;
    assert_eq!(world.ports().await.len(), 4);

    let controller = world.controller("").await;
    world.until_ports(3).await;
    let left: std::collections::BTreeSet<_> = world.ports().await.into_iter().map(|port| port.id).collect();
    assert_eq!(left, [stays, foreign.id, other.id].into());
    controller.stop().await.unwrap();
}
