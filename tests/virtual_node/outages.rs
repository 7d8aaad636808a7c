//! Devices that cannot be reached, hang, reject requests or lose their state.

use std::time::Duration;

use serde_json::json;
use staffetta_driver::Reason;

use crate::world::{World, condition};

#[tokio::test]
async fn an_outage_makes_the_node_not_ready_and_leaves_its_pods_as_they_are() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    let before = world.pod_in("web", "Running").await;
    machine.failure(Some(Reason::Unavailable));
    let node = world.node_ready("r1", "False").await;
    let (_, reason, message) = condition(&node, "Ready").unwrap();
    assert!(reason == "MachineUnreachable" && message.contains("as ordered"), "{reason} {message}");
    world.until_reported("MachineUnreachable").await;
    let renewed = world.lease("r1").await.unwrap().spec.unwrap().renew_time;
    world
        .until("the lease goes on", async || {
            world.lease("r1").await.unwrap().spec.unwrap().renew_time != renewed
        })
        .await;
    let during = world.pods().get("web").await.unwrap();
    assert_eq!(before.metadata.resource_version, during.metadata.resource_version);

    // Others hold the pod for unready meanwhile, as the cluster's node controller does.
    let unready = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let params = kube::api::PatchParams::default();
    world.pods().patch_status("web", &params, &kube::api::Patch::Strategic(unready)).await.unwrap();
    world.pod("late", json!({})).await;
    let reported = world.until_reported("NodeUnreachable").await;
    assert!(reported.contains("r1 cannot be reached"), "{reported}");
    machine.failure(None);
    world.node_ready("r1", "True").await;
    world.pod_in("late", "Running").await;
    world
        .until("the pod is ready again", async || {
            let status = world.pods().get("web").await.unwrap().status.unwrap();
            status
                .conditions
                .unwrap()
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
        .await;
    assert_eq!(machine.ledger(), ["install web flash:/a.tar", "install late flash:/a.tar"]);
    world.until_reported("MachineReached").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_is_deleted_during_an_outage_goes_when_its_machine_is_rid_of_it() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    machine.failure(Some(Reason::Unavailable));
    world.node_ready("r1", "False").await;
    world.delete("web").await;
    let reported = world.until_reported("NodeUnreachable").await;
    assert!(reported.contains("r1 cannot be reached; the deletion of the pod waits"), "{reported}");
    assert!(world.pods().get_opt("web").await.unwrap().is_some());
    machine.failure(None);
    world.until_pod_is_gone("web").await;
    assert!(machine.running().is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_was_deleted_by_force_is_removed_from_its_machine_all_the_same() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    machine.failure(Some(Reason::Unavailable));
    world.node_ready("r1", "False").await;
    let by_force = kube::api::DeleteParams::default().grace_period(0);
    world.pods().delete("web", &by_force).await.unwrap();
    world.until_pod_is_gone("web").await;
    machine.failure(None);
    world.until("nothing is left", async || machine.running().is_empty()).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_forgets_its_pods_gets_them_again_and_none_fails() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    let before = world.pod_in("web", "Running").await;
    machine.forget();
    world
        .until("it is installed again", async || machine.running().len() == 1 && machine.ledger().len() == 2)
        .await;
    world
        .until("its container was started again", async || {
            let status = world.pods().get("web").await.unwrap().status.unwrap();
            assert_eq!(status.phase.as_deref(), Some("Running"), "it never left that phase");
            let container = &status.container_statuses.unwrap()[0];
            container.ready && container.restart_count == 1
        })
        .await;
    let after = world.pods().get("web").await.unwrap();
    assert_eq!(before.status.unwrap().start_time, after.status.unwrap().start_time);
    world.until_reported("LostByMachine").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_refuses_us_is_asked_seldom() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    machine.failure(Some(Reason::Refused));
    let controller = world.controller().await;
    for name in ["a", "b", "c"] {
        world.pod(name, json!({})).await;
    }
    world.node_ready("r1", "False").await;
    let (reads, began) = (machine.reads(), std::time::Instant::now());
    world.until("it is asked again", async || machine.reads() >= reads + 3).await;
    // 100, 200 and 400 ms after the attempts before, each up to a tenth sooner.
    assert!(began.elapsed() > Duration::from_millis(500), "{:?}", began.elapsed());
    machine.failure(None);
    world.pod_in("a", "Running").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_hangs_delays_no_other_and_not_its_own_lease() {
    let world = World::new().await;
    let (slow, quick) = (world.machines.add("r1"), world.machines.add("r2"));
    slow.hang();
    let controller = world.controller().await;
    world.node_ready("r1", "True").await;
    world.node_ready("r2", "True").await;
    for pod in 0..10 {
        world.pod(&format!("slow{pod}"), json!({})).await;
    }
    for pod in 0..3 {
        world.pod(&format!("quick{pod}"), json!({ "nodeName": "r2" })).await;
    }
    for pod in 0..3 {
        world.pod_in(&format!("quick{pod}"), "Running").await;
    }
    assert_eq!(quick.running().len(), 3);
    let renewed = world.lease("r1").await.unwrap().spec.unwrap().renew_time;
    world
        .until("the lease goes on", async || {
            world.lease("r1").await.unwrap().spec.unwrap().renew_time != renewed
        })
        .await;
    drop(controller);
}
