//! Many pods on one device, pods of others, and apps that are nobody's.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use staffetta_driver::Reason;
use staffetta_iosxe::IosXeOptions;
use staffetta_iosxe_device::{Fault, Kept, Requests};

use crate::world::{World, delete, deploy, driver, pod, reported, request, runs, until, web};

#[tokio::test]
async fn pods_that_come_at_the_same_time_are_installed_one_after_the_other_and_get_an_address_each() {
    let world = World::new(|_| ());
    let mut spec = world.spec();
    spec["podCIDR"] = "10.0.0.0/24".into();
    spec["xe"]["networking"]["interface"]["virtualPortGroup"]["dhcp"] = false.into();
    let driver = world.driver_by(&spec);
    let requests: Vec<_> =
        (1..=6).map(|number| request(&pod(&format!("web-{number}"), number, &["app"]))).collect();
    join_all(requests.iter().map(|request| deploy(&*driver, request))).await;
    let pods = driver.list_pods().await.unwrap();
    assert!(pods.len() == 6 && pods.iter().all(runs), "{pods:?}");
    let addresses: std::collections::BTreeSet<_> = pods.iter().filter_map(|pod| pod.ip).collect();
    assert_eq!(addresses.len(), 6);
    join_all(requests.iter().map(async |request| delete(&*driver, &request.owner()).await)).await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn two_pods_of_one_name_are_two_pods() {
    let world = World::new(|_| ());
    let driver = world.driver();
    let (first, second) = (request(&pod("web", 1, &["app"])), request(&pod("web", 2, &["app"])));
    deploy(&*driver, &first).await;
    deploy(&*driver, &second).await;
    assert_eq!(world.device.apps().len(), 2);
    delete(&*driver, &first.owner()).await;
    assert_eq!(reported(&*driver, &first.owner()).await, None);
    assert!(runs(&reported(&*driver, &second.owner()).await.unwrap()));
    delete(&*driver, &second.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn the_pods_of_another_cluster_are_neither_reported_nor_touched() {
    let world = World::new(|_| ());
    let west = driver(IosXeOptions::default(), "west", &world.spec());
    deploy(&*west, &web()).await;
    let east = world.driver();
    assert_eq!(east.list_pods().await.unwrap().len(), 0);
    delete(&*east, &web().owner()).await;
    assert_eq!(world.device.apps().len(), 1);
    assert!(runs(&reported(&*west, &web().owner()).await.unwrap()));
    delete(&*west, &web().owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_app_that_was_configured_already_is_adopted() {
    let world = World::new(|_| ());
    // The configuration of a process that ended before the install.
    let (first, request) = (world.driver(), web());
    until("it is configured", async || {
        let _ = first.deploy_pod(&request).await;
        !world.device.apps().is_empty()
    })
    .await;
    let second = world.driver();
    deploy(&*second, &request).await;
    world.assert_done_once();
    delete(&*second, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_app_that_was_overlooked_is_adopted_when_the_device_says_that_it_exists() {
    let world = World::new(|_| ());
    let (first, request) = (world.driver(), web());
    deploy(&*first, &request).await;
    world.device.reboot(Kept::Configuration, Duration::from_millis(10));
    until("its app is forgotten", async || world.device.apps().iter().all(|app| app.state.is_none())).await;
    let second = world.driver();
    until("it is back", async || second.check_connection().await.is_ok()).await;
    // The next process is told of no configuration, and so makes one.
    let nothing = Fault::Answer { code: 204, body: String::new() };
    world.device.inject(Requests::any().method("GET").path("app-hosting-cfg-data"), 1, nothing);
    let third = world.driver();
    deploy(&*third, &request).await;
    let counts = world.device.counts();
    assert_eq!((world.device.pending_faults(), counts.by_status.get(&409)), (0, Some(&1)));
    assert_eq!(world.device.apps().len(), 1);
    delete(&*third, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn what_the_device_cannot_pull_or_does_not_have_is_refused_before_anything_is_made() {
    let world = World::new(|_| ());
    let driver = world.driver();
    let with = |place: &str, value: serde_json::Value| {
        let mut pod = pod("web", 1, &["app"]);
        *pod.pointer_mut(place).unwrap() = value;
        request(&pod)
    };
    let container = |member: &str, value: serde_json::Value| {
        with("/spec/containers/0", json!({ "name": "app", "image": "flash:/a.tar", member: value }))
    };
    let refused = [
        (with("/spec/containers/0/image", "nginx:latest".into()), "image"),
        (container("resources", json!({ "requests": { "memory": "64Gi" } })), "memory"),
        (container("volumeMounts", json!([{ "name": "data", "mountPath": "/data" }])), "volumeMounts"),
        (container("livenessProbe", json!({ "httpGet": { "port": 80 } })), "livenessProbe"),
        (
            with(
                "/spec",
                json!({ "containers": [{ "name": "app", "image": "flash:/a.tar" }],
            "initContainers": [{ "name": "first", "image": "flash:/a.tar" }] }),
            ),
            "initContainers",
        ),
    ];
    for (request, field) in refused {
        let error = driver.deploy_pod(&request).await.unwrap_err();
        assert!(matches!(error.reason(), Reason::Refused | Reason::Unsupported), "{field}: {error}");
        assert!(!error.transient() && error.to_string().contains(field), "{field}: {error}");
    }
    world.assert_clean();
}
