//! Nodes: their objects, their leases, and their creation and removal.

use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use staffetta_virtual_node::PROVIDER_TAINT;

use crate::machines::Machines;
use crate::world::{World, condition};

#[tokio::test]
async fn a_machine_is_a_node_with_all_that_a_node_has() {
    let world = World::new().await;
    world.machines.add("r1");
    let controller = world.controller().await;
    let node = world.node_ready("r1", "True").await;
    let labels = node.metadata.labels.clone().unwrap();
    for (key, value) in [
        ("type", "virtual-kubelet"),
        ("kubernetes.io/hostname", "r1"),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("staffetta.dev/handler", "machines"),
        ("rack", "7"),
    ] {
        assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key}");
    }
    let spec = node.spec.clone().unwrap();
    assert!(
        spec.taints.unwrap().iter().any(|taint| taint.key == PROVIDER_TAINT && taint.effect == "NoSchedule")
    );
    let status = node.status.clone().unwrap();
    assert_eq!(status.capacity.as_ref().unwrap()["pods"].0, "40");
    assert_eq!(status.allocatable.as_ref().unwrap()["cpu"].0, "2");
    assert_eq!(status.node_info.as_ref().unwrap().machine_id, "serial");
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"] {
        assert_eq!(condition(&node, kind).unwrap().0, "False", "{kind}");
    }
    world.until("it has a lease", async || world.lease("r1").await.is_some()).await;
    let lease = world.lease("r1").await.unwrap();
    assert_eq!(lease.metadata.owner_references.unwrap()[0].uid, node.metadata.uid.unwrap());
    let spec = lease.spec.unwrap();
    assert_eq!((spec.lease_duration_seconds, spec.holder_identity.as_deref()), (Some(40), Some("r1")));
    let first = spec.renew_time;
    world
        .until("it is renewed", async || world.lease("r1").await.unwrap().spec.unwrap().renew_time != first)
        .await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_somebody_changed_of_a_node_is_mended_and_what_is_theirs_is_left() {
    let world = World::new().await;
    world.machines.add("r1");
    let controller = world.controller().await;
    world.node_ready("r1", "True").await;
    let theirs = json!({ "metadata": { "labels": { "type": null, "rack": null, "theirs": "stays" } },
        "spec": { "taints": [{ "key": "theirs", "effect": "NoExecute" }] } });
    world.nodes().patch("r1", &PatchParams::default(), &Patch::Merge(theirs)).await.unwrap();
    let status = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }, { "type": "Theirs", "status": "True" }] } });
    world.nodes().patch_status("r1", &PatchParams::default(), &Patch::Strategic(status)).await.unwrap();
    world
        .until("it is as it was", async || {
            let node = world.nodes().get("r1").await.unwrap();
            let labels = node.metadata.labels.clone().unwrap();
            let taints = node.spec.clone().unwrap().taints.unwrap();
            labels.get("rack").is_some_and(|rack| rack == "7")
                && labels.get("type").is_some_and(|kind| kind == "virtual-kubelet")
                && labels.contains_key("theirs")
                && ["theirs", PROVIDER_TAINT].iter().all(|key| taints.iter().any(|taint| taint.key == *key))
                && condition(&node, "Ready").unwrap().0 == "True"
                && condition(&node, "Theirs").unwrap().0 == "True"
        })
        .await;
    let uid = world.nodes().get("r1").await.unwrap().metadata.uid;
    world.nodes().delete("r1", &DeleteParams::default()).await.unwrap();
    world
        .until("it is there again", async || {
            let node = world.nodes().get_opt("r1").await.unwrap();
            node.is_some_and(|node| node.metadata.uid != uid)
        })
        .await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn machines_come_and_go_and_their_nodes_with_them() {
    let world = World::new().await;
    world.machines.add("r1");
    let controller = world.controller().await;
    world.node_ready("r1", "True").await;
    world.machines.add("r2");
    world.node_ready("r2", "True").await;
    world.machines.remove("r1");
    world.until("its node is gone", async || world.nodes().get_opt("r1").await.unwrap().is_none()).await;
    world.node_ready("r2", "True").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_whose_machine_went_while_nobody_looked_goes_and_those_of_others_stay() {
    let world = World::new().await;
    let node = |name: &str, labels: serde_json::Value| -> Node {
        serde_json::from_value(json!({ "metadata": { "name": name, "labels": labels } })).unwrap()
    };
    let kept = |handler: &str, cluster: &str| json!({ "type": "virtual-kubelet", "staffetta.dev/handler": handler, "staffetta.dev/cluster": cluster });
    for (name, labels) in [
        ("ours", kept("machines", "kubernetes")),
        ("others", kept("others", "kubernetes")),
        ("elsewhere", kept("machines", "west")),
        ("foreign", json!({ "type": "virtual-kubelet" })),
        ("real", json!({})),
    ] {
        world.nodes().create(&PostParams::default(), &node(name, labels)).await.unwrap();
    }
    world.machines.add("r1");
    let controller = world.controller().await;
    // The readers look for strays when a machine comes.
    world
        .until("it is gone", async || {
            world.machines.add("r2");
            world.machines.remove("r2");
            world.nodes().get_opt("ours").await.unwrap().is_none()
        })
        .await;
    // The look that removed it is over.
    world.machines.add("r3");
    world.node_ready("r3", "True").await;
    for name in ["others", "elsewhere", "foreign", "real"] {
        assert!(world.nodes().get_opt(name).await.unwrap().is_some(), "{name}");
    }
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_with_a_kubelet_is_never_taken_over() {
    let world = World::new().await;
    let real: Node = serde_json::from_value(
        json!({ "metadata": { "name": "r1", "labels": { "kubernetes.io/os": "linux" } } }),
    )
    .unwrap();
    let real = world.nodes().create(&PostParams::default(), &real).await.unwrap();
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    let reported = world.until_reported("NodeNameTaken").await;
    assert!(reported.contains("managed by another controller or a kubelet"), "{reported}");
    let reads = machine.reads();
    world.until("it was read again", async || machine.reads() > reads + 20).await;
    let after = world.nodes().get("r1").await.unwrap();
    assert_eq!(after.metadata.resource_version, real.metadata.resource_version);
    assert!(world.lease("r1").await.is_none());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_pods_of_a_node_that_has_no_kubelet_any_more_are_taken_care_of() {
    let world = World::new().await;
    let real: Node = serde_json::from_value(json!({ "metadata": { "name": "r1" } })).unwrap();
    world.nodes().create(&PostParams::default(), &real).await.unwrap();
    world.pod("early", json!({})).await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.until_reported("NodeNameTaken").await;
    world.pod("late", json!({})).await;
    let reads = machine.reads();
    world.until("it was read again", async || machine.reads() > reads + 2).await;
    assert!(machine.ledger().is_empty(), "they are the kubelet's");
    world.nodes().delete("r1", &DeleteParams::default()).await.unwrap();
    for pod in ["early", "late"] {
        world.pod_in(pod, "Running").await;
    }
    world.delete("early").await;
    world.until_pod_is_gone("early").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn of_two_installations_that_know_one_machine_the_one_that_keeps_its_node_takes_care_of_its_pods() {
    let mut world = World::new().await;
    let first_machine = world.machines.add("r1");
    let first = world.controller().await;
    world.node_ready("r1", "True").await;
    world.machines = Machines::default();
    let second_machine = world.machines.add("r1");
    world.options = world.options.replace("[kubernetes]\n", "[kubernetes]\ncluster_id = \"west\"\n");
    let second = world.controller().await;
    world.until_reported("NodeNameTaken").await;
    world.pod("web", json!({})).await;
    let running = world.pod_in("web", "Running").await;
    let reads = second_machine.reads();
    world.until("the second looked on", async || second_machine.reads() > reads + 2).await;
    let after = world.pods().get("web").await.unwrap();
    assert_eq!(running.metadata.resource_version, after.metadata.resource_version);
    assert_eq!((first_machine.running().len(), second_machine.ledger()), (1, Vec::new()));
    first.stop().await.unwrap();
    // What was left alone comes again when the node is its own.
    world.nodes().delete("r1", &DeleteParams::default()).await.unwrap();
    world.until("the second takes care of it", async || second_machine.running().len() == 1).await;
    second.stop().await.unwrap();
}
