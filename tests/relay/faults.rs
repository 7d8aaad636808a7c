//! Failures of some objects, which must not affect others.

use std::time::Duration;

use serde_json::json;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, VifMethod};

use crate::world::{VIF, World, active};

#[tokio::test]
async fn a_malformed_or_foreign_annotation_is_left_as_it_is_and_harms_nobody() {
    let world = World::new().await;
    let controller = world.controller().await;
    let foreign = [
        ("not-json", "{"),
        ("no-object", "7"),
        (
            "unknown",
            r#"{"versioned_object.name":"Bogus","versioned_object.namespace":"os_vif","versioned_object.version":"1.0","versioned_object.data":{}}"#,
        ),
    ];
    for (name, value) in foreign {
        world.pod(name, json!({ "annotations": { VIF: value } }), json!({})).await;
    }
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    for (name, value) in foreign {
        let pod = world.pods().get(name).await.unwrap();
        assert_eq!(pod.metadata.annotations.unwrap()[VIF], value, "{name}");
    }
    assert_eq!((world.ports(), world.requests_of_vifs()), (1, 1));

    world.change_pod("not-json", json!({ "metadata": { "annotations": { VIF: null } } })).await;
    world.vif_of("not-json", active).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_without_room_for_our_annotation_keeps_its_port_until_it_ends() {
    let world = World::new().await;
    let controller = world.controller().await;
    let full = "x".repeat(262_144 - 20);
    world.pod("full", json!({ "annotations": { "example.com/full": full } }), json!({})).await;
    world.until("the port was made", async || world.requests_of_vifs() == 1 && world.ports() == 1).await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    assert_eq!((world.requests_of_vifs(), world.ports()), (2, 2));
    world.end_pod("full").await;
    world.until_pod_is_gone("full").await;
    world.until("its port is released", async || world.ports() == 1).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_fails_or_loses_its_answer_makes_nothing_twice() {
    let world = World::with("[relay]\nretry_interval = \"20ms\"\nretry_max_interval = \"100ms\"\n").await;
    let faults = world.vifs.faults();
    let busy = || DriverError::new(Reason::Unavailable, "request a VIF");
    faults.inject(VifMethod::Request, 2, Fault::Fail(busy()));
    faults.inject(VifMethod::Request, 1, Fault::DoneThenFail(busy()));
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    assert_eq!(world.ports(), 1);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_hangs_is_interrupted_and_makes_nothing_twice() {
    let world = World::with("[relay]\nhandler_timeout = \"500ms\"\nretry_interval = \"20ms\"\n").await;
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::DoneThenHang);
    let controller = world.controller().await;
    world.pod("hangs", json!({}), json!({})).await;
    world.until("the call hangs", async || world.requests_of_vifs() == 1).await;
    world.pod("web", json!({}), json!({})).await;
    world.vif_of("web", active).await;
    world.vif_of("hangs", active).await;
    assert_eq!(
        (world.ports(), world.requests_of_vifs()),
        (2, 2),
        "what the lost call made was found by its mark"
    );
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_full_subnet_makes_pods_wait_and_its_mending_lets_them_go_on() {
    let world = World::with("[relay]\nretry_interval = \"20ms\"\nretry_max_interval = \"50ms\"\n").await;
    let subnet = world.vifs.network().options().pod_subnets[0];
    world.vifs.network().set_address_limit(subnet, Some(1));
    let controller = world.controller().await;
    world.pod("first", json!({}), json!({})).await;
    world.vif_of("first", active).await;
    world.pod("second", json!({}), json!({})).await;
    world.until("the second has asked", async || world.requests_of_vifs() >= 3).await;
    assert_eq!(world.ports(), 1);
    world.vifs.network().set_address_limit(subnet, None);
    world.vif_of("second", active).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_write_that_is_answered_late_or_never_is_made_good() {
    use staffetta_apiserver::{Fault, Requests};
    let world = World::with("[relay]\nretry_interval = \"20ms\"\nhandler_timeout = \"2s\"\n").await;
    let patches = || Requests::any().verb("patch").resource("pods").saying("openstack.org/kuryr-vif");
    let late = Fault::Delay(Duration::from_millis(300));
    for fault in [Fault::CutAfter, Fault::status(500), Fault::status(409), late, Fault::Hang] {
        world.server.faults().inject(patches(), 1, fault);
    }
    let controller = world.controller().await;
    for name in ["a", "b", "c"] {
        world.pod(name, json!({}), json!({})).await;
    }
    // A 409 that no change of the object caused: the next event of it is the retry.
    for name in ["a", "b", "c"] {
        world.change_pod(name, json!({ "metadata": { "labels": { "touched": "yes" } } })).await;
    }
    for name in ["a", "b", "c"] {
        world.vif_of(name, active).await;
    }
    assert_eq!(world.server.faults().pending(), 0);
    assert_eq!((world.ports(), world.requests_of_vifs()), (3, 3));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_refused_write_keeps_the_port_for_the_next_attempt() {
    use staffetta_apiserver::{Fault, Requests};
    let world = World::new().await;
    let patches = Requests::any().verb("patch").resource("pods");
    world.server.faults().inject(patches, 1, Fault::status(403));
    let controller = world.controller().await;
    world.pod("web", json!({}), json!({})).await;
    world
        .until("the write is refused", async || {
            world.requests_of_vifs() == 1 && world.server.faults().pending() == 0
        })
        .await;
    world.change_pod("web", json!({ "metadata": { "labels": { "allowed": "now" } } })).await;
    world.vif_of("web", active).await;
    assert_eq!((world.requests_of_vifs(), world.ports()), (1, 1));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_controller_that_never_got_to_its_events_ends_at_once_and_well() {
    let world = World::with("[shutdown]\ndrain = \"1h\"\n").await;
    world.vifs.faults().inject(VifMethod::List, 1000, Fault::Hang);
    world.pod("web", json!({}), json!({})).await;
    let controller = world.starting_controller().await;
    world
        .until("the pods are listed while the marks cannot be read", async || {
            world
                .server
                .requests()
                .iter()
                .any(|request| request.verb == "watch" && request.resource == "pods")
        })
        .await;
    let stopped = tokio::time::timeout(Duration::from_secs(60), controller.stop());
    stopped.await.expect("it does not wait for the drain time").unwrap();
    assert_eq!(world.ports(), 0);
}
