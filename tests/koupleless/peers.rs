//! Deployments with one module on each base.

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use staffetta_koupleless_base::{SimulatedBase, SimulatedBaseOptions};

use crate::process::eventually;
use crate::world::{World, active, asked, module};

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
