//! `staffetta migrate kuryr` takes over what Kuryr left, and the controller goes on with it.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta::migrate::{MigrateError, Migration, MigrationOptions, migrate};
use staffetta_driver::{
    LoadBalancer, Owner, PodVifDriver, PublicIp, ServicePublicIpDriver, ServiceSubnetsDriver, VifRequest,
};
use staffetta_memory::MemoryPort;
use staffetta_network::os_vif::PodState;

use crate::kuryr::{BALANCER, POD, PORT, SERVICE, create, define, resources};
use crate::world::{STATE, VIF, World};

pub(crate) const APPLY: MigrationOptions = MigrationOptions { apply: true, delete_idle_ports: false };

/// Creates a running pod with a port, as Kuryr does, and returns the port. One of a pool names no pod.
async fn pod(world: &World, name: &str, metadata: Value, is_pooled: bool) -> (Pod, MemoryPort) {
    let pod = world.pod(name, metadata, json!({})).await;
    let network = world.vifs.network();
    let request = VifRequest {
        owner: Owner::of(&pod.metadata),
        node_name: "n1".into(),
        host_ip: None,
        project: "memory".into(),
        subnets: vec![network.subnet("10.10.0.0/16".parse().unwrap())],
        security_groups: vec!["default".into()],
    };
    let vif = world.vifs.request_vif(&request).await.unwrap();
    let made = network.port(&vif.id).unwrap();
    let owner = made.owner.clone().filter(|_| !is_pooled);
    let port = MemoryPort { cluster: None, owner, ..made };
    network.insert_port(port.clone());
    let ip = vif.ips().next().unwrap();
    let status = json!({ "status": { "phase": "Running", "podIP": ip, "hostIP": "192.0.2.1" } });
    let pod = world.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    (pod, port)
}

/// The VIF of a port in its envelope.
fn envelope(port: &MemoryPort) -> Value {
    let state: Value = serde_json::from_str(&PodState::new(port.vif.clone()).write()).unwrap();
    state["versioned_object.data"]["default_vif"].clone()
}

/// Creates a pod with a `KuryrPort`.
pub(crate) async fn pod_with_kuryr_port(world: &World, name: &str, is_pooled: bool) -> MemoryPort {
    let (pod, port) = pod(world, name, json!({ "finalizers": [POD] }), is_pooled).await;
    let uid = pod.metadata.uid.unwrap();
    let more = json!({ "spec": { "podUid": uid, "podNodeName": "n1" },
        "status": { "vifs": { "eth0": { "default": true, "vif": envelope(&port) } } } });
    create(&world.client, ("KuryrPort", PORT), ("Pod", name, &uid), more).await;
    port
}

/// Creates a service with a `KuryrLoadBalancer`, a load balancer and a public address.
async fn service_with_kuryr_load_balancer(world: &World, name: &str) -> (LoadBalancer, PublicIp) {
    world.service(name, json!({ "type": "LoadBalancer", "ports": [{ "name": "http", "port": 80 }] })).await;
    world.change_service(name, json!({ "metadata": { "finalizers": [SERVICE] } })).await;
    let service = world.web_services().get(name).await.unwrap();
    let subnet = world.services.subnets(&service, &"memory".into()).await.unwrap().remove(0);
    let ip = service.spec.as_ref().unwrap().cluster_ip.clone().unwrap();
    let status = json!({ "id": format!("lb-{name}"), "ip": ip, "name": format!("default/{name}"), "port_id": "port",
        "project_id": "memory", "provider": "memory", "security_groups": ["default"], "subnet_id": subnet });
    let tree = json!({ "id": status["id"], "project": "memory", "name": status["name"], "vip": ip,
        "subnet": status["subnet_id"], "port": "port", "provider": "memory", "security_groups": ["default"],
        "status": "active", "listeners": [] });
    let tree: LoadBalancer = serde_json::from_value(tree).unwrap();
    world.services.insert_load_balancer(tree.clone());
    let public = world.services.insert_public_ip([203, 0, 113, 200].into());
    let public = world.services.public_ip(&public).unwrap().resource;
    world.public_ips.associate(&public, &tree.port).await.unwrap();
    let more = json!({ "spec": { "ip": ip },
        "status": { "loadbalancer": status,
            "service_pub_ip_info": { "ip_id": public.id, "ip_addr": public.ip, "alloc_method": "pool" } } });
    let uid = service.metadata.uid.unwrap();
    create(&world.client, ("KuryrLoadBalancer", BALANCER), ("Service", name, &uid), more).await;
    (tree, public)
}

pub(crate) async fn run(world: &World, options: MigrationOptions) -> Result<Migration, MigrateError> {
    let registry = world.registry();
    let configuration = world.configuration(&registry);
    migrate(registry, &configuration, world.client.clone(), options).await
}

/// The results as lines.
pub(crate) fn lines(migration: &Migration) -> Vec<String> {
    let line = |object: &staffetta::cleanup::ObjectResult| {
        format!("{} {}: {}", object.kind, object.name, object.result)
    };
    migration.objects.iter().map(line).collect()
}

/// The finalizers of an object of Kuryr.
async fn finalizers(world: &World, kind: &str, name: &str) -> Vec<String> {
    resources(&world.client, kind).get(name).await.unwrap().finalizers().to_vec()
}

#[tokio::test]
async fn pods_and_services_of_kuryr_are_shown_then_taken_over_and_keep_everything_under_our_controller() {
    let world = World::new().await;
    define(&world.client).await;
    let web = pod_with_kuryr_port(&world, "web", false).await;
    let pooled = pod_with_kuryr_port(&world, "pooled", true).await;
    let (old, annotated) = pod(&world, "old", json!({}), false).await;
    let text = PodState::new(annotated.vif.clone()).write();
    world.change_pod(&old.name_any(), json!({ "metadata": { "annotations": { VIF: text } } })).await;
    let (balancer, public) = service_with_kuryr_load_balancer(&world, "shop").await;

    let shown = run(&world, MigrationOptions::default()).await.unwrap();
    assert_eq!(shown.objects.len(), 4, "{:?}", lines(&shown));
    assert!(shown.objects.iter().all(|object| object.is_ok), "{:?}", lines(&shown));
    assert!(world.vifs.network().ports().iter().all(|port| port.cluster.is_none()), "it is only shown");
    assert_eq!(world.pods().get("web").await.unwrap().finalizers(), [POD]);

    let done = run(&world, APPLY).await.unwrap();
    let expected = ["Pod pooled: done", "Pod web: done", "Pod old: done", "Service shop: done"];
    assert_eq!(lines(&done), expected);
    assert_eq!(lines(&run(&world, APPLY).await.unwrap()), [""; 0], "nothing is left to do");
    for (name, port) in [("web", &web), ("pooled", &pooled), ("old", &annotated)] {
        let taken = world.vifs.network().port(&port.vif.id).unwrap();
        let marked = taken.owner.map(|owner| (owner.namespace, owner.name));
        assert_eq!(marked, Some(("default".to_owned(), name.to_owned())));
        assert_eq!(
            (taken.cluster, taken.vif, taken.node_name),
            (Some("kubernetes".into()), port.vif.clone(), port.node_name.clone())
        );
        let pod = world.pods().get(name).await.unwrap();
        assert_eq!(pod.finalizers(), ["staffetta.dev/vif"]);
        assert_eq!(PodState::read(&pod.annotations()[VIF]).unwrap().default_vif, port.vif);
    }
    for (kind, name) in [("KuryrPort", "web"), ("KuryrPort", "pooled"), ("KuryrLoadBalancer", "shop")] {
        assert_eq!(finalizers(&world, kind, name).await, [""; 0], "{kind} {name}");
    }

    let controller = world.controller().await;
    world.slice("shop", &["10.10.0.2"]).await;
    world
        .until("the service is served", async || {
            let service = world.web_services().get("shop").await.unwrap();
            service.annotations().get(STATE).is_some_and(|state| state.contains("10.10.0.2"))
        })
        .await;
    let balancers = world.services.load_balancers();
    assert_eq!(
        balancers.iter().map(|(_, tree)| (&tree.id, tree.vip)).collect::<Vec<_>>(),
        [(&balancer.id, balancer.vip)]
    );
    let held = world.services.public_ips();
    assert_eq!(
        held.iter().map(|(_, held)| (&held.id, &held.port)).collect::<Vec<_>>(),
        [(&public.id, &Some(balancer.port))]
    );
    assert_eq!(world.web_services().get("shop").await.unwrap().finalizers(), ["staffetta.dev/lb"]);
    assert_eq!(world.vifs.network().ports().len(), 3, "no port came or went");

    // The controller ends what Kuryr began.
    for name in ["web", "pooled", "old"] {
        world.end_pod(name).await;
    }
    world.web_services().delete("shop", &DeleteParams::default()).await.unwrap();
    world
        .until("everything is released", async || {
            world.vifs.network().ports().is_empty()
                && world.services.load_balancers().is_empty()
                && world.services.public_ips().is_empty()
        })
        .await;
    let left = resources(&world.client, "KuryrPort").list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.len(), 0, "they went with their pods");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_forged_record_of_a_tenant_is_refused_and_nothing_of_others_is_touched() {
    let world = World::new().await;
    define(&world.client).await;
    let victim = pod_with_kuryr_port(&world, "victim", true).await;
    let annotations = json!({ VIF: PodState::new(victim.vif.clone()).write() });
    let (_, own) =
        pod(&world, "thief", json!({ "annotations": annotations, "finalizers": [POD] }), false).await;
    let done = run(&world, APPLY).await.unwrap();
    let reason = format!(
        "Pod thief: refused: port {} names no pod, and its address is not that in the status of the pod",
        victim.vif.id
    );
    assert_eq!(lines(&done), ["Pod victim: done".to_owned(), reason]);
    assert!(!done.objects[1].is_ok);
    let port = |port: &MemoryPort| world.vifs.network().port(&port.vif.id).unwrap();
    assert_eq!(port(&victim).owner.unwrap().name, "victim");
    assert_eq!(port(&own).cluster, None);
    assert_eq!(world.pods().get("thief").await.unwrap().finalizers(), [POD], "Kuryr's finalizer stays");
}

#[tokio::test]
async fn nothing_is_applied_while_the_controller_of_kuryr_runs_or_will() {
    let world = World::new().await;
    define(&world.client).await;
    pod_with_kuryr_port(&world, "web", false).await;
    let deployments: Api<Deployment> = Api::namespaced(world.client.clone(), "default");
    let template = json!({ "metadata": { "labels": { "name": "kuryr-controller" } },
        "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    let deployment = json!({ "metadata": { "name": "kuryr-controller" }, "spec": { "replicas": 1, "template": template,
        "selector": { "matchLabels": { "name": "kuryr-controller" } } } });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let refused = run(&world, APPLY).await.unwrap_err().to_string();
    assert!(
        refused.contains("Deployment default/kuryr-controller") && refused.contains("scale"),
        "{refused}"
    );
    let shown = run(&world, MigrationOptions::default()).await.unwrap();
    assert_eq!(
        (shown.objects.len(), &shown.running_kuryr[..]),
        (1, &["Deployment default/kuryr-controller".to_owned()][..])
    );
    let stopped = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    deployments.patch("kuryr-controller", &PatchParams::default(), &stopped).await.unwrap();
    assert_eq!(lines(&run(&world, APPLY).await.unwrap()), ["Pod web: done"]);
}

#[tokio::test]
async fn idle_ports_of_kuryrs_pools_are_deleted_only_when_asked_for() {
    let world = World::never_wired().await;
    define(&world.client).await;
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(world.client.clone());
    let node = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    let (_, used) = pod(&world, "web", json!({}), true).await;
    let text = PodState::new(used.vif.clone()).write();
    world.change_pod("web", json!({ "metadata": { "annotations": { VIF: text } } })).await;
    let (_, idle) = pod(&world, "ended", json!({}), true).await;
    world.end_pod("ended").await;
    let kept = run(&world, APPLY).await.unwrap();
    assert_eq!(kept.objects[1].name, idle.vif.id.to_string());
    assert!(kept.objects[1].result.contains("--delete-idle-ports") && kept.objects[1].is_ok);
    assert_eq!(world.vifs.network().ports().len(), 2);
    run(&world, MigrationOptions { delete_idle_ports: true, ..APPLY }).await.unwrap();
    let left = world.vifs.network().ports();
    assert_eq!(left.iter().map(|port| &port.vif.id).collect::<Vec<_>>(), [&used.vif.id]);
}
