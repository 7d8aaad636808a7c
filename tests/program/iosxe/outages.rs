//! Devices that cannot be reached, or have lost the apps that ran on them.

use std::time::Duration;

use serde_json::Value;
use staffetta_iosxe_device::{Fault, Install, Kept, Reachability, Requests};

use super::world::{World, pod};
use crate::process::{Process, eventually};

#[tokio::test]
async fn a_device_that_cannot_be_reached_at_the_start_gets_its_pods_when_it_can() {
    let world = World::new(1, |_| ()).await;
    world.device().reach(Reachability::Refuses);
    let controller = world.controller().await;
    world.until_ready("edge-1", false).await;
    assert_eq!(failed_checks(&controller).await, ["edge-1 answers"]);
    world.create(&pod("web", 1)).await;
    world.until_reported("web", "cannot be reached").await;
    assert_ne!(world.phase("web").await.as_deref(), Some("Failed"));
    world.device().reach(Reachability::Up);
    world.until_ready("edge-1", true).await;
    assert!(failed_checks(&controller).await.is_empty());
    world.until_phase("web", "Running").await;
    world.delete("web").await;
    world.until_gone("web").await;
    world.assert_clean();
    world.assert_done_once();
}

/// Returns the checks of the device handler that fail.
async fn failed_checks(controller: &Process) -> Vec<String> {
    let (code, report) = controller.post("/debug/check").await;
    assert_eq!(code, 200);
    let report: Value = serde_json::from_str(&report).unwrap();
    let of_devices =
        report["checks"].as_array().unwrap().iter().filter(|check| check["category"] == "app_hosting");
    let failed = of_devices.filter(|check| check["result"] == "failed");
    failed.map(|check| check["check"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn in_a_long_outage_the_node_is_not_ready_and_its_pods_stay_as_they_are() {
    let world = World::new(2, |_| ()).await;
    let _controller = world.controller().await;
    for device in [1, 2] {
        world.create(&pod(&format!("web-{device}"), device)).await;
        world.until_phase(&format!("web-{device}"), "Running").await;
    }
    for reachability in [Reachability::Refuses, Reachability::Hangs, Reachability::Resets] {
        world.device().reach(reachability);
        world.until_ready("edge-1", false).await;
        // Many polls later.
        let polled = world.devices[1].counts().requests;
        eventually("the other device was polled", async || world.devices[1].counts().requests > polled + 20)
            .await;
        for name in ["web-1", "web-2"] {
            assert_eq!(world.phase(name).await.as_deref(), Some("Running"), "{reachability:?}");
        }
        world.until_ready("edge-2", true).await;
        world.device().reach(Reachability::Up);
        world.until_ready("edge-1", true).await;
    }
    assert_eq!(world.phase("web-1").await.as_deref(), Some("Running"));
    world.assert_done_once();
}

#[tokio::test]
async fn an_outage_in_the_middle_of_an_install_costs_nothing_but_time() {
    let world = World::new(1, |_| ()).await;
    world.device().plan_installs("", 1, Install::Takes(Duration::from_secs(1)));
    let _controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    eventually("the install has begun", async || !world.device().ledger().installs().is_empty()).await;
    world.device().reach(Reachability::Hangs);
    world.until_ready("edge-1", false).await;
    assert_eq!(world.phase("web").await.as_deref(), Some("Pending"));
    world.device().reach(Reachability::Up);
    world.until_phase("web", "Running").await;
    world.assert_done_once();
}

#[tokio::test]
async fn a_pod_that_is_deleted_in_an_outage_goes_when_the_device_is_back() {
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    world.device().reach(Reachability::Refuses);
    world.until_ready("edge-1", false).await;
    world.delete("web").await;
    world.until_reported("web", "the deletion of the pod waits").await;
    assert!(world.pods.get_opt("web").await.unwrap().is_some(), "its app may still run");
    world.device().reach(Reachability::Up);
    world.until_gone("web").await;
    world.assert_clean();
}

#[tokio::test]
async fn pods_whose_apps_a_device_forgot_in_a_reboot_run_again() {
    for kept in [Kept::Apps, Kept::Configuration, Kept::Nothing] {
        let world = World::new(1, |_| ()).await;
        let _controller = world.controller().await;
        world.create(&pod("web", 1)).await;
        world.until_phase("web", "Running").await;
        let uid = world.pods.get("web").await.unwrap().metadata.uid;
        world.device().reboot(kept, Duration::from_secs(3));
        world.until_ready("edge-1", false).await;
        world.until_ready("edge-1", true).await;
        eventually("the app runs", async || {
            world.device().apps().first().is_some_and(staffetta_iosxe_device::HostedApp::runs)
        })
        .await;
        world.until_phase("web", "Running").await;
        assert_eq!(world.pods.get("web").await.unwrap().metadata.uid, uid);
        world.delete("web").await;
        world.until_gone("web").await;
        world.assert_clean();
    }
}

#[tokio::test]
async fn answers_that_are_no_answers_change_nothing() {
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    for fault in [
        Fault::Garbage,
        Fault::Answer { code: 404, body: "<html>Not Found</html>".into() },
        Fault::Answer { code: 502, body: String::new() },
        Fault::Cut,
    ] {
        world.device().inject(Requests::any(), 1, fault.clone());
        eventually("it was met", async || world.device().pending_faults() == 0).await;
        let polled = world.device().counts().requests;
        eventually("it is polled again", async || world.device().counts().requests > polled + 5).await;
        assert_eq!(world.phase("web").await.as_deref(), Some("Running"), "{fault:?}");
    }
    world.until_ready("edge-1", true).await;
    assert_eq!(world.phase("web").await.as_deref(), Some("Running"));
    world.assert_done_once();
}
