//! The creation and deletion of pods.

use std::time::Duration;

use serde_json::json;
use staffetta_iosxe_device::{Effect, Fault, Install, Options, Requests, StopsTo};

use super::world::{World, pod};
use crate::process::eventually;

#[tokio::test]
async fn a_pod_runs_as_an_app_with_an_address_and_leaves_nothing() {
    let world = World::new(1, |_| ()).await;
    let mut controller = world.controller().await;
    world.until_ready("edge-1", true).await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    eventually("the pod has the address of the app", async || {
        let status = world.pods.get("web").await.unwrap().status.unwrap();
        let address = world.device().apps()[0].address.map(|address| address.to_string());
        status.pod_ip.is_some() && status.pod_ip == address
    })
    .await;
    let status = world.pods.get("web").await.unwrap().status.unwrap();
    let container = &status.container_statuses.unwrap()[0];
    assert!(
        container.ready && container.container_id.as_ref().unwrap().starts_with("cisco://"),
        "{container:?}"
    );
    let node = world.nodes.get("edge-1").await.unwrap();
    assert_eq!(node.metadata.labels.unwrap()["platform"], "cisco-ios-xe");
    world.delete("web").await;
    world.until_gone("web").await;
    world.assert_clean();
    world.assert_done_once();
    assert!(controller.terminate().await.success());
}

#[tokio::test]
async fn a_pod_that_is_over_gives_what_it_had_reserved_to_the_next_one() {
    // The device has room for one of them.
    let room = |options: &mut Options| options.resources.memory_mb = 1000;
    let world = World::new(1, room).await;
    let _controller = world.controller().await;
    for name in ["first", "second"] {
        let mut job = pod(name, 1);
        job["spec"]["restartPolicy"] = json!("Never");
        job["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "600Mi" } });
        world.create(&job).await;
        world.until_phase(name, "Running").await;
        let app = world.device().apps().into_iter().find(|app| app.label("cisco.vk/pod-name") == Some(name));
        assert!(world.device().crash(&app.unwrap().name));
        world.until_phase(name, "Succeeded").await;
    }
    eventually("nothing of them is left on the device", async || world.device().apps().is_empty()).await;
    world.assert_clean();
    assert!(world.device().ledger().installs().values().all(|count| *count == 1));
    assert_eq!(world.phase("first").await.as_deref(), Some("Succeeded"));
}

#[tokio::test]
async fn an_image_that_changes_runs_although_its_pod_is_not_restarted_and_a_stop_leaves_the_app_stopped() {
    for policy in ["Never", "OnFailure"] {
        let world = World::new(1, |options| {
            options.stops_to = StopsTo::Stopped;
            // The controller sees the stopped app several times.
            options.times.deactivate = Duration::from_millis(500);
        })
        .await;
        let _controller = world.controller().await;
        let mut job = pod("job", 1);
        job["spec"]["restartPolicy"] = json!(policy);
        world.create(&job).await;
        world.until_phase("job", "Running").await;
        let image = json!({ "spec": { "containers": [{ "name": "app", "image": "flash:/other.tar" }] } });
        let patch = kube::api::Patch::Strategic(image);
        world.pods.patch("job", &kube::api::PatchParams::default(), &patch).await.unwrap();
        eventually("the other image runs", async || {
            let phase = world.phase("job").await;
            assert_eq!(phase.as_deref(), Some("Running"));
            let apps = world.device().apps();
            apps.iter().any(|app| app.runs() && app.package.as_deref() == Some("flash:/other.tar"))
        })
        .await;
        eventually("its status says so", async || {
            let status = world.pods.get("job").await.unwrap().status.unwrap();
            let app = &status.container_statuses.unwrap()[0];
            app.ready && app.image == "flash:/other.tar"
        })
        .await;
        assert!(world.device().crash(&world.device().apps()[0].name));
        world.until_phase("job", "Succeeded").await;
    }
}

#[tokio::test]
async fn two_pods_of_one_name_one_after_the_other_are_two_apps() {
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    for _ in 0..2 {
        world.create(&pod("web", 1)).await;
        world.until_phase("web", "Running").await;
        world.delete("web").await;
        world.until_gone("web").await;
    }
    assert_eq!(world.device().ledger().installs().len(), 2);
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_is_installed_leaves_nothing() {
    let world = World::new(1, |_| ()).await;
    world.device().plan_installs("", 1, Install::Takes(Duration::from_secs(1)));
    let _controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    eventually("the install has begun", async || !world.device().ledger().installs().is_empty()).await;
    world.delete("web").await;
    world.until_gone("web").await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn a_pod_whose_app_the_device_starts_while_it_is_removed_leaves_nothing() {
    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_millis(400);
    // The operation for the state that was read reaches the device when the app runs.
    for (operation, activate, start) in [("uninstall", LONG, SHORT), ("deactivate", SHORT, LONG)] {
        let world = World::new(1, |options| {
            (options.times.activate, options.times.start) = (activate, start);
        })
        .await;
        world.device().plan_installs("", 1, Install::Takes(Duration::from_secs(1)));
        world.device().inject(Requests::any().operation(operation), 1, Fault::Delay(LONG + 2 * SHORT));
        let _controller = world.controller().await;
        world.create(&pod("web", 1)).await;
        eventually("the install has begun", async || !world.device().ledger().installs().is_empty()).await;
        world.delete("web").await;
        world.until_gone("web").await;
        assert_eq!(world.device().pending_faults(), 0, "the {operation} was delayed");
        world.assert_clean();
        world.assert_done_once();
    }
}

#[tokio::test]
async fn a_slow_install_on_one_device_delays_no_other() {
    let world = World::new(2, |_| ()).await;
    world.device().plan_installs("", 1, Install::Takes(Duration::from_secs(3600)));
    let _controller = world.controller().await;
    world.create(&pod("slow", 1)).await;
    eventually("the install has begun", async || !world.device().ledger().installs().is_empty()).await;
    for number in 0..3 {
        world.create(&pod(&format!("web-{number}"), 2)).await;
    }
    for number in 0..3 {
        world.until_phase(&format!("web-{number}"), "Running").await;
    }
    assert_eq!(world.phase("slow").await.as_deref(), Some("Pending"));
}

#[tokio::test]
async fn an_app_whose_pod_is_gone_is_removed_and_one_of_others_is_not() {
    let world = World::new(1, |_| ()).await;
    let mut first = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    first.kill("KILL").await;
    first.ends().await;
    let stranger = "someone_else";
    configure(&world, stranger).await;
    let at_once = kube::api::DeleteParams::default().grace_period(0);
    world.pods.delete("web", &at_once).await.unwrap();
    world.until_gone("web").await;
    let _second = world.controller().await;
    eventually("the orphan is removed", async || world.device().apps().len() == 1).await;
    assert_eq!(world.device().apps()[0].name, stranger);
    assert!(world.device().ledger().of(stranger).eq([&Effect::Configured]));
}

/// An app that was made by hand.
async fn configure(world: &World, name: &str) {
    let url = format!(
        "{}/restconf/data/Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data/apps",
        world.device().url()
    );
    let body = json!({ "Cisco-IOS-XE-app-hosting-cfg:app": [{ "application-name": name }] });
    let asked = reqwest::Client::new()
        .post(url)
        .basic_auth("admin", Some("cisco-123"))
        .header("Content-Type", "application/yang-data+json")
        .body(body.to_string());
    assert_eq!(asked.send().await.unwrap().status(), 201);
}
