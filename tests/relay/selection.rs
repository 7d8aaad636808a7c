//! The configuration and an annotation say which objects are managed.

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::world::{VIF, World, active};

const WEB_ONLY: &str = "[kubernetes]\nnamespaces = [\"default\"]\nobject_labels = { tier = \"web\" }\n";

#[tokio::test]
async fn objects_that_are_not_selected_are_left_alone_until_they_are_and_managed_ones_are_released() {
    let world = World::with(WEB_ONLY).await;
    let controller = world.controller().await;
    let web = json!({ "tier": "web" });
    world.pod("plain", json!({}), json!({})).await;
    let opted_out = json!({ "labels": web, "annotations": { "staffetta.dev/managed": "false" } });
    world.pod("opted-out", opted_out, json!({})).await;
    world.pod("web", json!({ "labels": web }), json!({})).await;
    world.vif_of("web", active).await;
    assert_eq!(world.requests_of_vifs(), 1);

    // The annotation goes, and the pod is managed.
    world
        .change_pod("opted-out", json!({ "metadata": { "annotations": { "staffetta.dev/managed": null } } }))
        .await;
    world.vif_of("opted-out", active).await;
    // A managed pod stays managed without its label, and gives its port back.
    world.change_pod("web", json!({ "metadata": { "labels": { "tier": null } } })).await;
    world.end_pod("web").await;
    world.until_pod_is_gone("web").await;
    assert_eq!((world.ports(), world.requests_of_vifs()), (1, 2));
    let plain = world.pods().get("plain").await.unwrap().metadata;
    assert!(plain.finalizers.is_none() && !plain.annotations.is_some_and(|all| all.contains_key(VIF)));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn pods_of_other_namespaces_are_left_alone() {
    let world = World::with("[kubernetes]\nnamespaces = [\"shop\"]\n").await;
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    let shop = json!({ "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    let namespace = serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
    Api::<Namespace>::all(world.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let pods = Api::<Pod>::namespaced(world.client.clone(), "shop");
    pods.create(&PostParams::default(), &serde_json::from_value(shop).unwrap()).await.unwrap();
    world.until("the pod in the namespace has a port", async || world.ports() == 1).await;
    assert_eq!(world.requests_of_vifs(), 1);
    assert!(world.pods().get("web").await.unwrap().metadata.finalizers.is_none());
    controller.stop().await.unwrap();
}
