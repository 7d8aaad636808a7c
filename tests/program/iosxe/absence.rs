//! Devices whose responses lack what is there, once or while a controller starts, and devices that have lost it.

use std::time::Duration;

use k8s_openapi::api::core::v1::ContainerStatus;
use serde_json::json;
use staffetta_iosxe_device::{Fault, Kept, Requests};

use super::world::{World, pod};
use crate::process::{Process, eventually};

const OPERATIONAL: &str = "app-hosting-oper-data";
const CONFIGURATION: &str = "app-hosting-cfg-data";

/// Responses without any app.
fn nothing() -> [Fault; 3] {
    let answer = |code, body: &str| Fault::Answer { code, body: body.into() };
    [answer(204, ""), answer(200, "{}"), Fault::Refuse { code: 404, tag: "invalid-value".into() }]
}

async fn container(world: &World, name: &str) -> ContainerStatus {
    let status = world.pods.get(name).await.unwrap().status.unwrap();
    status.container_statuses.unwrap().remove(0)
}

/// Waits until the device was read several times more.
async fn read_on(world: &World) {
    let before = world.device().counts().requests;
    eventually("the device is read on", async || world.device().counts().requests > before + 40).await;
}

async fn kill(mut controller: Process) {
    controller.kill("KILL").await;
    assert!(!controller.ends().await.success());
}

#[tokio::test]
async fn one_configuration_without_apps_restarts_no_pod_and_gives_its_address_to_no_other() {
    for (number, fault) in nothing().into_iter().enumerate() {
        let mut world = World::new(1, |_| ()).await;
        let device = &mut world.described[0]["device"];
        device["podCIDR"] = json!("10.0.0.0/24");
        device["xe"] =
            json!({ "networking": { "interface": { "type": "VirtualPortGroup", "virtualPortGroup": {} } } });
        let _controller = world.controller().await;
        world.create(&pod("web", 1)).await;
        world.until_phase("web", "Running").await;
        // The deployment of another pod reads the configuration several times.
        let reads = Requests::any().method("GET").path(CONFIGURATION).after(number);
        world.device().inject(reads, 1, fault.clone());
        world.create(&pod("other", 1)).await;
        world.until_phase("other", "Running").await;
        assert_eq!(world.device().pending_faults(), 0);
        read_on(&world).await;
        let web = container(&world, "web").await;
        assert!(web.ready && web.restart_count == 0, "{fault:?}: {web:?}");
        world.assert_done_once();
        assert!(world.device().ledger().address_conflicts().is_empty(), "{fault:?}");
        let address = async |name| world.pods.get(name).await.unwrap().status.unwrap().pod_ip.unwrap();
        assert_ne!(address("web").await, address("other").await, "{fault:?}");
    }
}

#[tokio::test]
async fn a_controller_that_starts_while_the_device_lists_nothing_installs_nothing_again() {
    for part in [OPERATIONAL, CONFIGURATION] {
        for fault in nothing() {
            let world = World::new(1, |_| ()).await;
            let controller = world.controller().await;
            world.create(&pod("web", 1)).await;
            world.until_phase("web", "Running").await;
            eventually("its status is written", async || container(&world, "web").await.ready).await;
            kill(controller).await;
            world.device().inject(Requests::any().method("GET").path(part), 2, fault.clone());
            let _next = world.controller().await;
            eventually("it was met", async || world.device().pending_faults() == 0).await;
            world.until_ready("edge-1", true).await;
            read_on(&world).await;
            let web = container(&world, "web").await;
            assert!(web.ready && web.restart_count == 0, "{part} {fault:?}: {web:?}");
            world.assert_done_once();
        }
    }
}

#[tokio::test]
async fn a_controller_that_starts_with_a_deleted_pod_leaves_no_app_that_one_list_lacked() {
    let world = World::new(1, |_| ()).await;
    let controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    kill(controller).await;
    world.delete("web").await;
    let body = json!({ "Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data": { "app-globals": { "iox-enabled": true } } });
    let fault = Fault::Answer { code: 200, body: body.to_string() };
    world.device().inject(Requests::any().method("GET").path(OPERATIONAL), 2, fault);
    let _next = world.controller().await;
    world.until_gone("web").await;
    assert_eq!(world.device().pending_faults(), 0);
    world.assert_clean();
}

#[tokio::test]
async fn a_pod_that_is_started_once_fails_when_its_device_has_lost_it_and_the_restart_of_another_is_reported()
{
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    let mut once = pod("once", 1);
    once["spec"]["restartPolicy"] = json!("Never");
    for pod in [&once, &pod("web", 1)] {
        world.create(pod).await;
        world.until_phase(pod["metadata"]["name"].as_str().unwrap(), "Running").await;
    }
    world.device().reboot(Kept::Configuration, Duration::from_secs(1));
    world.until_phase("once", "Failed").await;
    let ended = container(&world, "once").await.state.unwrap().terminated.unwrap();
    assert_eq!((ended.exit_code, ended.reason.as_deref()), (137, Some("ContainerStatusUnknown")));
    world.until_reported("once", "is not started again").await;
    world.until_reported("web", "is being deployed again").await;
    eventually("the other runs again", async || {
        let web = container(&world, "web").await;
        web.ready && web.restart_count == 1
    })
    .await;
    let ledger = world.device().ledger();
    let mut installs: Vec<_> = ledger.installs().values().copied().collect();
    installs.sort_unstable();
    assert_eq!(installs, [1, 2]);
}

#[tokio::test]
async fn container_names_that_collide_and_an_image_that_never_is_are_reported_once_and_nothing_is_sent() {
    let world = World::new(1, |_| ()).await;
    let mut controller = world.controller().await;
    let mut collide = pod("collide", 1);
    let one = collide["spec"]["containers"][0].clone();
    let named = |name: &str| {
        let mut container = one.clone();
        container["name"] = json!(name);
        container
    };
    collide["spec"]["containers"] = json!([named("c17439"), named("c24164")]);
    let mut nowhere = pod("nowhere", 1);
    nowhere["spec"]["containers"][0]["image"] = json!("nginx:latest");
    for pod in [&collide, &nowhere] {
        world.create(pod).await;
    }
    world.until_reported("collide", "`c17439` and `c24164`").await;
    world.until_reported("nowhere", "registries are not supported").await;
    assert_eq!(world.device().apps(), []);
    let reported = controller.says("a pod cannot run as it is specified").await;
    let line = reported.last().unwrap();
    assert!(line.contains("WARN") && !line.contains("again_s"), "{line}");
    let waiting = container(&world, "nowhere").await.state.unwrap().waiting.unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("InvalidImageName"));
}
