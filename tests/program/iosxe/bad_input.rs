//! Wrong credentials and certificates, pods that a device cannot run, and invalid responses of devices.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::json;
use staffetta_iosxe_device::{Empty, Fault, Gone, Install, Requests, Style, Tls};

use super::world::{World, pod};
use crate::process::eventually;

#[tokio::test]
async fn a_wrong_password_is_reported_at_the_node_and_locks_no_account() {
    let mut world = World::new(1, |options| {
        (options.lock_after, options.lock_time) = (Some(3), Duration::from_secs(3600));
    })
    .await;
    world.described[0]["device"]["password"] = "wrong".into();
    let first = world.controller().await;
    world.until_ready("edge-1", false).await;
    world.create(&pod("web", 1)).await;
    world.until_reported("web", "cannot be read").await;
    assert_eq!((world.device().denied(), world.device().locks()), (1, 0), "one attempt");
    eventually("the node says that it is the password", async || {
        let node = world.nodes.get("edge-1").await.unwrap();
        let reported = serde_json::to_string(&node.status.unwrap().conditions).unwrap();
        assert!(!reported.contains("wrong\""), "{reported}");
        ["401", "credentials", "password", "log in"].iter().any(|word| reported.contains(word))
    })
    .await;
    drop(first);
    world.described[0]["device"]["password"] = "cisco-123".into();
    let _second = world.controller().await;
    world.until_phase("web", "Running").await;
    assert_eq!(world.device().locks(), 0);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_reported_and_taken_once_its_authority_is_named() {
    let mut world = World::new(1, |options| options.tls = Tls::Server).await;
    world.described[0]["device"]["tls"] = json!({ "enabled": true });
    let first = world.controller().await;
    eventually("the node says that it is the certificate", async || {
        let node = world.nodes.get_opt("edge-1").await.unwrap();
        let reported = serde_json::to_string(&node.and_then(|node| node.status)).unwrap();
        reported.to_lowercase().contains("certificate")
    })
    .await;
    drop(first);
    let authority = world.folder().join("ca.pem");
    std::fs::write(&authority, world.site.authority()).unwrap();
    world.described[0]["device"]["tls"]["caFile"] = authority.display().to_string().into();
    let _second = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
}

#[tokio::test]
async fn a_pod_that_a_device_cannot_run_learns_why_and_the_device_hears_nothing_of_it() {
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    let mut registry = pod("registry", 1);
    registry["spec"]["containers"][0]["image"] = "nginx:latest".into();
    let mut large = pod("large", 1);
    large["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "64Gi" } });
    let mut volumes = pod("volumes", 1);
    volumes["spec"]["volumes"] = json!([{ "name": "data", "emptyDir": {} }]);
    volumes["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    for (pod, field) in [(registry, "image"), (large, "memory"), (volumes, "volume")] {
        world.create(&pod).await;
        world.until_reported(pod["metadata"]["name"].as_str().unwrap(), field).await;
    }
    assert_eq!(world.device().apps(), []);
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    for name in ["registry", "large", "volumes", "web"] {
        world.delete(name).await;
        world.until_gone(name).await;
    }
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn a_deadline_that_a_running_pod_gets_is_reported_without_effect_and_the_app_goes_on() {
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    let deadline = Patch::Merge(json!({ "spec": { "activeDeadlineSeconds": 3600 } }));
    world.pods.patch("web", &PatchParams::default(), &deadline).await.unwrap();
    world.until_reported("web", "spec.activeDeadlineSeconds: ").await;
    assert_eq!(world.phase("web").await.as_deref(), Some("Running"));
    world.delete("web").await;
    world.until_gone("web").await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn an_install_that_fails_is_reported_with_the_reason_of_the_device() {
    let world = World::new(1, |_| ()).await;
    world.device().plan_installs("", 1000, Install::Fails("the package is not signed".into()));
    let _controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_reported("web", "the package is not signed").await;
    world.delete("web").await;
    world.until_gone("web").await;
    world.assert_clean();
}

#[tokio::test]
async fn a_device_that_says_not_found_of_an_empty_list_is_an_empty_one() {
    let world = World::new(1, |options| {
        options.style = Style { empty: Empty::NotFound, gone: Gone::DataMissing, ..Style::default() };
    })
    .await;
    let _controller = world.controller().await;
    world.until_ready("edge-1", true).await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    world.delete("web").await;
    world.until_gone("web").await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn states_and_numbers_that_nobody_understands_change_nothing() {
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    world.create(&pod("web", 1)).await;
    world.until_phase("web", "Running").await;
    let data = "/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";
    for (place, value) in [
        ("app-resources/0/memory/0/quota", json!(-5)),
        ("app-resources/0/cpu/0/quota-unit", json!("99999999999999999999999")),
        ("app/0/network-interfaces/network-interface/0/ipv4-address", json!("999.1.1.1")),
    ] {
        let fault = Fault::Replace { pointer: format!("{data}/{place}"), value };
        world.device().inject(Requests::any().path("app-hosting-oper-data"), 3, fault);
        eventually("all of them were met", async || world.device().pending_faults() == 0).await;
        assert_eq!(world.phase("web").await.as_deref(), Some("Running"), "{place}");
    }
    let name = world.device().apps()[0].name.clone();
    world.device().show_state(&name, Some("HIBERNATING"));
    let before = world.device().ledger().entries().len();
    let polled = world.device().counts().requests;
    eventually("it was polled", async || world.device().counts().requests > polled + 20).await;
    assert_eq!(world.device().ledger().entries().len(), before, "nothing is done on a guess");
    assert_ne!(world.phase("web").await.as_deref(), Some("Failed"));
    world.device().show_state(&name, None);
    world.until_phase("web", "Running").await;
    world.assert_done_once();
}

#[tokio::test]
async fn names_of_the_greatest_length_run() {
    let world = World::new(1, |_| ()).await;
    let _controller = world.controller().await;
    let name = "p".repeat(253);
    let mut pod = pod(&name, 1);
    pod["spec"]["containers"][0]["name"] = "c".repeat(63).into();
    world.create(&pod).await;
    world.until_phase(&name, "Running").await;
    world.delete(&name).await;
    world.until_gone(&name).await;
    world.assert_clean();
    world.assert_done_once();
}
