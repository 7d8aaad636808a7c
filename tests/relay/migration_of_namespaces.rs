//! `staffetta migrate kuryr` takes over the networks of namespaces, and ends the groups of Kuryr's network policies.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::json;
use staffetta_driver::NamespaceNetwork;
use staffetta_memory::{MemoryNamespaceNetwork, MemoryPort};

use crate::kuryr::{create, define, resources};
use crate::migration::{APPLY, lines, pod_with_kuryr_port, run};
use crate::world::World;

const OPTIONS: &str = "[kubernetes]\nenabled_handlers = [\"vif\", \"namespace\", \"policy\"]\n\
    pod_security_groups_driver = \"policy\"\n";

/// The finalizers of Kuryr on a `KuryrNetwork`, and on a policy and its `KuryrNetworkPolicy`.
const NETWORK: &str = "kuryrnetwork.finalizers.kuryr.openstack.org";
const POLICY: &str = "kuryr.openstack.org/networkpolicy-finalizer";

#[tokio::test]
async fn a_namespace_of_kuryr_keeps_its_network_which_goes_with_it_under_our_controller() {
    let world = World::with(OPTIONS).await;
    define(&world.client).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let shop = serde_json::from_value(json!({ "metadata": { "name": "shop" } })).unwrap();
    let uid = namespaces.create(&PostParams::default(), &shop).await.unwrap().metadata.uid.unwrap();
    let theirs = NamespaceNetwork { network: "n1".into(), subnet: "s1".into() };
    let network = world.vifs.network();
    network.insert_namespace_network(MemoryNamespaceNetwork {
        network: theirs.clone(),
        name: format!("{uid}/shop"),
        cluster: None,
        owner: None,
        used: false,
    });
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("openstack.org", "v1", "KuryrNetwork"));
    let recorded: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), "shop", &kind);
    let object = json!({ "apiVersion": "openstack.org/v1", "kind": "KuryrNetwork",
        "metadata": { "name": "shop", "finalizers": [NETWORK] },
        "status": { "netId": theirs.network, "subnetId": theirs.subnet } });
    recorded.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();

    assert_eq!(lines(&run(&world, APPLY).await.unwrap()), ["Namespace shop: done"]);
    assert_eq!(lines(&run(&world, APPLY).await.unwrap()), [""; 0], "nothing is left to do");
    assert_eq!(recorded.get("shop").await.unwrap().finalizers(), [""; 0]);
    let taken = namespaces.get("shop").await.unwrap();
    assert_eq!(taken.finalizers(), ["staffetta.dev/namespace"]);
    assert!(taken.annotations()["staffetta.dev/namespace-network"].contains("n1"));

    let controller = world.controller().await;
    let of_shop = || {
        let all = network.namespace_networks().into_iter();
        all.filter(|made| made.owner.as_ref().is_some_and(|owner| owner.name == "shop")).collect::<Vec<_>>()
    };
    world.until("the other namespaces have networks", async || network.namespace_networks().len() > 1).await;
    assert_eq!(
        of_shop().iter().map(|made| &made.network).collect::<Vec<_>>(),
        [&theirs],
        "and no second one"
    );
    recorded.delete("shop", &DeleteParams::default()).await.unwrap();
    namespaces.delete("shop", &DeleteParams::default()).await.unwrap();
    world.until("the network is deleted", async || of_shop().is_empty()).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn the_group_of_a_policy_of_kuryr_goes_when_our_controller_has_replaced_it_on_the_ports() {
    let world = World::with(OPTIONS).await;
    define(&world.client).await;
    let network = world.vifs.network();
    let port = pod_with_kuryr_port(&world, "db", false).await;
    network.insert_security_group(&"theirs".into(), "Kuryr-Kubernetes Network Policy default/deny SG");
    network.insert_port(MemoryPort { security_groups: vec!["theirs".into()], ..port.clone() });
    let policies: Api<NetworkPolicy> = Api::namespaced(world.client.clone(), "default");
    let deny =
        json!({ "metadata": { "name": "deny", "finalizers": [POLICY] }, "spec": { "podSelector": {} } });
    let deny = policies.create(&PostParams::default(), &serde_json::from_value(deny).unwrap()).await.unwrap();
    let uid = deny.metadata.uid.unwrap();
    let recorded = json!({ "status": { "securityGroupId": "theirs", "securityGroupRules": [] } });
    create(&world.client, ("KuryrNetworkPolicy", POLICY), ("NetworkPolicy", "deny", &uid), recorded).await;

    let groups = || network.port(&port.vif.id).unwrap().security_groups;
    let later = "NetworkPolicy deny: later: 1 ports have its security group theirs; start the controller, which replaces the \
        group, and run the command again";
    let first = run(&world, APPLY).await.unwrap();
    assert_eq!(lines(&first), ["Pod db: done", later]);
    assert!(first.objects.iter().all(|object| object.is_ok), "it is no failure");
    assert_eq!(groups(), ["theirs".into()], "the pod is guarded all the time");
    assert_eq!(lines(&run(&world, APPLY).await.unwrap()), [later]);

    let controller = world.controller().await;
    world.until("our groups are on the port", async || !groups().contains(&"theirs".into())).await;
    assert!(!groups().is_empty());
    assert_eq!(lines(&run(&world, APPLY).await.unwrap()), ["NetworkPolicy deny: done"]);
    assert_eq!(lines(&run(&world, APPLY).await.unwrap()), [""; 0], "nothing is left to do");
    assert!(network.security_groups().iter().all(|group| group.id != "theirs".into()));
    let left = policies.get("deny").await.unwrap();
    assert!(!left.finalizers().iter().any(|finalizer| finalizer == POLICY), "{:?}", left.finalizers());
    let recorded = resources(&world.client, "KuryrNetworkPolicy").get("deny").await.unwrap();
    assert_eq!(recorded.finalizers(), [""; 0]);
    controller.stop().await.unwrap();
}
