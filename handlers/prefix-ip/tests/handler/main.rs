//! The handler as a cluster sees it: watched objects go in, patches come out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod evidence;
mod laws;
mod world;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::{Value, from_value, json};
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, MemoryPrefixes, PrefixMethod};
use staffetta_prefix_ip::address::PRIVATE_IPV4_ADDRESS;
use staffetta_prefix_ip::handler::PrefixIpHandler;
use staffetta_prefix_ip::source::AddressReady;
use tokio::time::sleep;

use world::*;

#[tokio::test(start_paused = true)]
async fn a_node_gets_its_capacity_and_a_pod_the_lowest_address_of_its_first_prefix() {
    let world = World::new(&cloud(), prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    assert_eq!(world.written(), ["144"]);
    run_until_idle().await;
    let calls = world.cloud.calls();
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    assert_eq!(world.written(), ["10.0.0.16/32"]);
    assert_eq!(world.cloud.calls(), calls, "a warm address needs no call of the provider");
}

#[tokio::test(start_paused = true)]
async fn without_the_label_or_the_option_nothing_is_written() {
    let world = World::new(&cloud(), prefixes()).await;
    world.feed.added(node("linux")).await.unwrap();
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    assert!(world.written().is_empty());
    let mut auto = node("windows");
    auto.metadata.labels.as_mut().unwrap().insert("eks.amazonaws.com/compute-type".into(), "auto".into());
    world.feed.modified(auto).await.unwrap();
    assert!(world.written().is_empty(), "EKS Auto Mode assigns addresses itself");
    let world = World::new(&cloud(), json!({ "enable-windows-ipam": "maybe" })).await;
    world.feed.added(node("windows")).await.unwrap();
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    assert!(world.written().is_empty());
    assert_eq!(world.cloud.calls().interfaces, 0);
}

#[tokio::test(start_paused = true)]
async fn without_prefix_delegation_a_pod_gets_a_single_address_with_the_length_of_the_subnet() {
    let world = World::new(&cloud(), json!({ "enable-windows-ipam": "true" })).await;
    world.feed.added(node("windows")).await.unwrap();
    assert_eq!(world.written(), ["9"]);
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    assert_eq!(world.written(), ["10.0.0.5/24"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_waits_while_the_provider_throttles_and_is_woken_as_soon_as_there_is_an_address() {
    let world = World::new(&cloud(), prefixes()).await;
    let throttled = DriverError::new(Reason::Unavailable, "assign").after(Duration::from_secs(20));
    world.cloud.faults().inject(PrefixMethod::Assign, 1, Fault::Fail(throttled));
    world.feed.added(node("windows")).await.unwrap();
    let web = pod("web", "Pending", "");
    run_until_idle().await;
    world.feed.added(web.clone()).await.unwrap();
    world.feed.modified(web.clone()).await.unwrap();
    let text = "the node win has no free address: the provider assigns no more; see the Events of the node";
    assert_eq!(*world.notes.lock().unwrap(), [format!("web NoAddress: {text}")], "one Event for one reason");
    run_until_idle().await;
    world.triggered.lock().unwrap().clear();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(*world.triggered.lock().unwrap(), [""; 0], "nothing is asked again meanwhile");
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.triggered.lock().unwrap().last().unwrap(), "web");
    world.feed.trigger(AddressReady::of(&web)).await.unwrap();
    assert_eq!(world.written(), ["144", "10.0.0.16/32"]);
    world.feed.trigger(AddressReady::of(&web)).await.unwrap();
    assert!(world.written().is_empty(), "it waits no more");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_came_before_its_node_is_woken_with_the_node_and_with_the_switch() {
    let world = World::new(&cloud(), json!({ "enable-windows-prefix-delegation": "true" })).await;
    let web = pod("web", "Pending", "");
    world.feed.added(web.clone()).await.unwrap();
    world.feed.added(node("windows")).await.unwrap();
    assert!(world.written().is_empty());
    world.feed.modified(options(&prefixes())).await.unwrap();
    run_until_idle().await;
    assert_eq!(std::mem::take(&mut *world.triggered.lock().unwrap()), ["win"]);
    world.feed.modified(node("windows")).await.unwrap();
    run_until_idle().await;
    assert!(world.triggered.lock().unwrap().contains(&"web".to_owned()));
    world.feed.trigger(AddressReady::of(&web)).await.unwrap();
    assert_eq!(world.written(), ["144", "10.0.0.16/32"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_loses_its_label_or_the_function_advertises_nothing_and_gives_its_free_blocks_back() {
    for unlabelled in [true, false] {
        let world = World::new(&cloud(), prefixes()).await;
        world.feed.added(node("windows")).await.unwrap();
        run_until_idle().await;
        let mut shown = node(if unlabelled { "linux" } else { "windows" });
        let capacity = [(PRIVATE_IPV4_ADDRESS.to_owned(), Quantity("144".to_owned()))];
        shown.status.get_or_insert_default().capacity = Some(capacity.into());
        if !unlabelled {
            world.feed.modified(options(&json!({ "enable-windows-ipam": "false" }))).await.unwrap();
        }
        world.feed.modified(shown).await.unwrap();
        run_until_idle().await;
        assert_eq!(world.written(), ["144", "0"]);
        assert!(world.cloud.blocks().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_address_of_an_ended_or_deleted_pod_is_handed_out_again_only_after_its_cool_down() {
    let world = World::new(&cloud(), prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    for name in ["a", "b", "c"] {
        world.feed.added(pod(name, "Pending", "")).await.unwrap();
    }
    world.feed.modified(pod("a", "Succeeded", "10.0.0.16/32")).await.unwrap();
    world.feed.deleted(pod("b", "Running", "10.0.0.17/32")).await.unwrap();
    world.feed.missed(&pod("c", "Running", "10.0.0.18/32")).await.unwrap();
    world.feed.added(pod("d", "Pending", "")).await.unwrap();
    assert_eq!(world.written()[4], "10.0.0.19/32");
    sleep(Duration::from_secs(31)).await;
    for name in ["e", "f", "g"] {
        world.feed.added(pod(name, "Pending", "")).await.unwrap();
    }
    assert_eq!(world.written(), ["10.0.0.16/32", "10.0.0.17/32", "10.0.0.18/32"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_pod_keeps_its_address_and_a_forged_annotation_is_replaced() {
    let cloud = cloud();
    let world = World::new(&cloud, prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    let restarted = World::new(&cloud, prefixes()).await;
    let mut running = pod("web", "Running", "10.0.0.16/32");
    running.status.as_mut().unwrap().pod_ip = Some("10.0.0.16".to_owned());
    // The indexes are complete before the handler gets the node.
    restarted.feed.added(running.clone()).await.unwrap();
    restarted.feed.added(pod("forged", "Pending", "10.0.0.16/32")).await.unwrap();
    restarted.feed.added(node("windows")).await.unwrap();
    restarted.feed.modified(running).await.unwrap();
    assert_eq!(restarted.written(), ["144"], "the annotation is right");
    let text = "the pod forged uses or claims 10.0.0.16, the address of the pod web";
    let notes = std::mem::take(&mut *restarted.notes.lock().unwrap());
    assert!(notes.len() == 1 && notes[0].starts_with(&format!("win AddressShared: {text}")), "{notes:?}");
    sleep(Duration::from_secs(31)).await;
    restarted.feed.modified(pod("forged", "Pending", "10.0.0.16/32")).await.unwrap();
    assert_eq!(restarted.written(), ["10.0.0.17/32"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_an_address_is_not_handed_out_that_a_pod_shows_before_its_event_comes() {
    let cloud = cloud();
    let world = World::new(&cloud, prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    assert_eq!(world.written(), ["144", "10.0.0.16/32"]);
    let restarted = World::new(&cloud, prefixes()).await;
    // The last write of the process that led before takes effect now, and the watch lags.
    restarted.published.lock().unwrap().push("10.0.0.16/32");
    restarted.feed.added(pod("web", "Pending", "")).await.unwrap();
    restarted.feed.added(node("windows")).await.unwrap();
    sleep(Duration::from_secs(31)).await;
    restarted.feed.added(pod("other", "Pending", "")).await.unwrap();
    assert_eq!(restarted.written(), ["144", "10.0.0.17/32"]);
    restarted.feed.modified(pod("web", "Pending", "10.0.0.16/32")).await.unwrap();
    let held = restarted.table.address_of("win", &"web".into()).map(|held| held.address.to_string());
    assert_eq!(held.as_deref(), Some("10.0.0.16"), "the process that led before has given it to the pod");
    assert!(restarted.written().iter().all(|written| written == "10.0.0.16/32"));
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_an_address_is_free_when_no_pod_shows_it_any_more() {
    let cloud = cloud();
    let world = World::new(&cloud, prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    let restarted = World::new(&cloud, prefixes()).await;
    restarted.published.lock().unwrap().push("10.0.0.16/32");
    restarted.feed.added(node("windows")).await.unwrap();
    sleep(Duration::from_secs(31)).await;
    restarted.published.lock().unwrap().clear();
    restarted.feed.added(pod("other", "Pending", "")).await.unwrap();
    sleep(Duration::from_secs(41)).await;
    restarted.feed.added(pod("third", "Pending", "")).await.unwrap();
    assert_eq!(restarted.written(), ["144", "10.0.0.17/32", "10.0.0.16/32"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_read_that_is_late_takes_no_address_from_a_pod() {
    let cloud = cloud();
    cloud.freeze_reads(true);
    let first = World::new(&cloud, prefixes()).await;
    first.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    first.feed.added(pod("starting", "Pending", "")).await.unwrap();
    first.feed.added(pod("running", "Pending", "")).await.unwrap();
    assert_eq!(first.written(), ["144", "10.0.0.16/32", "10.0.0.17/32"]);
    let second = World::new(&cloud, prefixes()).await;
    let mut running = pod("running", "Running", "10.0.0.17/32");
    running.status.as_mut().unwrap().pod_ip = Some("10.0.0.17".to_owned());
    second.feed.added(pod("starting", "Pending", "10.0.0.16/32")).await.unwrap();
    let _ = second.feed.added(running.clone()).await;
    second.feed.added(node("windows")).await.unwrap();
    second.feed.modified(pod("starting", "Pending", "10.0.0.16/32")).await.unwrap();
    second.feed.modified(running.clone()).await.unwrap();
    second.feed.added(pod("new", "Pending", "")).await.unwrap();
    cloud.freeze_reads(false);
    second.triggered.lock().unwrap().clear();
    sleep(Duration::from_secs(20)).await;
    assert!(second.triggered.lock().unwrap().contains(&"running".to_owned()));
    for (name, address) in [("starting", "10.0.0.16"), ("running", "10.0.0.17")] {
        let held = second.table.address_of("win", &name.into());
        assert_eq!(held.map(|held| held.address.to_string()).as_deref(), Some(address), "{name}");
    }
    second.feed.modified(pod("starting", "Pending", "10.0.0.16/32")).await.unwrap();
    second.feed.modified(running).await.unwrap();
    second.feed.modified(pod("new", "Pending", "")).await.unwrap();
    let written = second.written();
    assert!(written.iter().all(|value| value != "10.0.0.16/32" && value != "10.0.0.17/32"), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_with_an_address_that_it_was_not_given_is_reported_and_takes_none() {
    let world = World::new(&cloud(), prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    let error = world.feed.added(pod("web", "Running", "192.0.2.1/32")).await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("ForeignAddress", false));
    assert_eq!(world.table.address_of("win", &"web".into()), None);
    world.feed.modified(node("linux")).await.unwrap();
    world.feed.added(pod("db", "Running", "")).await.unwrap();
    world.triggered.lock().unwrap().clear();
    world.feed.modified(node("windows")).await.unwrap();
    run_until_idle().await;
    assert_eq!(*world.triggered.lock().unwrap(), ["db"], "its node may serve it now");
    world.feed.trigger(AddressReady::of(&pod("db", "Running", ""))).await.unwrap();
    world.triggered.lock().unwrap().clear();
    world.feed.modified(node("windows")).await.unwrap();
    run_until_idle().await;
    assert_eq!(*world.triggered.lock().unwrap(), [""; 0], "it waits no more");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_the_webhook_did_not_change_gets_an_address_and_an_event_that_says_so_once() {
    let world = World::new(&cloud(), prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    let pod = |name: &str, selector: Value| -> Pod {
        let spec = json!({ "nodeName": "win", "nodeSelector": selector, "containers": [{ "name": "c" }] });
        let metadata = json!({ "namespace": "shop", "name": name, "uid": name, "resourceVersion": "1" });
        from_value(json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Pending" } })).unwrap()
    };
    let windows = json!({ "kubernetes.io/os": "windows" });
    world.feed.added(pod("web", windows.clone())).await.unwrap();
    world.feed.added(pod("other", json!({}))).await.unwrap();
    assert_eq!(world.written(), ["144", "10.0.0.16/32"]);
    let notes = std::mem::take(&mut *world.notes.lock().unwrap());
    assert!(matches!(&notes[..], [note] if note.starts_with("web AddressNotRequested: ")), "{notes:?}");
    let mut changed = pod("web", windows);
    changed.metadata.annotations =
        Some([(PRIVATE_IPV4_ADDRESS.to_owned(), "10.0.0.16/32".to_owned())].into());
    changed.metadata.resource_version = Some("2".to_owned());
    world.feed.modified(changed).await.unwrap();
    assert!(world.notes.lock().unwrap().is_empty(), "it is told once");
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_machine_does_not_exist_is_reported_with_its_id() {
    let cloud = cloud();
    cloud.remove_machine(&"i-1".into());
    let world = World::new(&cloud, prefixes()).await;
    let error = world.feed.added(node("windows")).await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("MachineNotFound", true));
    assert!(error.to_string().contains("i-1"));
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    assert!(world.written().is_empty());
    let notes = std::mem::take(&mut *world.notes.lock().unwrap());
    let text = "web NoAddress: the node win has no free address: its network interface was not read yet";
    assert!(matches!(&notes[..], [note] if note.starts_with(text)), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn switching_the_mode_changes_the_capacity_and_keeps_the_addresses_of_running_pods() {
    let world = World::new(&cloud(), json!({ "enable-windows-ipam": "true" })).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    run_until_idle().await;
    world.triggered.lock().unwrap().clear();
    world.feed.modified(options(&prefixes())).await.unwrap();
    run_until_idle().await;
    let triggered = std::mem::take(&mut *world.triggered.lock().unwrap());
    assert_eq!(triggered, ["win", "win"], "for the options, and for the slots that are free meanwhile");
    world.feed.modified(node("windows")).await.unwrap();
    world.feed.modified(pod("web", "Running", "10.0.0.5/24")).await.unwrap();
    world.feed.added(pod("db", "Pending", "")).await.unwrap();
    let written = world.written();
    assert_eq!(written, ["9", "10.0.0.5/24", "128", "10.0.0.16/32"], "one slot is still in use");
}

#[tokio::test(start_paused = true)]
async fn options_that_are_not_used_are_reported_on_the_config_map() {
    let options =
        json!({ "enable-windows-ipam": "true", "warm-ip-target": "many", "minimum-ip-target": "3" });
    let world = World::new(&cloud(), options).await;
    let text = "`warm-ip-target` is not a number from 0 to 65535; the default is used";
    assert_eq!(*world.notes.lock().unwrap(), [format!("amazon-vpc-cni OptionNotUsed: {text}")]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_running_pod_keeps_the_address_that_it_uses_whatever_its_annotation_says() {
    let cloud = cloud();
    let world = World::new(&cloud, prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    let restarted = World::new(&cloud, prefixes()).await;
    let mut forged = pod("web", "Running", "10.0.0.20/32");
    forged.status.as_mut().unwrap().pod_ip = Some("10.0.0.16".to_owned());
    restarted.feed.added(forged.clone()).await.unwrap();
    restarted.feed.added(node("windows")).await.unwrap();
    restarted.feed.modified(forged).await.unwrap();
    assert_eq!(restarted.written(), ["144", "10.0.0.16/32"]);
    sleep(Duration::from_secs(31)).await;
    restarted.feed.added(pod("db", "Pending", "")).await.unwrap();
    assert_eq!(restarted.written(), ["10.0.0.17/32"]);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_capacity_and_that_a_pod_would_wait() {
    let cloud = Arc::new(MemoryPrefixes::default());
    // A /27 without its reserved addresses has no free prefix.
    cloud.add_subnet(&"subnet-1".into(), "10.0.0.0/27".parse().unwrap());
    cloud.add_machine(&"i-1".into(), &"subnet-1".into(), 10, true);
    let world = World::start(&cloud, prefixes(), PrefixIpHandler::dry_run).await;
    world.feed.added(node("windows")).await.unwrap();
    assert_eq!(world.written(), ["144"]);
    run_until_idle().await;
    let error = world.feed.added(pod("web", "Pending", "")).await.unwrap_err();
    assert!(error.to_string().starts_with("the node win has no free address: the provider"), "{error}");
    assert!(!error.transient(), "a dry run does not wait");
}
