//! The configuration and an annotation say which objects are managed.

use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use staffetta_apiserver::{Fault, Requests};
use staffetta_handler::{Action, Registration, ResourceEventHandler};

use crate::world::{SPEC, STATE, VIF, World, active};

const WEB_ONLY: &str =
    "[kubernetes]\nnamespaces = [\"default\"]\nobject_labels = \"tier in (web),!canary\"\n";

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

#[tokio::test]
async fn the_endpoints_of_a_service_that_is_not_selected_give_it_no_load_balancer() {
    let options = "[kubernetes]\nenabled_handlers = [\"lbaasspec\", \"lb\"]\nobject_labels = \"tier=web\"\n";
    let world = World::with(options).await;
    let before = world.controller().await;
    world.service("web", json!({ "ports": [{ "name": "http", "port": 80 }] })).await;
    world.change_service("web", json!({ "metadata": { "labels": { "tier": "web" } } })).await;
    let annotation = async |name: &str, key: &str| {
        let metadata = world.web_services().get(name).await.unwrap().metadata;
        metadata.annotations.unwrap_or_default().remove(key)
    };
    world.until("the service has a load balancer", async || annotation("web", STATE).await.is_some()).await;
    before.stop().await.unwrap();

    // As another controller may have left it: with the annotation, and without our label.
    world.service("other", json!({ "ports": [{ "name": "http", "port": 80 }] })).await;
    let spec = annotation("web", SPEC).await.unwrap();
    let metadata = json!({ "annotations": { SPEC: spec.replace("web", "other") } });
    world.change_service("other", json!({ "metadata": metadata })).await;
    let controller = world.controller().await;
    world.slice("other", &["10.1.0.1"]).await;
    world.slice("web", &["10.1.0.2"]).await;
    let members =
        async |name: &str| annotation(name, STATE).await.is_some_and(|state| state.contains("10.1.0."));
    world.until("the selected service has a member", async || members("web").await).await;
    assert_eq!(annotation("other", STATE).await, None);
    world.change_service("other", json!({ "metadata": { "labels": { "tier": "web" } } })).await;
    world.until("the other one has its member too", async || members("other").await).await;
    controller.stop().await.unwrap();
}

/// A `Service` of Knative.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KnativeService {
    metadata: ObjectMeta,
}

impl Resource for KnativeService {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Service".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "serving.knative.dev".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "services".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Writes down the Knative services that it gets, with the version in their label.
#[derive(Clone, Default)]
struct Knative(Arc<Mutex<Vec<String>>>);

impl ResourceEventHandler<KnativeService> for Knative {
    type Error = Infallible;

    async fn on_present(&self, service: &Arc<KnativeService>) -> Result<Action, Infallible> {
        let ObjectMeta { name, labels, .. } = &service.metadata;
        let version = labels.iter().flatten().map(|(_, version)| version.as_str()).next();
        self.0.lock().unwrap().push(format!("{} {}", name.as_deref().unwrap(), version.unwrap_or_default()));
        Ok(Action::done())
    }
}

#[tokio::test]
async fn services_of_another_group_are_watched_and_selected_apart_from_those_of_kubernetes() {
    const OPTIONS: &str =
        "[kubernetes]\nenabled_handlers = [\"knative\", \"lbaasspec\"]\nnamespaces = [\"shop\"]\n";
    let world = World::with(OPTIONS).await;
    let definition = json!({ "metadata": { "name": "services.serving.knative.dev" }, "spec": {
        "group": "serving.knative.dev", "scope": "Namespaced", "names": { "plural": "services", "kind": "Service" },
        "versions": [{ "name": "v1", "served": true, "storage": true,
            "schema": { "openAPIV3Schema": { "type": "object" } } }] } });
    let definitions = Api::<CustomResourceDefinition>::all(world.client.clone());
    let definition = serde_json::from_value(definition).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    namespace(&world, "shop", json!({})).await;
    let services = |namespace: &str| Api::<Service>::namespaced(world.client.clone(), namespace);
    for place in ["default", "shop"] {
        let service = json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 80 }] } });
        let service = serde_json::from_value(service).unwrap();
        services(place).create(&PostParams::default(), &service).await.unwrap();
    }
    let of_knative = Api::<KnativeService>::namespaced(world.client.clone(), "default");
    let service =
        KnativeService { metadata: ObjectMeta { name: Some("web".into()), ..ObjectMeta::default() } };
    of_knative.create(&PostParams::default(), &service).await.unwrap();

    let (knative, mut registry) = (Knative::default(), world.registry());
    let handler = knative.clone();
    registry.handler("knative", "Writes services down.", move |_| {
        Ok(Registration::new(handler.clone()).on::<KnativeService>().erase())
    });
    let controller = world.controller_with(registry).await;
    let has_spec = async |place: &str| {
        let metadata = services(place).get("web").await.unwrap().metadata;
        metadata.annotations.is_some_and(|annotations| annotations.contains_key(SPEC))
    };
    world.until("the selected service has a specification", async || has_spec("shop").await).await;
    let patch = Patch::Merge(json!({ "metadata": { "labels": { "version": "2" } } }));
    of_knative.patch("web", &PatchParams::default(), &patch).await.unwrap();
    let seen = || knative.0.lock().unwrap().clone();
    world.until("the other handler gets the change", async || seen().len() == 2).await;
    assert_eq!(seen(), ["web ", "web 2"], "it gets no service of Kubernetes, and is in no namespace's scope");
    assert!(!has_spec("default").await);
    controller.stop().await.unwrap();
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
