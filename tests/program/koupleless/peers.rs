//! Deployments with one module on each base.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use staffetta_koupleless_base::{SimulatedBase, SimulatedBaseOptions};

use super::world::{World, active, asked, module};
use crate::process::eventually;

/// Creates a Deployment with 5 replicas of the module `NAME:1`, for bases with this name, and returns a handle to its API.
async fn deployment(world: &World, name: &str, base_name: &str, replicas_control: &str) -> Api<Deployment> {
    let api = Api::namespaced(world.client.clone(), "default");
    let labels = json!({
        "virtual-kubelet.koupleless.io/component": "module-deployment",
        "virtual-kubelet.koupleless.io/env": "dev",
        "virtual-kubelet.koupleless.io/strategy": "peer",
        "virtual-kubelet.koupleless.io/replicas-control": replicas_control,
    });
    let pod = json!({
        "metadata": { "labels": { "app": name, "virtual-kubelet.koupleless.io/component": "module" } },
        "spec": {
            "nodeSelector": { "base.koupleless.io/name": base_name }, "tolerations": [{ "operator": "Exists" }],
            "containers": [module(name, "1", "https://example.com/module.jar")],
        },
    });
    let spec = json!({ "replicas": 5, "selector": { "matchLabels": { "app": name } }, "template": pod });
    let deployment = json!({ "metadata": { "name": name, "labels": labels }, "spec": spec });
    api.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    api
}

/// Waits until a Deployment has so many replicas.
async fn has_replicas(api: &Api<Deployment>, name: &str, replicas: i32) {
    eventually(&format!("the Deployment {name} has {replicas} replicas"), async || {
        api.get(name).await.unwrap().spec.unwrap().replicas == Some(replicas)
    })
    .await;
}

async fn base(world: &World, number: u16) -> SimulatedBase {
    let options = SimulatedBaseOptions { asks_baseline: true, ..SimulatedBaseOptions::numbered(number, 1) };
    world.base_with(options).await
}

#[tokio::test]
async fn a_deployment_has_a_replica_for_each_base_and_a_base_starts_with_its_module() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let api = deployment(&world, "cart", "shop", "false").await;
    deployment(&world, "other", "bank", "false").await;
    deployment(&world, "free", "shop", "true").await;
    has_replicas(&api, "cart", 0).await;
    let bases = [base(&world, 1).await, base(&world, 2).await];
    has_replicas(&api, "cart", 2).await;
    for base in &bases {
        eventually("a base has its baseline", async || !base.baselines().is_empty()).await;
        assert_eq!((active(base), asked(base)), (vec!["cart:1".to_owned()], Vec::new()));
    }
    bases[0].behave(|behaviour| behaviour.state = "DEACTIVATED".into());
    has_replicas(&api, "cart", 1).await;
    has_replicas(&api, "other", 0).await;
    has_replicas(&api, "free", 5).await;
}

#[tokio::test]
async fn a_module_of_a_baseline_is_replaced_if_its_pod_has_another_image() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let api = deployment(&world, "cart", "shop", "false").await;
    has_replicas(&api, "cart", 0).await;
    let base = base(&world, 1).await;
    eventually("the base has its baseline", async || active(&base) == ["cart:1"]).await;
    world.node("vnode.base-1.dev", "True").await;
    let changed = json!([module("cart", "1", "https://example.com/other.jar")]);
    world.pod_with("web", "vnode.base-1.dev", &changed).await;
    world.running("web").await;
    eventually("the module is replaced", async || asked(&base) == ["-cart:1", "+cart:1"]).await;
    assert_eq!(base.operations()[1].request["bizUrl"], "https://example.com/other.jar");
}

#[tokio::test]
async fn a_module_of_a_deployment_that_was_deleted_before_its_pod_came_is_unloaded_if_that_is_enabled() {
    let world = World::new(1).await;
    let _replica = world.replica_with(0, "uninstall_unowned_after_ms = 6000\n").await;
    let api = deployment(&world, "cart", "shop", "false").await;
    has_replicas(&api, "cart", 0).await;
    let options = SimulatedBaseOptions {
        asks_baseline: true,
        built_in: vec![("own".to_owned(), "2".to_owned())],
        ..SimulatedBaseOptions::numbered(1, 1)
    };
    let base = world.base_with(options).await;
    eventually("the base has its baseline", async || active(&base) == ["cart:1", "own:2"]).await;
    api.delete("cart", &DeleteParams::default()).await.unwrap();
    eventually("the module is unloaded", async || active(&base) == ["own:2"]).await;
    assert_eq!(asked(&base), ["-cart:1"]);
}
