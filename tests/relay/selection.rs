//! The configuration and an annotation say which objects are managed.

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta_apiserver::{Fault, Requests};

use crate::world::{SPEC, VIF, World, active};

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
    namespace(&world, "shop", json!({})).await;
    pod_in(&world, "shop", "web").await;
    world.until("the pod in the namespace has a port", async || world.ports() == 1).await;
    assert_eq!(world.requests_of_vifs(), 1);
    assert!(world.pods().get("web").await.unwrap().metadata.finalizers.is_none());
    controller.stop().await.unwrap();
}

const TEAMS: &str = "[kubernetes]\nnamespace_labels = \"team in (net,web),!off\"\n";

#[tokio::test]
async fn objects_come_into_scope_with_the_labels_of_their_namespace_and_leave_it() {
    let world = World::with(TEAMS).await;
    namespace(&world, "net", json!({ "team": "net" })).await;
    namespace(&world, "shop", json!({ "team": "web", "off": "" })).await;
    for place in ["net", "shop", "default"] {
        pod_in(&world, place, "web").await;
    }
    let services = Api::<Service>::namespaced(world.client.clone(), "shop");
    let service =
        json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }], "type": "ClusterIP" } });
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    let controller = world.controller().await;
    has_vif(&world, "net", "web").await;
    assert_eq!(world.requests_of_vifs(), 1);

    // The objects of the namespace have not changed.
    label(&world, "shop", json!({ "off": null })).await;
    has_vif(&world, "shop", "web").await;
    world
        .until("the service has a specification", async || {
            let annotations = services.get("web").await.unwrap().metadata.annotations.unwrap_or_default();
            annotations.contains_key(SPEC)
        })
        .await;

    label(&world, "shop", json!({ "off": "" })).await;
    // When this namespace is known, the label is known, and when its second pod is, so is the one that is left alone.
    namespace(&world, "late", json!({ "team": "web" })).await;
    pod_in(&world, "late", "first").await;
    has_vif(&world, "late", "first").await;
    pod_in(&world, "shop", "left-alone").await;
    pod_in(&world, "late", "second").await;
    has_vif(&world, "late", "second").await;
    assert_eq!((world.requests_of_vifs(), world.ports()), (4, 4));

    // What is managed stays so until it is deleted.
    let pods = pods(&world, "shop");
    pods.delete("web", &DeleteParams::default().grace_period(0)).await.unwrap();
    world.until("the pod is gone", async || pods.get_opt("web").await.unwrap().is_none()).await;
    assert_eq!(world.ports(), 3);
    assert!(pods.get("left-alone").await.unwrap().metadata.finalizers.is_none());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn no_pod_is_handled_before_the_namespaces_are_known_and_other_kinds_are_not_held_up() {
    let world = World::with(TEAMS).await;
    namespace(&world, "net", json!({ "team": "net" })).await;
    for place in ["net", "default"] {
        pod_in(&world, place, "web").await;
    }
    world.server.clear_requests();
    world.server.faults().inject(Requests::any().verb("list").resource("namespaces"), 1, Fault::Hold);
    let controller = world.starting_controller().await;
    let listed = |resource: &str| {
        let is_list = |verb: &str, of: &str| verb == "list" && of == resource;
        world.server.requests().iter().any(|request| is_list(&request.verb, &request.resource))
    };
    world.until("the slices are listed", async || listed("endpointslices")).await;
    assert!(!listed("pods") && !listed("services"));
    world.server.faults().let_go();
    has_vif(&world, "net", "web").await;
    world.until("the services are listed too", async || listed("services")).await;
    assert_eq!(world.requests_of_vifs(), 1);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_plans_nothing_for_pods_of_other_namespaces() {
    let world = World::with(TEAMS).await;
    namespace(&world, "net", json!({ "team": "net" })).await;
    for place in ["net", "default"] {
        pod_in(&world, place, "web").await;
    }
    let plan = world.dry_run().await;
    let namespaces: Vec<_> = plan.objects.iter().map(|plan| plan.object.namespace.as_deref()).collect();
    assert_eq!(namespaces, [Some("net")], "{plan:?}");
}

async fn namespace(world: &World, name: &str, labels: Value) {
    let namespace = json!({ "metadata": { "name": name, "labels": labels } });
    let namespace = serde_json::from_value(namespace).unwrap();
    Api::<Namespace>::all(world.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
}

/// Changes labels of a namespace.
async fn label(world: &World, name: &str, labels: Value) {
    let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

fn pods(world: &World, namespace: &str) -> Api<Pod> {
    Api::namespaced(world.client.clone(), namespace)
}

async fn pod_in(world: &World, namespace: &str, name: &str) {
    let pod = json!({ "metadata": { "name": name },
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    let pod = serde_json::from_value(pod).unwrap();
    pods(world, namespace).create(&PostParams::default(), &pod).await.unwrap();
}

async fn has_vif(world: &World, namespace: &str, name: &str) {
    let pods = pods(world, namespace);
    world
        .until(&format!("the pod {namespace}/{name} has a VIF"), async || {
            pods.get(name).await.unwrap().metadata.annotations.unwrap_or_default().contains_key(VIF)
        })
        .await;
}
