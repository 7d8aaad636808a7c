//! Pods get VIFs, keep them as long as they may use them, and return them.

use std::time::Duration;

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use staffetta_memory::{Fault, VifCall, VifMethod};

use crate::world::{VIF, World, active};

#[tokio::test]
async fn from_creation_to_active_takes_two_writes_and_the_deletion_one_more_and_nothing_is_read() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    let mut watch = Box::pin(kube::runtime::wait::await_condition(world.pods(), "web", |pod: Option<&_>| {
        let pod: Option<&k8s_openapi::api::core::v1::Pod> = pod;
        let annotations = pod.and_then(|pod| pod.metadata.annotations.as_ref());
        annotations.and_then(|all| all.get(VIF)).is_some_and(|vif| vif.contains("\"active\":true"))
    }));
    tokio::time::timeout(Duration::from_secs(30), &mut watch).await.unwrap().unwrap();
    assert_eq!(world.reads_and_writes("pods"), (0, 2));

    world.end_pod("web").await;
    let gone = kube::runtime::wait::await_condition(world.pods(), "web", |pod: Option<&_>| pod.is_none());
    tokio::time::timeout(Duration::from_secs(30), gone).await.unwrap().unwrap();
    assert_eq!(world.reads_and_writes("pods"), (0, 3));
    assert_eq!((world.ports(), world.requests_of_vifs()), (0, 1));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_has_its_vif_becomes_active_while_others_wait_for_theirs() {
    // One creation at a time, since the pods of one namespace have half of the permits. The second one never ends.
    let world = World::with("[relay]\nmax_concurrency = 2\n[shutdown]\ndrain = 1\n").await;
    for number in 0..5 {
        world.pod(&format!("p{number}"), json!({}), json!({})).await;
    }
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::Delay(Duration::ZERO));
    world.vifs.faults().inject(VifMethod::Request, 10, Fault::Hang);
    let controller = world.controller().await;
    world
        .until("the pod that has its VIF is active", async || {
            let pods = world.pods().list(&ListParams::default()).await.unwrap();
            let vifs = pods.iter().filter_map(|pod| pod.metadata.annotations.as_ref()?.get(VIF));
            vifs.filter(|vif| vif.contains("\"active\":true")).count() == 1
        })
        .await;
    // The creation that never ends keeps it from ending well.
    drop(controller.stop().await);
}

#[tokio::test]
async fn a_terminating_pod_keeps_its_vif_until_its_grace_is_over() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    world.pods().delete("web", &DeleteParams::default()).await.unwrap();
    // Another pod comes and goes meanwhile, so that the controller has seen the deletion of the first.
    world.pod("other", json!({}), json!({})).await;
    world.vif_of("other", active).await;
    assert_eq!(world.ports(), 2);
    world.end_pod("web").await;
    world.until_pod_is_gone("web").await;
    assert_eq!(world.ports(), 1);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn host_network_unscheduled_and_finished_pods_get_none_and_who_finishes_gives_it_back() {
    let world = World::new().await;
    let controller = world.controller().await;
    world.pod("host", json!({}), json!({ "hostNetwork": true })).await;
    world.pod("unscheduled", json!({}), json!({ "nodeName": null })).await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    assert_eq!((world.ports(), world.requests_of_vifs()), (1, 1));

    let finished = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    world.pods().patch_status("web", &PatchParams::default(), &finished).await.unwrap();
    world.until("the finished pod has given its port back", async || world.ports() == 0).await;
    world
        .until("the finished pod carries nothing of ours", async || {
            let meta = world.pods().get("web").await.unwrap().metadata;
            !meta.annotations.unwrap_or_default().contains_key(VIF)
                && meta.finalizers.unwrap_or_default().is_empty()
        })
        .await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn finalizers_and_annotations_of_others_are_left_alone() {
    let world = World::new().await;
    let controller = world.controller().await;
    let others = json!({ "finalizers": ["example.com/mine"], "annotations": { "example.com/mine": "yes" } });
    world.pod("web", others, json!({})).await;
    world.vif_of("web", active).await;
    world.end_pod("web").await;
    world
        .until("our finalizer is gone", async || {
            world.ports() == 0 && {
                let meta = world.pods().get("web").await.unwrap().metadata;
                meta.finalizers == Some(vec!["example.com/mine".into()])
            }
        })
        .await;
    let meta = world.pods().get("web").await.unwrap().metadata;
    assert_eq!(meta.annotations.unwrap()["example.com/mine"], "yes");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_deletion_while_the_controller_was_down_is_made_up_for() {
    let world = World::new().await;
    let controller = world.controller().await;
    for name in ["waits", "forced", "stays"] {
        world.pod(name, json!({}), json!({})).await;
        world.vif_of(name, active).await;
    }
    controller.stop().await.unwrap();

    world.end_pod("waits").await;
    world.change_pod("forced", json!({ "metadata": { "finalizers": null } })).await;
    world.end_pod("forced").await;
    assert!(world.pods().get_opt("waits").await.unwrap().is_some(), "the finalizer holds it");
    assert!(world.pods().get_opt("forced").await.unwrap().is_none(), "somebody took the finalizer away");
    assert_eq!(world.ports(), 3);

    let controller = world.controller().await;
    world.until_pod_is_gone("waits").await;
    world.until("the sweep has found the port without an owner", async || world.ports() == 1).await;
    world.vif_of("stays", active).await;
    assert_eq!(world.requests_of_vifs(), 3);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_was_made_and_not_written_down_is_adopted_after_a_restart_and_not_made_twice() {
    use staffetta_apiserver::{Fault, Requests};
    let world = World::new().await;
    let controller = world.controller().await;
    world.server.faults().inject(Requests::any().verb("patch").resource("pods"), 1000, Fault::Hang);
    world.pod("web", json!({}), json!({})).await;
    world.until("the VIF is made", async || world.ports() == 1).await;
    // It ends with a failure: the write hangs beyond the drain time, as if the process had been killed.
    drop(controller);
    world.server.faults().clear();

    let controller = world.controller().await;
    let vif = world.vif_of("web", active).await;
    assert_eq!((world.ports(), world.requests_of_vifs()), (1, 1));
    assert_eq!(vif["id"], Value::from(world.vifs.network().ports()[0].vif.id.as_str()));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn pods_that_change_all_the_time_get_one_vif_each() {
    let world = World::new().await;
    let controller = world.controller().await;
    for number in 0..20 {
        world.pod(&format!("web{number}"), json!({}), json!({})).await;
        for label in 0..5 {
            let labels = json!({ "metadata": { "labels": { "n": label.to_string() } } });
            world.change_pod(&format!("web{number}"), labels).await;
        }
    }
    for number in 0..20 {
        world.vif_of(&format!("web{number}"), active).await;
    }
    let released = world.vifs.calls().iter().filter(|call| matches!(call, VifCall::Release(..))).count();
    assert_eq!((world.ports(), world.requests_of_vifs(), released), (20, 20, 0));
    controller.stop().await.unwrap();
}
