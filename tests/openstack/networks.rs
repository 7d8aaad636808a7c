//! Pods with additional networks.

use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use staffetta_real_openstack::Subnet;

use crate::world::World;

/// The annotation in which a pod asks for further networks.
pub(crate) const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

const OPTIONS: &str = "[kubernetes]\nmulti_vif_driver = \"npwg_multiple_interfaces\"\n";

/// The definition of the kind, as those who made it up publish it.
fn definition() -> Value {
    let config = json!({ "type": "object", "properties": { "config": { "type": "string" } } });
    let schema = json!({ "type": "object", "properties": { "spec": config } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "network-attachment-definitions.k8s.cni.cncf.io" },
        "spec": {
            "group": "k8s.cni.cncf.io", "scope": "Namespaced",
            "names": {
                "plural": "network-attachment-definitions", "singular": "network-attachment-definition",
                "kind": "NetworkAttachmentDefinition", "shortNames": ["net-attach-def"],
            },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }],
        },
    })
}

/// A world whose API server knows further networks.
pub(crate) async fn world() -> World {
    let world = World::start().await;
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(world.client.clone(), &ApiResource::from_gvk(&kind));
    let definition = serde_json::from_value(definition()).unwrap();
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    world
}

/// Makes a network known under a name.
pub(crate) async fn attachment(world: &World, name: &str, subnet: &Subnet) {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let kind = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    let attachments: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), "default", &kind);
    let config = json!({ "subnetId": subnet.id }).to_string();
    let attachment = json!({ "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": name, "annotations": { "openstack.org/kuryr-config": config } }, "spec": {} });
    let attachment = serde_json::from_value(attachment).unwrap();
    attachments.create(&PostParams::default(), &attachment).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_pod_gets_a_port_in_each_network_for_which_it_asks_on_a_real_openstack() {
    let world = world().await;
    let (blue, green) = (world.tenant.subnet("10.2.0.0/24").await, world.tenant.subnet("10.3.0.0/24").await);
    attachment(&world, "blue", &blue).await;
    attachment(&world, "green", &green).await;
    let controller = world.controller(OPTIONS).await;
    world.pod_on(&world.node, "web", json!({ NETWORKS: "blue, green@net9" })).await;
    world.until_active(&["web"]).await;
    let vifs = world.vifs("web").await;
    let mut interfaces: Vec<_> = vifs.iter().map(|vif| vif.interface.as_str()).collect();
    interfaces.sort_unstable();
    assert_eq!(interfaces, ["eth0", "eth1", "net9"]);
    for (interface, subnet) in [("eth0", &world.subnet), ("eth1", &blue), ("net9", &green)] {
        let ports = world.tenant.pod_ports(&subnet.network).await;
        let vif = vifs.iter().find(|vif| vif.interface == interface).unwrap();
        assert_eq!((ports.len(), &ports[0].id), (1, &vif.id), "{interface}");
        assert_eq!(ports[0].address().unwrap().to_string(), vif.address);
        assert!(ports[0].active());
    }
    world.end_pod("web").await;
    world.until_gone("web").await;
    for subnet in [&world.subnet, &blue, &green] {
        world
            .until("the ports are released", async || {
                world.tenant.pod_ports(&subnet.network).await.is_empty()
            })
            .await;
    }
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_pod_keeps_no_port_while_one_of_its_networks_has_no_room_on_a_real_openstack() {
    let world = world().await;
    let full = world.tenant.subnet("10.2.0.0/30").await; // one address beside the gateway
    let taken = world.tenant.create_port(&full, json!({ "name": "foreign" })).await;
    attachment(&world, "blue", &full).await;
    let controller = world.controller(OPTIONS).await;
    world.pod_on(&world.node, "web", json!({ NETWORKS: "blue" })).await;
    world.until_reported("web", "SubnetFull").await;
    assert!(world.vifs("web").await.is_empty());
    world.tenant.delete("port", &taken.id).await;
    world.until_active(&["web"]).await;
    assert_eq!(world.named().await.len(), 2);
    world.until_ports(1).await;
    world.end_pod("web").await;
    world.until_gone("web").await;
    world.until_ports(0).await;
    world
        .until("the port is released", async || world.tenant.pod_ports(&full.network).await.is_empty())
        .await;
    controller.stop().await.unwrap();
}
