//! Several installations in one cluster leave each other's objects alone, and so does one what somebody else has marked as its own.

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;

use crate::world::{STATE, VIF, World};

const CLUSTER: &str = "staffetta.dev/cluster";
const OTHER: &str = "ManagedByAnotherInstallation";

/// Starts the installation `id`, which has these options in the section `[kubernetes]`, on the cloud that all of them share.
async fn installation(world: &World, id: &str, options: &str) -> Controller {
    let mut registry = staffetta::assembly::registry();
    staffetta::assembly::world(&mut registry, world.vifs.network(), &world.services);
    let schema = FileSchema::assemble(&registry).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let quick = "[leader_election]\nenabled = false\n[admin]\nlisten = \"127.0.0.1:0\"\n[relay]\nretry_interval = \"20ms\"\nfailed_resync = \"1s\"\n";
    std::fs::write(file.path(), format!("[kubernetes]\ncluster_id = \"{id}\"\n{options}\n{quick}")).unwrap();
    let configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
    let mut controller = Controller::start(registry, &configuration, world.client.clone()).await.unwrap();
    controller.ready().await.unwrap();
    controller
}

/// Creates a namespace with a pod and a service, both named `web`.
async fn namespace(world: &World, name: &str) {
    let namespace: Namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
    Api::all(world.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    pod(world, name, "web", json!({})).await;
    service(world, name, "web", json!({})).await;
}

async fn pod(world: &World, namespace: &str, name: &str, metadata: Value) {
    let mut pod = json!({ "metadata": metadata,
        "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
    pod["metadata"]["name"] = json!(name);
    let pod: Pod = serde_json::from_value(pod).unwrap();
    pods(world, namespace).create(&PostParams::default(), &pod).await.unwrap();
}

async fn service(world: &World, namespace: &str, name: &str, metadata: Value) {
    let mut service =
        json!({ "metadata": metadata, "spec": { "ports": [{ "port": 80 }], "type": "LoadBalancer" } });
    service["metadata"]["name"] = json!(name);
    let service: Service = serde_json::from_value(service).unwrap();
    services(world, namespace).create(&PostParams::default(), &service).await.unwrap();
}

fn pods(world: &World, namespace: &str) -> Api<Pod> {
    Api::namespaced(world.client.clone(), namespace)
}

fn services(world: &World, namespace: &str) -> Api<Service> {
    Api::namespaced(world.client.clone(), namespace)
}

/// Waits until the pod has an active VIF.
async fn is_served(world: &World, namespace: &str, name: &str) {
    world
        .until(&format!("the pod {namespace}/{name} has an active VIF"), async || {
            let pod = pods(world, namespace).get(name).await.unwrap();
            let text = pod.metadata.annotations.unwrap_or_default().remove(VIF).unwrap_or_default();
            text.contains("\"active\":true")
        })
        .await;
}

/// Waits until the service has a load balancer with a public address.
async fn is_balanced(world: &World, namespace: &str) {
    world
        .until(&format!("the service {namespace}/web has an address"), async || {
            let service = services(world, namespace).get("web").await.unwrap();
            let status = service.status.and_then(|status| status.load_balancer?.ingress);
            status.is_some_and(|ingress| !ingress.is_empty())
                && service.metadata.annotations.unwrap_or_default().contains_key(STATE)
        })
        .await;
}

/// The clusters in the marks of the ports, sorted.
fn clusters(world: &World) -> Vec<String> {
    let ports = world.vifs.network().ports().into_iter();
    let mut clusters: Vec<_> =
        ports.filter_map(|port| port.cluster.map(|cluster| cluster.as_str().to_owned())).collect();
    clusters.sort();
    clusters
}

/// The number of writes of any pod and of any service so far.
fn writes(world: &World) -> (usize, usize) {
    (world.reads_and_writes("pods").1, world.reads_and_writes("services").1)
}

/// The reasons of the Events that tell of another installation, by object.
async fn reported(world: &World) -> Vec<String> {
    let events = Api::<k8s_openapi::api::events::v1::Event>::all(world.client.clone());
    let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let of_others = events.filter(|event| event.reason.as_deref() == Some(OTHER));
    let mut kinds: Vec<_> = of_others
        .filter_map(|event| event.regarding?.kind)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .collect();
    kinds.sort();
    kinds
}

/// Deletes the pods and the service of a namespace, and waits until they are gone.
async fn clear(world: &World, namespace: &str) {
    services(world, namespace).delete("web", &DeleteParams::default()).await.unwrap();
    for pod in pods(world, namespace).list(&ListParams::default()).await.unwrap() {
        let now = DeleteParams::default().grace_period(0);
        pods(world, namespace).delete(pod.metadata.name.as_deref().unwrap(), &now).await.unwrap();
    }
    world
        .until(&format!("{namespace} is empty"), async || {
            let pods = pods(world, namespace).list(&ListParams::default()).await.unwrap().items;
            let services = services(world, namespace).list(&ListParams::default()).await.unwrap().items;
            pods.is_empty() && services.is_empty()
        })
        .await;
}

/// Waits until the cloud has nothing of this world any more.
async fn nothing_is_left(world: &World) {
    world
        .until("nothing is left", async || {
            let services = &world.services;
            world.ports() == 0 && services.load_balancers().is_empty() && services.public_ips().is_empty()
        })
        .await;
}

#[tokio::test]
async fn two_installations_with_disjoint_namespaces_never_touch_each_others_objects() {
    let world = World::new().await;
    let east = installation(&world, "east", "namespaces = [\"a\"]").await;
    let west = installation(&world, "west", "namespaces = [\"b\"]").await;
    for place in ["a", "b"] {
        namespace(&world, place).await;
        is_served(&world, place, "web").await;
        is_balanced(&world, place).await;
    }
    // What follows is handled after what concerns the first ones.
    for place in ["a", "b"] {
        pod(&world, place, "late", json!({})).await;
        is_served(&world, place, "late").await;
    }
    assert_eq!(clusters(&world), ["east", "east", "west", "west"]);
    // One write with the VIF and one with its activity; the specification, the state, and the status.
    assert_eq!(writes(&world).0, 8);
    let before = writes(&world).1;
    assert_eq!(reported(&world).await, [""; 0]);
    for (place, id) in [("a", "east"), ("b", "west")] {
        let pod = pods(&world, place).get("web").await.unwrap().metadata;
        assert_eq!(pod.annotations.unwrap().get(CLUSTER).map(String::as_str), Some(id));
        let service = services(&world, place).get("web").await.unwrap().metadata;
        assert_eq!(service.annotations.unwrap().get(CLUSTER).map(String::as_str), Some(id));
    }
    assert_eq!(writes(&world).1, before);
    for place in ["a", "b"] {
        clear(&world, place).await;
    }
    nothing_is_left(&world).await;
    east.stop().await.unwrap();
    west.stop().await.unwrap();
}

#[tokio::test]
async fn of_two_installations_that_select_the_same_objects_one_manages_each_and_the_other_says_so() {
    let world = World::new().await;
    let east = installation(&world, "east", "").await;
    let west = installation(&world, "west", "").await;
    namespace(&world, "a").await;
    for name in ["second", "third", "fourth"] {
        pod(&world, "a", name, json!({})).await;
    }
    for name in ["web", "second", "third", "fourth"] {
        is_served(&world, "a", name).await;
    }
    is_balanced(&world, "a").await;
    world.until("the one that lost a pod releases its port", async || world.ports() == 4).await;
    world.until("it says so", async || reported(&world).await == ["Pod", "Service"]).await;
    let load_balancers = &world.services;
    assert_eq!((load_balancers.load_balancers().len(), load_balancers.public_ips().len()), (1, 1));
    // A service has one owner, who may have written its specification, the state and the status more than once, and not for ever.
    let before = writes(&world);
    pod(&world, "a", "late", json!({})).await;
    is_served(&world, "a", "late").await;
    world.until("its other port is released", async || world.ports() == 5).await;
    assert!(writes(&world).0 <= before.0 + 3, "{before:?} {:?}", writes(&world));
    clear(&world, "a").await;
    nothing_is_left(&world).await;
    east.stop().await.unwrap();
    west.stop().await.unwrap();
}

#[tokio::test]
async fn a_finalizer_that_a_tenant_writes_gives_an_object_that_is_not_selected_nothing() {
    let world = World::new().await;
    let east = installation(
        &world,
        "east",
        "namespaces = [\"a\"]\nenabled_handlers = [\"vif\", \"lbaasspec\", \"lb\", \"namespace\"]",
    )
    .await;
    let forged = |handler: &str| json!({ "finalizers": [format!("staffetta.dev/{handler}")], "annotations": { CLUSTER: "east" } });
    let mut tenant = forged("namespace");
    tenant["name"] = json!("tenant");
    let tenant: Namespace = serde_json::from_value(json!({ "metadata": tenant })).unwrap();
    let namespaces = Api::<Namespace>::all(world.client.clone());
    namespaces.create(&PostParams::default(), &tenant).await.unwrap();
    let mut unmarked = forged("vif");
    unmarked["annotations"] = json!({});
    pod(&world, "tenant", "unmarked", unmarked).await;
    pod(&world, "tenant", "unknown", forged("x")).await;
    pod(&world, "tenant", "forged", forged("vif")).await;
    service(&world, "tenant", "web", forged("lb")).await;
    let withdrawn = |metadata: &kube::core::ObjectMeta| {
        let marked = metadata.annotations.as_ref().is_some_and(|all| all.contains_key(CLUSTER));
        !marked
            && metadata.finalizers.iter().flatten().all(|finalizer| !finalizer.starts_with("staffetta.dev/"))
    };
    world
        .until("what nobody here wrote is withdrawn", async || {
            let pod = pods(&world, "tenant").get("forged").await.unwrap();
            let service = services(&world, "tenant").get("web").await.unwrap();
            let namespace = namespaces.get("tenant").await.unwrap();
            withdrawn(&pod.metadata) && withdrawn(&service.metadata) && withdrawn(&namespace.metadata)
        })
        .await;
    // When this pod is served, the events of the others have been handled.
    namespace(&world, "a").await;
    is_served(&world, "a", "web").await;
    for name in ["unmarked", "unknown", "forged"] {
        let pod = pods(&world, "tenant").get(name).await.unwrap();
        assert!(!pod.metadata.annotations.unwrap_or_default().contains_key(VIF), "{name}");
    }
    let service = services(&world, "tenant").get("web").await.unwrap().metadata;
    assert!(service.annotations.is_none_or(|all| all.keys().all(|key| !key.contains("kuryr"))));
    is_balanced(&world, "a").await;
    assert_eq!((world.ports(), world.services.load_balancers().len()), (1, 1));
    east.stop().await.unwrap();
}
