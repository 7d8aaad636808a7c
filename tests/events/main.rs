//! Tests of the Kubernetes Events of failing objects, on the embedded server and on a real one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/kubectl.rs"]
mod kubectl;
mod world;

use std::path::Path;

use kubectl::Kubectl;
use serde_json::json;
use staffetta_apiserver::testing::real_kubeconfig;
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, VifMethod};

use crate::world::{Embedded, World, active};

#[tokio::test]
async fn a_pod_over_quota_says_so_and_says_when_it_works_again() {
    let server = Embedded::start().await;
    over_quota(&server.kubeconfig()).await;
    assert_eq!(server.requests_for_events(), 2);
}

#[tokio::test]
async fn one_object_that_fails_a_thousand_times_costs_two_requests_at_most() {
    let server = Embedded::start().await;
    a_thousand_failures(&server.kubeconfig()).await;
    assert!(server.requests_for_events() <= 2);
}

#[tokio::test]
async fn where_nothing_is_wrong_there_is_no_event() {
    let server = Embedded::start().await;
    healthy_churn(&server.kubeconfig()).await;
    assert_eq!(server.requests_for_events(), 0);
}

#[tokio::test]
async fn successes_are_reported_where_asked_for_and_unchanged_objects_say_nothing() {
    let server = Embedded::start().await;
    let world = World::start(&server.kubeconfig(), "[events]\nsuccess = true\n").await;
    let pod = world.pod("web").await;
    world.vif_of("web", active).await;
    let event = world.event_of("web", "Handled").await;
    assert_eq!((event.type_.as_deref(), event.action.as_deref()), (Some("Normal"), Some("vif")));
    assert!(event.note.unwrap().starts_with("handled in "));
    assert_eq!(event.regarding.unwrap().uid, pod.metadata.uid);
    world.touch("web", 1).await;
    let service =
        json!({ "metadata": { "name": "shop" }, "spec": { "ports": [{ "name": "http", "port": 80 }] } });
    world.service(service).await;
    world.until_balanced("shop").await;
    world.event_of("shop", "Handled").await;
    let of_pods = |event: &&k8s_openapi::api::events::v1::Event| {
        event.regarding.as_ref().is_some_and(|regarding| regarding.kind.as_deref() == Some("Pod"))
    };
    let events = world.events().await;
    assert_eq!(events.iter().filter(of_pods).count(), 1, "{events:#?}");
    world.stop().await;
}

#[tokio::test]
async fn switched_off_there_is_none_whatever_goes_wrong() {
    let server = Embedded::start().await;
    let world = World::start(&server.kubeconfig(), "[events]\nenabled = false\n").await;
    let refused = Fault::Fail(DriverError::new(Reason::Refused, "request a port"));
    world.vifs.faults().inject(VifMethod::Request, 1, refused);
    world.pod("web").await;
    world.until("the pod has failed", async || world.requests_of_vifs() == 1).await;
    world.stop().await;
    assert_eq!(server.requests_for_events(), 0);
}

#[tokio::test]
async fn a_server_that_takes_no_events_keeps_nobody_from_working() {
    let server = Embedded::start().await;
    server.refuse_events(403);
    let world = World::start(&server.kubeconfig(), "").await;
    let refused = Fault::Fail(DriverError::new(Reason::Refused, "request a port"));
    world.vifs.faults().inject(VifMethod::Request, 3, refused);
    for name in ["a", "b", "c"] {
        world.pod(name).await;
    }
    world
        .until("all have failed and one refusal was seen", async || {
            world.requests_of_vifs() == 3 && world.counts().await["failed"] == 1
        })
        .await;
    for name in ["a", "b", "c"] {
        world.touch(name, 1).await;
        world.vif_of(name, active).await;
    }
    world.stop().await;
    assert_eq!(server.requests_for_events(), 1, "without the right to it, it is not tried again for a while");
}

#[tokio::test]
async fn a_pod_that_cannot_be_decoded_says_so() {
    let server = Embedded::start().await;
    let world = World::start(&server.kubeconfig(), "").await;
    world.pod("web").await;
    world.change("web", json!({ "spec": { "tolerations": "odd" } })).await;
    let event = world.event_of("web", "ObjectUndecodable").await;
    assert!(event.note.unwrap().starts_with("cannot be decoded as a Pod: invalid type: string"));
    world.change("web", json!({ "spec": { "tolerations": null } })).await;
    world.vif_of("web", active).await;
    world.stop().await;
}

/// A single test, because two controllers would handle each other's pods.
#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn events_are_few_and_right_on_a_real_server() {
    let kubeconfig = real_kubeconfig();
    over_quota(&kubeconfig).await;
    a_thousand_failures(&kubeconfig).await;
    healthy_churn(&kubeconfig).await;
}

async fn over_quota(kubeconfig: &Path) {
    // The first wait is so long that the pod is told to be stuck at once.
    let world = World::start(kubeconfig, "[relay]\nretry_interval = \"45s\"\n").await;
    world.vifs.network().set_port_quota(Some(0));
    let pod = world.pod("web").await;
    let event = world.event_of("web", "QuotaExceeded").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    let note = event.note.unwrap();
    assert!(note.starts_with("request a VIF: ") && note.contains("the quota is used up"), "{note}");
    assert!(note.contains("; attempt 2 follows in "), "{note}");
    let regarding = event.regarding.unwrap();
    assert_eq!((regarding.uid, regarding.api_version), (pod.metadata.uid, Some("v1".to_owned())));
    assert_eq!(event.action.as_deref(), Some("vif"));
    assert_eq!(event.reporting_controller.as_deref(), Some("staffetta.dev/controller"));
    let kubectl = Kubectl::find(kubeconfig, &world.namespace);
    let described = kubectl.run(&["describe", "pod", "web"]).await;
    let line = described.lines().find(|line| line.contains("QuotaExceeded")).unwrap_or(&described);
    assert!(line.contains("staffetta.dev/controller") && line.contains("the quota is used up"), "{line}");

    world.vifs.network().set_port_quota(None);
    world.touch("web", 1).await;
    world.vif_of("web", active).await;
    let event = world.event_of("web", "Recovered").await;
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    let note = event.note.unwrap();
    // The change may come within the second in which no other creation is tried.
    let attempts = ["handled again after 1 failed attempt in ", "handled again after 2 failed attempts in "];
    assert!(attempts.iter().any(|attempts| note.starts_with(attempts)), "{note}");
    assert_eq!(world.events().await.len(), 2);
    world.stop().await;
}

async fn a_thousand_failures(kubeconfig: &Path) {
    let world = World::start(kubeconfig, "").await;
    let refused = Fault::Fail(DriverError::new(Reason::Refused, "request a port"));
    world.vifs.faults().inject(VifMethod::Request, usize::from(u16::MAX), refused);
    world.pod("web").await;
    let mut touched = 0;
    while world.requests_of_vifs() < 1000 {
        touched += 1;
        world.touch("web", touched).await;
    }
    world.event_of("web", "DriverRefused").await;
    let counts = world.counts().await;
    assert!(counts["created"] == 1 && counts["updated"] <= 1, "{counts:?}");
    assert_eq!(counts["dropped"] + counts["refused"] + counts["failed"], 0, "{counts:?}");
    assert_eq!(world.events().await.len(), 1);
    world.stop().await;
}

async fn healthy_churn(kubeconfig: &Path) {
    let world = World::start(kubeconfig, "").await;
    let service =
        json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "name": "http", "port": 80 }] } });
    world.service(service).await;
    let names: Vec<_> = (0..20).map(|number| format!("web-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    for name in &names {
        world.vif_of(name, active).await;
        world.touch(name, 1).await;
        world.end_pod(name).await;
    }
    world.until("all ports are given back", async || world.vifs.network().ports().is_empty()).await;
    world.until_balanced("web").await;
    let counts = world.counts().await;
    assert!(counts.len() == 5 && counts.values().all(|count| *count == 0), "{counts:?}");
    assert!(world.events().await.is_empty());
    world.stop().await;
}
