//! Network policies become security groups, which are assigned to the VIFs of pods.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{World, active};

const POLICIES: &str =
    "[kubernetes]\nenabled_handlers = [\"vif\", \"policy\"]\npod_security_groups_driver = \"policy\"\n";

/// The names of the common groups.
const COMMON: [&str; 3] = ["nodes", "open-egress", "open-ingress"];

fn policies(world: &World) -> Api<NetworkPolicy> {
    Api::namespaced(world.client.clone(), "default")
}

async fn policy(world: &World, name: &str, spec: Value) {
    let policy = json!({ "metadata": { "name": name }, "spec": spec });
    let policy = serde_json::from_value(policy).unwrap();
    policies(world).create(&PostParams::default(), &policy).await.unwrap();
}

/// The kinds of the groups of the port of a pod: what their names begin with.
fn kinds(world: &World, pod: &str) -> Vec<String> {
    let network = world.vifs.network();
    let groups = network.security_groups();
    let ports = network.ports();
    let of_pod =
        |port: &&staffetta_memory::MemoryPort| port.owner.as_ref().is_some_and(|owner| owner.name == pod);
    let Some(port) = ports.iter().find(of_pod) else { return Vec::new() };
    let kind = |id: &staffetta_driver::SecurityGroupId| {
        let group = groups.iter().find(|group| group.id == *id);
        let name = group.map_or(id.as_str(), |group| group.name.as_str());
        if COMMON.contains(&name) { name.to_owned() } else { name.split('-').next().unwrap().to_owned() }
    };
    let mut kinds: Vec<_> = port.security_groups.iter().map(kind).collect();
    kinds.sort();
    kinds
}

/// The names of the groups that policies brought.
fn groups(world: &World) -> BTreeSet<String> {
    let groups = world.vifs.network().security_groups().into_iter();
    let names = groups.map(|group| group.name.to_string());
    names.filter(|name| !COMMON.contains(&name.as_str())).collect()
}

fn admits(label: &str) -> Value {
    json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": label } } }], "ports": [{ "port": 5432 }] }] })
}

fn app(name: &str) -> Value {
    json!({ "labels": { "app": name } })
}

#[tokio::test]
async fn a_policy_guards_pods_as_long_as_it_is_there_and_leaves_nothing() {
    let world = World::with(POLICIES).await;
    let controller = world.controller().await;
    world.pod("web", app("web"), json!({})).await;
    world.pod("db", app("db"), json!({})).await;
    world.vif_of("web", active).await;
    world.vif_of("db", active).await;
    assert_eq!((kinds(&world, "db"), kinds(&world, "web")), (vec!["default".into()], vec!["default".into()]));

    policy(&world, "p", admits("web")).await;
    let guarded = ["nodes", "open-egress", "policy"];
    world
        .until("the pods bear their groups", async || {
            kinds(&world, "db") == guarded && kinds(&world, "web") == ["default", "peers"]
        })
        .await;
    assert_eq!(groups(&world).len(), 2);

    policies(&world).delete("p", &DeleteParams::default()).await.unwrap();
    world.until("nothing is left", async || groups(&world).is_empty()).await;
    assert_eq!((kinds(&world, "db"), kinds(&world, "web")), (vec!["default".into()], vec!["default".into()]));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_is_born_with_its_groups_and_moves_when_its_labels_do() {
    let world = World::with(POLICIES).await;
    policy(&world, "p", admits("web")).await;
    let controller = world.controller().await;
    world.pod("db", app("db"), json!({})).await;
    world.until("the pod has a port", async || world.ports() == 1).await;
    assert_eq!(kinds(&world, "db"), ["nodes", "open-egress", "policy"], "from its first moment");
    world.vif_of("db", active).await;
    world.change_pod("db", json!({ "metadata": { "labels": { "app": "web" } } })).await;
    world.until("it is a peer now", async || kinds(&world, "db") == ["default", "peers"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_names_the_port_of_another_does_not_change_its_groups() {
    let world = World::with(POLICIES).await;
    policy(&world, "p", admits("web")).await;
    let controller = world.controller().await;
    let victim = world.pod("db", app("db"), json!({})).await;
    world.vif_of("db", active).await;
    let annotations = world.pods().get("db").await.unwrap().metadata.annotations;
    let thief = json!({ "labels": { "app": "web" }, "annotations": annotations });
    world.pod("thief", thief, json!({})).await;
    world
        .until("the thief gets a port of its own", async || kinds(&world, "thief") == ["default", "peers"])
        .await;
    world.vif_of("thief", active).await;
    assert_eq!(kinds(&world, "db"), ["nodes", "open-egress", "policy"]);
    drop(victim);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn pods_move_when_the_labels_of_their_namespace_change() {
    let world = World::with(POLICIES).await;
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    let spec = json!({ "podSelector": { "matchLabels": { "app": "db" } },
        "ingress": [{ "from": [{ "namespaceSelector": { "matchLabels": { "team": "web" } } }] }] });
    policy(&world, "p", spec).await;
    let controller = world.controller().await;
    world.pod("web", app("web"), json!({})).await;
    world.vif_of("web", active).await;
    assert_eq!(kinds(&world, "web"), ["default"]);
    let labels = Patch::Merge(json!({ "metadata": { "labels": { "team": "web" } } }));
    namespaces.patch("default", &PatchParams::default(), &labels).await.unwrap();
    world.until("it is a peer now", async || kinds(&world, "web") == ["default", "peers"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_went_while_nobody_looked_is_cleared_and_what_stays_is_left_as_it_is() {
    let world = World::with(POLICIES).await;
    for (name, label) in [("stays", "web"), ("goes", "batch")] {
        policy(&world, name, admits(label)).await;
    }
    let controller = world.controller().await;
    world.pod("db", app("db"), json!({})).await;
    world.vif_of("db", active).await;
    world.until("all groups are there", async || groups(&world).len() == 4).await;
    controller.stop().await.unwrap();

    policies(&world).delete("goes", &DeleteParams::default()).await.unwrap();
    let before: Vec<_> = world.vifs.network().security_groups();
    let controller = world.controller().await;
    world.until("the groups of the other are gone", async || groups(&world).len() == 2).await;
    assert!(world.vifs.network().security_groups().iter().all(|group| before.contains(group)));
    assert_eq!(kinds(&world, "db"), ["nodes", "open-egress", "policy"]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_tells_the_groups_that_would_be_made_and_makes_none() {
    let world = World::with(POLICIES).await;
    policy(&world, "p", admits("web")).await;
    world.pod("db", app("db"), json!({})).await;
    let plan = world.dry_run().await;
    let text = plan.to_string();
    assert!(text.contains("create a security group"), "{text}");
    assert!(text.contains("planned-policy-"), "{text}");
    assert_eq!(world.vifs.network().security_groups(), []);
}
