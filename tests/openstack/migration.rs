//! `staffetta migrate kuryr`: what Kuryr left in a real Neutron and Octavia is ours, and nothing of it came, went or moved.

use http::Method;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use staffetta::migrate::{MigrationOptions, migrate};
use staffetta_real_openstack::{Match, Port};

use crate::kuryr::{BALANCER, POD, PORT, SERVICE, create, define, resources};
use crate::services::Shop;
use crate::world::{VIF, World};

/// The options of a controller for pods and services.
const BOTH: &str = "[kubernetes]\nenabled_handlers = [\"vif\", \"lb\", \"lbaasspec\"]\n";

/// Creates a running pod with a port, as Kuryr does. A port of its pool names no pod.
pub(crate) async fn pod(world: &World, name: &str, is_pooled: bool) -> (String, Port) {
    let uid = world.pod(name).await.metadata.uid.unwrap();
    let mut wish = json!({ "device_owner": "compute:kuryr", "binding:host_id": world.node, "admin_state_up": true,
        "security_groups": [world.group] });
    if !is_pooled {
        wish["device_id"] = json!(uid);
    }
    let made = world.tenant.create_port(&world.subnet, wish).await;
    let status = json!({ "status": { "phase": "Running", "podIP": made.address(), "hostIP": "192.0.2.1" } });
    world.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let is_active = async || world.tenant.port(&made.id).await.is_some_and(|port| port.active());
    world.until(&format!("the port of {name} is ACTIVE"), is_active).await;
    (uid, world.tenant.port(&made.id).await.unwrap())
}

/// The VIF of a port as Kuryr writes it.
pub(crate) fn vif(port: &Port) -> Value {
    let envelope = |name: &str, version: &str, data: Value| {
        json!({ "versioned_object.name": name, "versioned_object.namespace": "os_vif",
            "versioned_object.version": version, "versioned_object.data": data })
    };
    let list = |name: &str, objects: Vec<Value>| {
        envelope(&format!("{name}List"), "1.0", json!({ "objects": objects }))
    };
    let ip = envelope("FixedIP", "1.0", json!({ "address": port.address() }));
    let subnet = envelope(
        "Subnet",
        "1.0",
        json!({ "cidr": "10.128.0.0/20", "gateway": "10.128.0.1", "dns": [],
        "routes": list("Route", Vec::new()), "ips": list("FixedIP", vec![ip]) }),
    );
    let network = envelope(
        "Network",
        "1.1",
        json!({ "id": port.network_id, "bridge": "br-int", "label": "pods",
        "mtu": 1450, "should_provide_bridge": false, "should_provide_vlan": false, "subnets": list("Subnet", vec![subnet]) }),
    );
    let profile = envelope("VIFPortProfileOpenVSwitch", "1.4", json!({ "interface_id": port.id }));
    envelope(
        "VIFOpenVSwitch",
        "1.0",
        json!({ "id": port.id, "address": port.mac_address, "active": true, "plugin": "ovs",
        "vif_name": format!("tap{}", &port.id[..11]), "bridge_name": "br-int", "has_traffic_filtering": true,
        "preserve_on_delete": false, "port_profile": profile, "network": network }),
    )
}

/// The properties of a port on which the traffic of its pod depends.
fn traffic(port: &Port) -> Value {
    json!([
        port.id,
        port.mac_address,
        port.address(),
        port.host,
        port.vif_type,
        port.status,
        port.security_groups
    ])
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_cluster_of_kuryr_is_taken_over_without_a_port_or_load_balancer_that_comes_or_goes_on_a_real_openstack()
 {
    let world = World::start().await;
    let shop = Shop::new(&world).await;
    define(&world.client).await;
    let mut ports = Vec::new();
    for (name, is_pooled) in [("web", false), ("pooled", true)] {
        let (uid, port) = pod(&world, name, is_pooled).await;
        let finalizers = Patch::Merge(json!({ "metadata": { "finalizers": [POD] } }));
        world.pods().patch(name, &PatchParams::default(), &finalizers).await.unwrap();
        let recorded = json!({ "spec": { "podUid": uid, "podNodeName": world.node },
            "status": { "vifs": { "eth0": { "default": true, "vif": vif(&port) } } } });
        create(&world.client, ("KuryrPort", PORT), ("Pod", name, &uid), recorded).await;
        ports.push((name, port));
    }
    let (_, old) = pod(&world, "old", false).await;
    let state = json!({ "versioned_object.name": "PodState", "versioned_object.namespace": "os_vif",
        "versioned_object.version": "1.0",
        "versioned_object.data": { "default_vif": vif(&old), "additional_vifs": {} } })
    .to_string();
    let annotations = Patch::Merge(json!({ "metadata": { "annotations": { VIF: state } } }));
    world.pods().patch("old", &PatchParams::default(), &annotations).await.unwrap();
    ports.push(("old", old));
    // A load balancer with a listener and a pool.
    let endpoints = ["10.128.0.10", "10.128.0.11"];
    shop.service("shop", "ClusterIP", &endpoints).await;
    let finalizers = Patch::Merge(json!({ "metadata": { "finalizers": [SERVICE] } }));
    let service = shop.services.patch("shop", &PatchParams::default(), &finalizers).await.unwrap();
    let ip = service.spec.as_ref().unwrap().cluster_ip.clone().unwrap();
    let project = &world.tenant.id;
    let pool = json!({ "name": "default/shop:TCP:80", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN" });
    let listener = json!({ "name": "default/shop:TCP:80", "protocol": "TCP", "protocol_port": 80, "default_pool": pool });
    let theirs = json!({ "loadbalancer": { "name": "default/shop", "project_id": project, "vip_address": ip,
        "vip_subnet_id": shop.subnet.id, "description": "kuryr", "listeners": [listener] } });
    world.tenant.meddle(Method::POST, "loadbalancers", theirs).await;
    world
        .until("the load balancer is ACTIVE", async || {
            shop.balancer("shop").await.unwrap().status == "ACTIVE"
        })
        .await;
    let theirs = shop.balancer("shop").await.unwrap();
    let recorded = json!({ "spec": { "ip": ip }, "status": { "loadbalancer": { "id": theirs.id, "ip": ip,
        "name": "default/shop", "port_id": theirs.port, "project_id": project, "provider": "amphora",
        "security_groups": [], "subnet_id": shop.subnet.id } } });
    let uid = service.metadata.uid.clone().unwrap();
    create(&world.client, ("KuryrLoadBalancer", BALANCER), ("Service", "shop", &uid), recorded).await;

    let options = world.options(&crate::world::merged(&shop.options(""), BOTH));
    for run in 0..2 {
        let registry = staffetta::assembly::registry();
        let configuration = world.configuration(&registry, &options);
        let apply = MigrationOptions { apply: true, delete_idle_ports: false };
        let migration = migrate(registry, &configuration, world.client.clone(), apply).await.unwrap();
        assert!(migration.objects.iter().all(|object| object.is_ok), "{:?}", migration.objects);
        assert_eq!(migration.objects.len(), if run == 0 { 4 } else { 0 }, "{:?}", migration.objects);
    }
    let mut controller = world.try_controller(&options).await;
    controller.ready().await.unwrap();
    shop.until_served("shop", &endpoints).await;
    for (name, before) in &ports {
        let after = world.tenant.port(&before.id).await.unwrap();
        assert_eq!(traffic(&after), traffic(before), "{name}");
        assert!(after.active() && after.description.contains(&format!("pod=default/{name}")), "{after:?}");
        let pod = world.pods().get(name).await.unwrap();
        assert_eq!(pod.finalizers(), ["staffetta.dev/vif"]);
        assert_eq!(crate::world::vifs_of(&pod)[0].id, before.id);
    }
    let events: Api<Event> = Api::namespaced(world.client.clone(), "default");
    let warnings = events.list(&ListParams::default()).await.unwrap().items.into_iter();
    let warnings: Vec<_> = warnings.filter(|event| event.type_.as_deref() == Some("Warning")).collect();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(world.ports().await.len(), ports.len());
    let after = shop.balancer("shop").await.unwrap();
    assert_eq!((&after.id, &after.port), (&theirs.id, &theirs.port));
    assert!(theirs.pools.iter().all(|pool| after.pools.contains(pool)), "{theirs:?} {after:?}");
    for (method, path) in [
        (Method::POST, "/v2.0/ports"),
        (Method::DELETE, "/v2.0/ports"),
        (Method::POST, "/lbaas/loadbalancers"),
        (Method::DELETE, "/lbaas/"),
    ] {
        assert_eq!(world.gate.count(&Match::any().method(method.clone()).path(path)), 0, "{method} {path}");
    }

    // They end under our controller, and Kuryr's custom resources with them.
    for (name, _) in &ports {
        world.end_pod(name).await;
        world.until_gone(name).await;
    }
    shop.services.delete("shop", &DeleteParams::default()).await.unwrap();
    world.until_ports(0).await;
    shop.until_empty().await;
    for kind in ["KuryrPort", "KuryrLoadBalancer"] {
        let left = resources(&world.client, kind).list(&ListParams::default()).await.unwrap();
        assert_eq!(left.items.len(), 0, "{kind}");
    }
    controller.stop().await.unwrap();
}
