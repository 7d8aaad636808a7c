//! `staffetta migrate kuryr`: the network of a namespace stays in a real Neutron, and the group of a network policy goes.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::json;
use staffetta::migrate::{MigrationOptions, migrate};

use crate::kuryr::{POD, PORT, create, define};
use crate::migration::{pod, vif};
use crate::world::World;

/// The finalizers of Kuryr on a `KuryrNetwork`, and on a policy and its `KuryrNetworkPolicy`.
const NETWORK: &str = "kuryrnetwork.finalizers.kuryr.openstack.org";
const POLICY: &str = "kuryr.openstack.org/networkpolicy-finalizer";

/// Executes the migration, and returns its results as lines.
async fn run(world: &World, options: &str) -> Vec<String> {
    let registry = staffetta::assembly::registry();
    let configuration = world.configuration(&registry, options);
    let apply = MigrationOptions { apply: true, delete_idle_ports: false };
    let migration = migrate(registry, &configuration, world.client.clone(), apply).await.unwrap();
    let objects = migration.objects.into_iter();
    objects.map(|object| format!("{} {}: {}", object.kind, object.name, object.result)).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_network_of_a_namespace_stays_and_the_group_of_a_policy_goes_after_kuryr_on_a_real_openstack() {
    let world = World::start().await;
    define(&world.client).await;
    let (router, pool) = (world.tenant.router().await, world.tenant.subnet_pool("10.160.0.0/16", 24).await);
    let options = world.options(&format!(
        "[kubernetes]\nenabled_handlers = [\"vif\", \"namespace\", \"policy\"]\nnamespace_subnet_driver = \"namespace\"\n\
         namespace_project_driver = \"default\"\npod_security_groups_driver = \"policy\"\nnetwork_policy_driver = \"default\"\n\
         [namespace_subnet]\npod_router = {router:?}\npod_subnet_pool = {pool:?}\n"
    ));
    // A namespace with a network.
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let shop = serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
    namespaces.create(&PostParams::default(), &shop).await.unwrap();
    let subnet = world.tenant.subnet("10.170.0.0/24").await;
    world.tenant.update("network", &subnet.network, json!({ "name": "ns/shop-net" })).await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("openstack.org", "v1", "KuryrNetwork"));
    let networks: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), "shop", &kind);
    let recorded = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrNetwork",
        "metadata": { "name": "shop", "finalizers": [NETWORK] },
        "status": { "netId": subnet.network, "subnetId": subnet.id, "routerId": router } });
    networks.create(&PostParams::default(), &serde_json::from_value(recorded).unwrap()).await.unwrap();
    // A policy, whose group is on the port of a pod.
    let group = world.tenant.security_group("sg-deny").await;
    let description = json!({ "description": "Kuryr-Kubernetes Network Policy default/deny SG" });
    world.tenant.update("security_group", &group, description).await;
    let (uid, port) = pod(&world, "db", false).await;
    world.tenant.update("port", &port.id, json!({ "security_groups": [group] })).await;
    let finalizers = Patch::Merge(json!({ "metadata": { "finalizers": [POD] } }));
    world.pods().patch("db", &PatchParams::default(), &finalizers).await.unwrap();
    let recorded = json!({ "spec": { "podUid": uid, "podNodeName": world.node },
        "status": { "vifs": { "eth0": { "default": true, "vif": vif(&port) } } } });
    create(&world.client, ("KuryrPort", PORT), ("Pod", "db", &uid), recorded).await;
    let policies: Api<NetworkPolicy> = Api::namespaced(world.client.clone(), "default");
    let deny =
        json!({ "metadata": { "name": "deny", "finalizers": [POLICY] }, "spec": { "podSelector": {} } });
    let deny = policies.create(&PostParams::default(), &serde_json::from_value(deny).unwrap()).await.unwrap();
    let recorded = json!({ "status": { "securityGroupId": group, "securityGroupRules": [] } });
    let uid = deny.metadata.uid.unwrap();
    create(&world.client, ("KuryrNetworkPolicy", POLICY), ("NetworkPolicy", "deny", &uid), recorded).await;

    let later = format!(
        "NetworkPolicy deny: later: 1 ports have its security group {group}; start the controller, which replaces the group, \
         and run the command again"
    );
    assert_eq!(run(&world, &options).await, ["Namespace shop: done", "Pod db: done", &later]);
    assert_eq!(run(&world, &options).await, [&*later]);
    assert_eq!(networks.get("shop").await.unwrap().finalizers(), [""; 0]);
    let groups = async || world.tenant.port(&port.id).await.unwrap().security_groups;
    assert_eq!(groups().await, [&*group], "the pod is guarded all the time");

    let mut controller = world.try_controller(&options).await;
    controller.ready().await.unwrap();
    world.until("our groups are on the port", async || !groups().await.contains(&group)).await;
    assert!(!groups().await.is_empty());
    assert_eq!(run(&world, &options).await, ["NetworkPolicy deny: done"]);
    assert_eq!(run(&world, &options).await, [""; 0], "nothing is left to do");
    let has =
        async |kind: &str, id: &str| world.tenant.things(kind).await.iter().any(|thing| thing["id"] == id);
    assert!(!has("security-groups", &group).await);
    assert!(!policies.get("deny").await.unwrap().finalizers().iter().any(|finalizer| finalizer == POLICY));

    let shop = namespaces.get("shop").await.unwrap();
    assert!(shop.annotations()["staffetta.dev/namespace-network"].contains(&subnet.network));
    assert!(has("networks", &subnet.network).await);
    networks.delete("shop", &DeleteParams::default()).await.unwrap();
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    world.until("its network is deleted", async || !has("networks", &subnet.network).await).await;
    controller.stop().await.unwrap();
}
