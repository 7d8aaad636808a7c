//! Devices that are deleted, that take the place of others, or whose nodes belonged to another controller.

use std::sync::Arc;

use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use staffetta_apiserver::Requests;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{AppHostingCall, AppHostingMethod, Fault, MemoryDevice};

use crate::custom_resource::{change, device, devices, until_gone, until_phase, world};
use crate::world::World;

#[tokio::test]
async fn a_device_that_is_deleted_stays_until_its_node_is_gone() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let world = world("").await;
    let controller = world.controller().await;
    device(&world, "r1", json!({ "driver": "FAKE", "address": "one" })).await;
    world.node_ready("r1", "True").await;
    until_phase(&world, "r1", "Ready").await;
    let faults = world.server.faults();
    faults.inject(Requests::any().verb("delete").resource("nodes"), 1, staffetta_apiserver::Fault::Hold);
    devices(&world).delete("r1", &DeleteParams::default()).await.unwrap();
    faults.until_held(1).await;
    until_phase(&world, "r1", "Deleting").await;
    world
        .until("it says what it waits for", async || {
            let state = reqwest::get(format!("http://{}/debug/state", controller.admin())).await.unwrap();
            state.text().await.unwrap().contains("its node still exists")
        })
        .await;
    assert!(devices(&world).get_opt("r1").await.unwrap().is_some());
    faults.let_go();
    world.until("it is gone itself", async || devices(&world).get_opt("r1").await.unwrap().is_none()).await;
    assert!(world.nodes().get_opt("r1").await.unwrap().is_none());
    controller.stop().await.unwrap();
}

/// A device that outlives controllers, with a pod that runs on it.
async fn held(world: &World) -> Arc<MemoryDevice> {
    device(world, "r1", json!({ "driver": "HELD", "address": "one" })).await;
    until_phase(world, "r1", "Ready").await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    world.devices.device("one")
}

#[tokio::test]
async fn a_slip_in_the_description_of_a_device_takes_no_node_out_of_the_cluster() {
    let mut world = world("").await;
    world.options = world.options.replace("orphan_grace_ms = 300", "orphan_grace_ms = 1");
    let controller = world.controller().await;
    let held = held(&world).await;
    let node = world.nodes().get("r1").await.unwrap().metadata.uid;
    change(&world, "r1", json!({ "colour": "red" })).await;
    let wrong = until_phase(&world, "r1", "Error").await;
    let message = wrong.status.unwrap().conditions[0].message.clone();
    assert!(
        message.contains("colour") && message.contains("the previous description stays in effect"),
        "{message}"
    );
    change(&world, "r1", json!({ "colour": null, "maxPods": 3 })).await;
    world
        .until("what was corrected counts", async || {
            let node = world.nodes().get_opt("r1").await.unwrap();
            node.is_some_and(|node| node.status.unwrap().capacity.unwrap()["pods"].0 == "3")
        })
        .await;
    assert_eq!(world.nodes().get("r1").await.unwrap().metadata.uid, node);
    controller.stop().await.unwrap();

    // A process that never saw it right knows of it as much: that it is there.
    change(&world, "r1", json!({ "colour": "red" })).await;
    let controller = world.controller().await;
    until_phase(&world, "r1", "Error").await;
    for number in 2..5 {
        // The readers look for strays when a machine comes.
        device(&world, &format!("r{number}"), json!({ "driver": "HELD", "address": "two" })).await;
        world.node_ready(&format!("r{number}"), "True").await;
    }
    assert_eq!(world.nodes().get("r1").await.unwrap().metadata.uid, node);
    assert_eq!(held.containers().len(), 1);
    change(&world, "r1", json!({ "colour": null })).await;
    until_phase(&world, "r1", "Ready").await;
    assert_eq!(world.nodes().get("r1").await.unwrap().metadata.uid, node);
    world.pod_in("web", "Running").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_whose_deletion_was_under_way_is_cleared_by_the_next_controller() {
    let world = world("").await;
    let controller = world.controller().await;
    let held = held(&world).await;
    let busy = Fault::Fail(DriverError::new(Reason::Unavailable, "remove an app"));
    held.faults().inject(AppHostingMethod::Delete, 1_000_000, busy);
    // There is another way to it from now on, which nobody has tried.
    change(&world, "r1", json!({ "username": "another" })).await;
    devices(&world).delete("r1", &DeleteParams::default()).await.unwrap();
    until_phase(&world, "r1", "Deleting").await;
    controller.stop().await.unwrap();
    assert_eq!(held.containers().len(), 1);
    held.faults().clear();
    let calls = held.calls().len();
    let controller = world.controller().await;
    until_gone(&world, "r1").await;
    assert_eq!(held.containers(), []);
    assert!(world.nodes().get_opt("r1").await.unwrap().is_none());
    let since = &held.calls()[calls..];
    assert!(since.iter().all(|call| matches!(call, AppHostingCall::Delete(_))), "{since:?}");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_that_is_deleted_with_a_description_that_cannot_be_right_is_cleared_all_the_same() {
    let world = world("").await;
    let controller = world.controller().await;
    let held = held(&world).await;
    change(&world, "r1", json!({ "colour": "red" })).await;
    devices(&world).delete("r1", &DeleteParams::default()).await.unwrap();
    until_gone(&world, "r1").await;
    assert_eq!(held.containers(), []);
    assert!(world.nodes().get_opt("r1").await.unwrap().is_none());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_that_is_deleted_in_an_outage_is_let_go_and_what_stays_there_is_reported() {
    let world = world("").await;
    let controller = world.controller().await;
    let held = held(&world).await;
    held.set_reachable(false);
    world.node_ready("r1", "False").await;
    devices(&world).delete("r1", &DeleteParams::default()).await.unwrap();
    until_gone(&world, "r1").await;
    let reported = world.until_reported("LeftAsItIs").await;
    assert!(reported.contains("workloads of 1 pod may remain on it"), "{reported}");
    assert_eq!(held.containers().len(), 1);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_node_of_the_agent_that_kept_a_device_before_is_taken_over_with_its_pods() {
    let world = world("devices = [{ device = { address = \"192.0.2.7\" } }]").await;
    let labels = json!({ "platform": "cisco-ios-xe", "provider": "cisco-apphosting" });
    let name = "cisco-vk-192-0-2-7";
    let node = json!({ "metadata": { "name": name, "labels": labels } });
    let before =
        world.nodes().create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    world.pod("web", json!({ "nodeName": name })).await;
    let controller = world.controller().await;
    let node = world.node_ready(name, "True").await;
    assert_eq!(node.metadata.uid, before.metadata.uid);
    let labels = node.metadata.labels.unwrap();
    for (key, value) in [("type", "virtual-kubelet"), ("staffetta.dev/handler", "app_hosting")] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    world.pod_in("web", "Running").await;
    assert!(world.events("NodeNameTaken").await.is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_whose_node_is_somebody_elses_says_so_and_goes_without_it() {
    let world = world("").await;
    let others = json!({ "type": "virtual-kubelet", "staffetta.dev/handler": "others", "staffetta.dev/cluster": "kubernetes" });
    for (name, labels) in [("real", json!({ "kubernetes.io/os": "linux" })), ("theirs", others)] {
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        let node = serde_json::from_value(node).unwrap();
        world.nodes().create(&PostParams::default(), &node).await.unwrap();
    }
    let controller = world.controller().await;
    for name in ["real", "theirs"] {
        device(&world, name, json!({ "driver": "FAKE", "address": name })).await;
        let taken = until_phase(&world, name, "Error").await.status.unwrap().conditions;
        assert_eq!((taken[0].status.as_str(), taken[0].reason.as_str()), ("False", "NodeNameTaken"));
        devices(&world).delete(name, &DeleteParams::default()).await.unwrap();
        until_gone(&world, name).await;
        assert!(world.nodes().get_opt(name).await.unwrap().is_some());
    }
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_device_that_another_one_takes_the_place_of_keeps_what_it_has_and_that_is_reported() {
    let world = world("").await;
    let controller = world.controller().await;
    let former = held(&world).await;
    change(&world, "r1", json!({ "address": "two" })).await;
    let reported = world.until_reported("LeftAsItIs").await;
    for part in ["the machine at two; ", "workloads of 1 pod remain on the machine at one"] {
        assert!(reported.contains(part), "{reported}");
    }
    let other = world.devices.device("two");
    world.until("the pod runs on the other one", async || other.containers().len() == 1).await;
    until_phase(&world, "r1", "Ready").await;
    world.pod_in("web", "Running").await;
    assert_eq!(former.containers().len(), 1);
    assert!(world.events("LostByMachine").await.is_empty(), "nothing was lost");
    controller.stop().await.unwrap();

    change(&world, "r1", json!({ "address": "three" })).await;
    let controller = world.controller().await;
    world
        .until("somebody is told by a process that did not know the one before", async || {
            let reported = world.events("LeftAsItIs").await;
            reported
                .iter()
                .any(|reported| reported.contains("workloads of 1 pod remain on the machine at two"))
        })
        .await;
    controller.stop().await.unwrap();
}
