//! Tests that a living pod keeps its address whatever was lost, and that no healthy pod is reported.

use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod, PodIP};
use serde_json::{from_value, json};
use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, PrefixMethod};
use staffetta_prefix_ip::source::{AddressReady, NodeRefresh};
use tokio::time::sleep;

use crate::world::*;

/// Returns a running pod with an annotation, unless that is empty, and an address in its status.
pub(crate) fn running(name: &str, annotation: &str, address: &str) -> Pod {
    let mut pod = pod(name, "Running", annotation);
    let status = pod.status.as_mut().unwrap();
    status.pod_ip = Some(address.to_owned());
    status.pod_ips = Some(vec![PodIP { ip: address.to_owned() }]);
    pod
}

/// Returns another Node object of the machine of [`node`].
pub(crate) fn renamed(name: &str) -> Node {
    let mut node = node("windows");
    node.metadata.name = Some(name.to_owned());
    node.metadata.uid = Some(name.to_owned());
    node
}

pub(crate) fn on(node: &str, mut pod: Pod) -> Pod {
    pod.spec.as_mut().unwrap().node_name = Some(node.to_owned());
    pod
}

impl World {
    fn notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap())
    }

    fn triggered(&self) -> Vec<String> {
        std::mem::take(&mut *self.triggered.lock().unwrap())
    }

    fn address(&self, pod: &str) -> Option<String> {
        self.table.address_of("win", &pod.into()).map(|held| held.address.to_string())
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_no_pod_is_reported_while_its_node_was_not_read_or_the_read_is_old() {
    for late in [false, true] {
        let cloud = cloud();
        cloud.freeze_reads(late);
        let first = World::new(&cloud, prefixes()).await;
        first.feed.added(node("windows")).await.unwrap();
        run_until_idle().await;
        first.feed.added(pod("web", "Pending", "")).await.unwrap();
        let second = World::new(&cloud, prefixes()).await;
        let web = running("web", "10.0.0.16/32", "10.0.0.16");
        let outage = DriverError::new(Reason::Unavailable, "read");
        cloud.faults().inject(PrefixMethod::Interfaces, 1, Fault::Fail(outage));
        second.feed.added(node("windows")).await.unwrap_err();
        second.feed.added(web.clone()).await.unwrap();
        second.feed.modified(node("windows")).await.unwrap();
        second.feed.modified(web.clone()).await.unwrap();
        cloud.freeze_reads(false);
        sleep(Duration::from_secs(40)).await;
        second.feed.modified(web).await.unwrap();
        assert_eq!((second.notes(), second.written().len()), (vec![], 1), "late: {late}");
        assert_eq!(second.address("web").as_deref(), Some("10.0.0.16"));
    }
}

#[tokio::test(start_paused = true)]
async fn one_read_without_a_block_takes_no_address_from_its_pod_and_reports_none() {
    let cloud = cloud();
    let world = World::new(&cloud, prefixes()).await;
    cloud.freeze_reads(true);
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    sleep(RESYNC + Duration::from_secs(5)).await;
    cloud.freeze_reads(false);
    assert_eq!(world.address("web").as_deref(), Some("10.0.0.16"), "absence needs two looks");
    sleep(RESYNC).await;
    assert_eq!(world.address("web").as_deref(), Some("10.0.0.16"));
    assert_eq!((cloud.blocks().len(), world.notes()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_a_living_pod_loses_is_written_again_with_an_event_and_its_address_stays() {
    let world = World::new(&cloud(), prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    assert_eq!((world.written().len(), world.notes()), (2, vec![]), "the first write is no repair");
    for lost in ["", "nonsense", "10.0.0.99/32"] {
        world.feed.modified(running("web", lost, "10.0.0.16")).await.unwrap();
        let notes = world.notes();
        assert!(
            matches!(&notes[..], [note] if note.starts_with("web AddressRestored: ")),
            "{lost}: {notes:?}"
        );
        assert_eq!(world.written(), ["10.0.0.16/32"]);
    }
    // Also of a pod that has not started: the plugin of its node may have read it.
    world.feed.added(pod("db", "Pending", "")).await.unwrap();
    world.feed.modified(pod("db", "Pending", "10.0.0.17/32")).await.unwrap();
    assert_eq!(world.notes(), [""; 0]);
    world.feed.modified(pod("db", "Pending", "")).await.unwrap();
    assert_eq!((world.written().len(), world.notes().len()), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_was_lost_while_the_controller_was_down_takes_no_address_from_its_pod() {
    for lost in ["", "nonsense"] {
        let cloud = cloud();
        let first = World::new(&cloud, prefixes()).await;
        first.feed.added(node("windows")).await.unwrap();
        run_until_idle().await;
        for name in ["a", "b"] {
            first.feed.added(pod(name, "Pending", "")).await.unwrap();
        }
        let second = World::new(&cloud, prefixes()).await;
        let mut dual = running("a", lost, "fd00::1");
        dual.status.as_mut().unwrap().pod_ips =
            Some(["fd00::1", "10.0.0.16"].map(|ip| PodIP { ip: ip.to_owned() }).into());
        let pods = [dual, running("b", lost, "10.0.0.17")];
        for pod in &pods {
            second.feed.added(pod.clone()).await.unwrap();
        }
        second.feed.added(node("windows")).await.unwrap();
        for pod in &pods {
            second.feed.modified(pod.clone()).await.unwrap();
        }
        assert_eq!(second.written(), ["144", "10.0.0.16/32", "10.0.0.17/32"], "{lost}");
        assert_eq!(second.notes().len(), 2);
        sleep(Duration::from_secs(60)).await;
        second.feed.added(pod("new", "Pending", "")).await.unwrap();
        assert_eq!(second.written(), ["10.0.0.18/32"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_is_lost_while_the_node_cannot_be_read_is_remembered() {
    let cloud = cloud();
    let first = World::new(&cloud, prefixes()).await;
    first.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    first.feed.added(pod("web", "Pending", "")).await.unwrap();
    let second = World::new(&cloud, prefixes()).await;
    second.feed.added(pod("web", "Pending", "10.0.0.16/32")).await.unwrap();
    second.feed.modified(pod("web", "Pending", "")).await.unwrap();
    second.feed.added(node("windows")).await.unwrap();
    assert_eq!(second.address("web").as_deref(), Some("10.0.0.16"));
    second.feed.modified(pod("web", "Pending", "")).await.unwrap();
    assert_eq!((second.written(), second.notes().len()), (vec![json!("144"), json!("10.0.0.16/32")], 1));
}

#[tokio::test(start_paused = true)]
async fn the_address_in_the_status_of_a_pod_is_its_own_whatever_it_was_given_meanwhile() {
    let cloud = cloud();
    let first = World::new(&cloud, prefixes()).await;
    first.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    first.feed.added(pod("web", "Pending", "")).await.unwrap();
    // Its annotation is lost before its status shows the address that its network has already.
    let second = World::new(&cloud, prefixes()).await;
    second.feed.added(pod("web", "Pending", "")).await.unwrap();
    second.feed.added(node("windows")).await.unwrap();
    sleep(Duration::from_secs(31)).await;
    second.feed.added(pod("new", "Pending", "")).await.unwrap();
    second.feed.modified(running("new", "10.0.0.16/32", "10.0.0.16")).await.unwrap();
    second.feed.modified(pod("web", "Pending", "")).await.unwrap();
    assert_eq!(second.written(), ["144", "10.0.0.16/32", "10.0.0.17/32"]);
    second.feed.modified(running("web", "10.0.0.17/32", "10.0.0.20")).await.unwrap();
    assert_eq!(second.written(), ["10.0.0.20/32"], "what it uses counts");
    second.feed.modified(running("web", "10.0.0.20/32", "10.0.0.16")).await.unwrap();
    let notes = second.notes();
    assert!(notes.iter().any(|note| note.starts_with("win AddressShared: the pod web uses")), "{notes:?}");
    // Whichever of the two ends first, the other one keeps it.
    second.feed.deleted(running("new", "10.0.0.16/32", "10.0.0.16")).await.unwrap();
    sleep(Duration::from_secs(31)).await;
    for number in 0..14 {
        second.feed.added(pod(&format!("pod-{number}"), "Pending", "")).await.unwrap();
    }
    assert!(second.written().iter().skip(1).all(|address| address != "10.0.0.16/32"));
}

#[tokio::test(start_paused = true)]
async fn two_nodes_of_one_machine_share_its_addresses_also_after_a_restart() {
    let cloud = cloud();
    let world = World::new(&cloud, prefixes()).await;
    for name in ["win", "renamed"] {
        world.feed.added(renamed(name)).await.unwrap();
    }
    let mut annotated = Vec::new();
    for number in 0..40 {
        let node = ["win", "renamed"][number % 2];
        let pod = on(node, pod(&format!("pod-{number}"), "Pending", ""));
        run_until_idle().await;
        world.feed.added(pod.clone()).await.unwrap();
        run_until_idle().await;
        world.feed.trigger(AddressReady::of(&pod)).await.unwrap();
        let written = world.written();
        let address = written.last().unwrap().as_str().unwrap().strip_suffix("/32").unwrap().to_owned();
        annotated.push(on(node, running(&format!("pod-{number}"), &format!("{address}/32"), &address)));
    }
    let distinct: BTreeSet<_> = annotated.iter().map(|pod| pod.status.clone().unwrap().pod_ip).collect();
    assert_eq!((distinct.len(), cloud.blocks().len()), (40, 3));
    // After a restart, one of the nodes is read first, and gives no address of the other one away. A node may be deleted already.
    let restarted = World::new(&cloud, prefixes()).await;
    for pod in &annotated {
        restarted.feed.added(pod.clone()).await.unwrap();
    }
    restarted.feed.added(renamed("renamed")).await.unwrap();
    sleep(Duration::from_secs(31)).await;
    let new: Vec<_> =
        (0..8).map(|number| on("renamed", pod(&format!("new-{number}"), "Pending", ""))).collect();
    for pod in &new {
        restarted.feed.added(pod.clone()).await.unwrap();
    }
    let written = restarted.written();
    assert_eq!(written.len(), 9, "{written:?}");
    for value in &written[1..] {
        let address = value.as_str().unwrap().strip_suffix("/32").map(ToOwned::to_owned);
        assert!(!distinct.contains(&address), "{value}");
    }
    assert_eq!(restarted.notes(), [""; 0]);
    // The pods of the deleted node end: their addresses are free then.
    for pod in annotated.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some("win")) {
        restarted.feed.deleted(pod.clone()).await.unwrap();
    }
    run_until_idle().await;
    assert_eq!(restarted.table.metrics().used, 28);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_two_reads_do_not_show_gives_no_address_and_its_node_advertises_none() {
    let cloud = cloud();
    let world = World::new(&cloud, prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    cloud.remove_machine(&"i-1".into());
    world.triggered();
    sleep(RESYNC + Duration::from_secs(20)).await;
    assert_eq!(world.triggered(), ["win"], "its node is looked at again");
    let mut shown = node("windows");
    let capacity = from_value(json!({ "vpc.amazonaws.com/PrivateIPv4Address": "144" })).unwrap();
    shown.status.get_or_insert_default().capacity = Some(capacity);
    let error = world.feed.modified(shown.clone()).await.unwrap_err();
    assert_eq!(error.reason(), "MachineNotFound");
    world.feed.added(pod("db", "Pending", "")).await.unwrap();
    let written = world.written();
    assert_eq!(written, ["144", "10.0.0.16/32", "0"]);
    let notes = world.notes();
    assert!(matches!(&notes[..], [note] if note.starts_with("db NoAddress: ")), "{notes:?}");
    // A read that lacked it was wrong: the pods have their addresses as before.
    cloud.add_machine(&"i-1".into(), &"subnet-1".into(), 10, true);
    world.feed.modified(shown).await.unwrap();
    assert!(world.written().is_empty(), "the capacity is shown already");
}

#[tokio::test(start_paused = true)]
async fn a_config_map_that_is_deleted_or_lacks_its_switches_switches_nothing_off() {
    let world = World::new(&cloud(), prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    assert_eq!(world.written(), ["144"]);
    let blocks = world.cloud.blocks();
    let partial =
        [json!({}), json!({ "enable-windows-ipam": "true" }), json!({ "enable-windows-ipam": "tru" })];
    for (number, partial) in partial.iter().enumerate() {
        world.feed.modified(options(partial)).await.unwrap();
        world.feed.modified(node("windows")).await.unwrap();
        world.feed.added(pod(&format!("pod-{number}"), "Pending", "")).await.unwrap();
        let notes = world.notes();
        assert!(notes.iter().all(|note| note.starts_with("amazon-vpc-cni OptionNotUsed: ")), "{notes:?}");
        assert!(!notes.is_empty());
    }
    world.feed.deleted(options(&prefixes())).await.unwrap();
    world.feed.modified(node("windows")).await.unwrap();
    world.feed.added(pod("last", "Pending", "")).await.unwrap();
    assert!(matches!(&world.notes()[..], [note] if note.starts_with("amazon-vpc-cni OptionsDeleted: ")));
    run_until_idle().await;
    let written = world.written();
    let addresses = [16, 17, 18, 19].map(|last| json!(format!("10.0.0.{last}/32")));
    assert!(addresses.iter().all(|address| written.contains(address)), "{written:?}");
    assert!(!written.contains(&json!("0")) && !written.contains(&json!("9")), "{written:?}");
    assert_eq!(world.cloud.blocks(), blocks);
    world.feed.added(options(&json!({ "enable-windows-ipam": "false" }))).await.unwrap();
    world.feed.modified(node("windows")).await.unwrap();
    assert_eq!(world.written(), ["0"], "only the word `false` switches it off");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_starts_without_the_switch_withdraws_no_capacity() {
    let first = World::new(&cloud(), prefixes()).await;
    first.feed.added(node("windows")).await.unwrap();
    let mut shown = node("windows");
    shown.status =
        from_value(json!({ "capacity": { "vpc.amazonaws.com/PrivateIPv4Address": "144" } })).unwrap();
    for (partial, written) in [
        (json!({}), vec![]),
        (json!({ "enable-windows-ipam": "tru" }), vec![]),
        (json!({ "enable-windows-ipam": "false" }), vec!["0"]),
    ] {
        let second = World::new(&first.cloud, partial.clone()).await;
        second.feed.added(shown.clone()).await.unwrap();
        assert_eq!(second.written(), written, "{partial}");
    }
    // What was said before the switch was lost holds for nodes that come later, too.
    let off = World::new(&first.cloud, json!({ "enable-windows-ipam": "false" })).await;
    off.feed.modified(options(&json!({}))).await.unwrap();
    let late = Node { status: shown.status.clone(), ..renamed("late") };
    off.feed.added(late).await.unwrap();
    assert_eq!(off.written(), ["0"]);
}

#[tokio::test(start_paused = true)]
async fn a_capacity_that_changes_with_the_removal_of_the_last_other_blocks_is_advertised_at_once() {
    let world = World::new(&cloud(), json!({ "enable-windows-ipam": "true" })).await;
    world.feed.added(node("windows")).await.unwrap();
    run_until_idle().await;
    world.feed.added(pod("web", "Pending", "")).await.unwrap();
    world.feed.modified(options(&prefixes())).await.unwrap();
    world.feed.modified(node("windows")).await.unwrap();
    sleep(Duration::from_secs(40)).await;
    world.triggered();
    world.written();
    world.feed.deleted(pod("web", "Pending", "10.0.0.5/24")).await.unwrap();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(world.triggered(), ["win"], "no event of the node is needed");
    world.feed.trigger(NodeRefresh::of(&node("windows"))).await.unwrap();
    assert_eq!(world.written(), ["144"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_a_node_that_cannot_be_read_has_an_event_and_a_running_one_has_none() {
    let cloud = cloud();
    let refused = DriverError::new(Reason::Refused, "read");
    cloud.faults().inject(PrefixMethod::Interfaces, 1, Fault::Fail(refused));
    let world = World::new(&cloud, prefixes()).await;
    world.feed.added(pod("early", "Pending", "")).await.unwrap();
    assert_eq!(world.notes(), [""; 0], "the read of its node has not failed");
    assert!(world.feed.added(node("windows")).await.is_err());
    run_until_idle().await;
    assert!(world.triggered().contains(&"early".to_owned()));
    world.feed.trigger(AddressReady::of(&pod("early", "Pending", ""))).await.unwrap();
    world.feed.added(pod("late", "Pending", "")).await.unwrap();
    world.feed.added(running("old", "10.0.0.16/32", "10.0.0.16")).await.unwrap();
    let notes = world.notes();
    let text = "NoAddress: the node win has no free address: its network interface was not read yet";
    assert_eq!(notes.len(), 2, "{notes:?}");
    assert!(notes[0].starts_with(&format!("early {text}")) && notes[1].starts_with(&format!("late {text}")));
}

#[tokio::test(start_paused = true)]
async fn a_machine_without_prefixes_has_single_addresses_and_an_event_that_says_so() {
    let cloud = cloud();
    cloud.remove_machine(&"i-1".into());
    cloud.add_machine(&"i-1".into(), &"subnet-1".into(), 12, false);
    let world = World::new(&cloud, prefixes()).await;
    world.feed.added(node("windows")).await.unwrap();
    assert_eq!(world.written(), ["11"]);
    let is_said_once = || matches!(&world.notes()[..], [note] if note.starts_with("win Unsupported: "));
    assert!(is_said_once());
    world.feed.modified(node("windows")).await.unwrap();
    assert!(world.notes().is_empty());
    // Also where the options choose prefixes later, and the capacity stays as it is.
    let single = json!({ "enable-windows-ipam": "true", "enable-windows-prefix-delegation": "false" });
    world.feed.modified(options(&single)).await.unwrap();
    world.feed.modified(node("windows")).await.unwrap();
    world.feed.modified(options(&prefixes())).await.unwrap();
    world.feed.modified(node("windows")).await.unwrap();
    assert!(is_said_once());
}
