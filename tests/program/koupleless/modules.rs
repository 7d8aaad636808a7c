//! How pods become modules.

use serde_json::json;
use staffetta_koupleless_base::{AnswerFault, BaseCommand, SimulatedBase, SimulatedBaseOptions};

use super::world::{World, active, asked, module};
use crate::process::eventually;

const NODE: &str = "vnode.base-1.dev";

#[tokio::test]
async fn a_pod_becomes_a_module_that_is_replaced_and_removed_with_it() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(NODE, "True").await;
    world.pod("web", NODE, "1").await;
    let pod = world.running("web").await;
    let status = pod.status.unwrap();
    assert_eq!(status.container_statuses.unwrap()[0].container_id.as_deref(), Some("koupleless://cart:1"));
    assert_eq!(status.pod_ip.as_deref(), Some("127.88.0.1"));
    assert_eq!(base.operations()[0].request["bizUrl"], "https://example.com/cart.jar");

    world.change_image("web", "https://example.com/other.jar").await;
    eventually("the module is replaced", async || asked(&base).len() == 3).await;
    let replaced = async || {
        let pod = world.pods().get("web").await.unwrap();
        let status = pod.status.unwrap();
        assert_ne!(status.phase.as_deref(), Some("Succeeded"), "it was stopped by us");
        let container = &status.container_statuses.unwrap()[0];
        container.ready && container.image == "https://example.com/other.jar"
    };
    eventually("the pod runs with its new image", replaced).await;
    assert_eq!(asked(&base), ["+cart:1", "-cart:1", "+cart:1"]);
    assert_eq!(base.operations()[2].request["bizUrl"], "https://example.com/other.jar");

    world.delete("web").await;
    world.gone("web").await;
    assert!(active(&base).is_empty());
    assert_eq!(asked(&base).len(), 4);
}

#[tokio::test]
async fn a_late_deletion_of_an_old_pod_leaves_the_module_to_its_successor() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(NODE, "True").await;
    world.pod("old", NODE, "1").await;
    world.running("old").await;
    world.pod("new", NODE, "1").await;
    world.running("new").await;
    world.delete("old").await;
    world.gone("old").await;
    world.running("new").await;
    assert_eq!((asked(&base), active(&base)), (vec!["+cart:1".to_owned()], vec!["cart:1".to_owned()]));
    world.delete("new").await;
    world.gone("new").await;
    assert_eq!(asked(&base), ["+cart:1", "-cart:1"]);
}

#[tokio::test]
async fn a_younger_pod_cannot_replace_the_module_of_an_older_one() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(NODE, "True").await;
    world.pod("web", NODE, "1").await;
    world.running("web").await;
    let other = json!([module("cart", "1", "https://example.com/other.jar")]);
    world.pod_with("thief", NODE, &other).await;
    eventually("the pod says why it waits", async || {
        let pod = world.pods().get("thief").await.unwrap();
        serde_json::to_string(&pod.status).unwrap().contains("default/web")
    })
    .await;
    world.delete("thief").await;
    world.gone("thief").await;
    world.running("web").await;
    assert_eq!(asked(&base), ["+cart:1"]);
}

#[tokio::test]
async fn a_pod_with_several_modules_runs_when_all_of_them_do_and_a_container_without_a_version_is_refused() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(NODE, "True").await;
    let [cart, stock] = ["cart", "stock"].map(|name| module(name, "1", "https://example.com/a.jar"));
    world.pod_with("web", NODE, &json!([cart, stock])).await;
    world.running("web").await;
    assert_eq!(active(&base), ["cart:1", "stock:1"]);
    world.pod_with("odd", NODE, &json!([{ "name": "odd", "image": "https://example.com/a.jar" }])).await;
    eventually("the pod says what is missing", async || {
        let pod = world.pods().get("odd").await.unwrap();
        serde_json::to_string(&pod.status).unwrap().contains("BIZ_VERSION")
    })
    .await;
    world.delete("odd").await;
    world.gone("odd").await;
    world.running("web").await;
}

#[tokio::test]
async fn a_module_that_cannot_be_loaded_is_reported_with_the_words_of_the_base() {
    let world = World::new(1).await;
    let replica = world.replica(0).await;
    let options = SimulatedBaseOptions { max_metaspace: 1, ..SimulatedBaseOptions::numbered(1, 1) };
    let base = world.base_with(options).await;
    world.node(NODE, "True").await;
    world.pod("web", NODE, "1").await;
    eventually("the pod says why it waits", async || {
        let pod = world.pods().get("web").await.unwrap();
        serde_json::to_string(&pod.status).unwrap().contains("Metaspace")
    })
    .await;
    assert_eq!(asked(&base), ["+cart:1"], "it is not repeated at once");
    let request = replica.request_for("web", "POST").await;
    assert_eq!((&request["path"], &request["status"]), (&json!("/installBiz"), &json!(200)));
    world.delete("web").await;
    world.gone("web").await;
}

#[tokio::test]
async fn an_answer_that_is_lost_does_not_load_a_module_twice() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    base.behave(|behaviour| drop(behaviour.answers.insert(BaseCommand::InstallBiz, AnswerFault::Lose)));
    world.node(NODE, "True").await;
    world.pod("web", NODE, "1").await;
    world.running("web").await;
    assert_eq!(asked(&base), ["+cart:1"]);
}

#[tokio::test]
async fn a_lost_answer_over_http_is_followed_by_a_look_at_the_base_and_not_by_the_same_command() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(NODE, "True").await;
    for command in [BaseCommand::InstallBiz, BaseCommand::UninstallBiz, BaseCommand::SwitchBiz] {
        base.behave(|behaviour| drop(behaviour.answers.insert(command, AnswerFault::Lose)));
    }
    updated(&world, &base).await;
    assert!(world.events("DriverUnavailable").await.is_empty(), "nothing has failed");
}

#[tokio::test]
async fn a_rolling_update_activates_the_new_version_before_the_old_one_is_unloaded() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(NODE, "True").await;
    updated(&world, &base).await;
    world.pod("older", NODE, "1").await;
    world.running("older").await;
    // The successor of the pod that goes is the one that is left.
    world.delete("older").await;
    world.gone("older").await;
    world.running("new").await;
    assert_eq!(asked(&base)[4..], ["+cart:1", "=cart:1", "=cart:2", "-cart:1"]);
}

/// Has a pod with the second version of a module succeed one with the first version, as a Deployment does.
pub(super) async fn updated(world: &World, base: &SimulatedBase) {
    world.pod("old", NODE, "1").await;
    world.running("old").await;
    // Creation times are in seconds.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    world.pod("new", NODE, "2").await;
    let new = world.running("new").await;
    assert_eq!(new.status.unwrap().container_statuses.unwrap()[0].restart_count, 0);
    assert_eq!(active(base), ["cart:2"], "it is ready, so it runs");
    world.delete("old").await;
    world.gone("old").await;
    world.running("new").await;
    assert_eq!(active(base), ["cart:2"]);
    assert_eq!(asked(base), ["+cart:1", "+cart:2", "=cart:2", "-cart:1"]);
}

#[tokio::test]
async fn a_version_that_is_not_that_of_the_jar_file_is_reported_and_leaves_nothing_behind() {
    let world = World::new(1).await;
    let _replica = world.replica(0).await;
    let manifest = ("https://example.com/cart.jar".to_owned(), ("cart".to_owned(), "1.0.0".to_owned()));
    let options = SimulatedBaseOptions { manifests: vec![manifest], ..SimulatedBaseOptions::numbered(1, 1) };
    let base = world.base_with(options).await;
    world.node(NODE, "True").await;
    world.pod("web", NODE, "9").await;
    eventually("the pod says which version the JAR file has", async || {
        let pod = world.pods().get("web").await.unwrap();
        serde_json::to_string(&pod.status).unwrap().contains("cart:1.0.0")
    })
    .await;
    eventually("the module that nobody wants is unloaded", async || {
        asked(&base).contains(&"-cart:1.0.0".into())
    })
    .await;
    world.delete("web").await;
    world.gone("web").await;
    eventually("nothing is left", async || base.modules().is_empty()).await;
}

#[tokio::test]
async fn pods_that_are_no_modules_are_left_alone() {
    let world = World::new(1).await;
    let replica = world.replica(0).await;
    let base = world.base(1).await;
    world.node(NODE, "True").await;
    let plain = json!({ "metadata": { "name": "plain" },
        "spec": { "nodeName": NODE, "containers": [module("cart", "9", "https://example.com/a.jar")] } });
    let plain = serde_json::from_value(plain).unwrap();
    world.pods().create(&kube::api::PostParams::default(), &plain).await.unwrap();
    world.pod("web", NODE, "1").await;
    world.running("web").await;
    assert_eq!(asked(&base), ["+cart:1"]);
    let (_, state) = replica.process.get("/debug/state").await;
    assert!(!state.contains("plain"), "only modules are watched");
}
