//! `ADD`: waiting, repetition, conflicts, and annotations that the controller did not write.

use serde_json::json;
use staffetta_driver::{Network, Vif, VifClass};
use staffetta_network::os_vif::{KURYR_VIF, PodState};

use super::world::{Kernel, code, daemon, from, pod, request, starting_daemon, vif};

#[tokio::test(start_paused = true)]
async fn a_pod_is_bound_as_soon_as_its_vif_appears_and_answered_when_it_is_active() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let (adding, mut inactive) = (request("web", "u1", "c1"), vif(1));
    inactive.active = false;
    let feed = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        daemon.pods.put(&pod("web", "u1", &PodState::new(inactive)));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        // The agent sees the interface before it reports the port as active.
        assert_eq!(kernel.ports(), ["port-001-0000"]);
        assert!(kernel.announced.lock().is_empty(), "the network would drop it");
        daemon.pods.put(&pod("web", "u1", &PodState::new(vif(1))));
    };
    let (answer, ()) = tokio::join!(daemon.add(&adding), feed);
    let answer = answer.unwrap();
    assert_eq!(answer["versioned_object.name"], "VIFBridge");
    assert_eq!(answer["versioned_object.data"]["id"], "port-001-0000");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(*kernel.announced.lock(), ["port-001-0000"]);
    assert_eq!(daemon.add(&adding).await.unwrap(), answer);
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_is_replaced_before_it_is_active_is_unbound_for_the_new_one() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let (adding, [mut first, mut second]) = (request("web", "u1", "c1"), [vif(1), vif(2)]);
    (first.active, second.active) = (false, false);
    daemon.pods.put(&pod("web", "u1", &PodState::new(first)));
    let feed = async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        daemon.pods.put(&pod("web", "u1", &PodState::new(second)));
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        assert_eq!(kernel.ports(), ["port-002-0000"], "its port is active only when it is bound");
        daemon.pods.put(&pod("web", "u1", &PodState::new(vif(2))));
    };
    let (answer, ()) = tokio::join!(daemon.add(&adding), feed);
    assert_eq!(answer.unwrap()["versioned_object.data"]["id"], "port-002-0000");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_has_not_read_the_pods_yet_says_so() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = starting_daemon(&kernel, folder.path());
    assert_eq!(daemon.status().unwrap_err().code, 50);
    let error = daemon.add(&request("web", "u1", "c1")).await.unwrap_err();
    let expected = "the daemon has not read the pods of the node yet; is the API server reachable?";
    assert_eq!((error.code, &*error.details), (11, expected));
    daemon.set_ready();
    daemon.status().unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_add_ends_without_a_change_when_its_pod_is_deleted_while_it_waits() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&from(json!({ "metadata": { "namespace": "default", "name": "web", "uid": "u1" } })));
    let (adding, deletion) = (request("web", "u1", "c1"), async {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        daemon.pods.remove("u1");
    });
    let (answer, ()) = tokio::join!(daemon.add(&adding), deletion);
    assert_eq!(code(answer), 3);
    assert!(kernel.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_vif_learns_what_it_waits_for() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let error = daemon.add(&request("web", "u1", "c1")).await.unwrap_err();
    assert_eq!((error.code, &*error.details), (11, "no pod of this name and UID is on this node"));
    daemon.pods.put(&from(json!({ "metadata": { "namespace": "default", "name": "web", "uid": "u1" } })));
    let error = daemon.add(&request("web", "u1", "c1")).await.unwrap_err();
    assert_eq!((error.code, &*error.details), (11, "the controller has not given it a VIF yet"));
    assert_eq!(error.msg, "the pod default/web has no VIF after 60 s");
    daemon.pods.remove("u1");
    assert_eq!(code(daemon.add(&request("web", "u1", "c1")).await), 3);
}

#[tokio::test(start_paused = true)]
async fn a_forged_annotation_gets_nothing() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let annotated = |uid: &str, text: String, finalizers: serde_json::Value| {
        from(json!({ "metadata": { "namespace": "default", "name": uid, "uid": uid, "finalizers": finalizers,
            "annotations": { KURYR_VIF: text } } }))
    };
    let state = PodState::new(vif(1));
    daemon.pods.put(&annotated("u1", state.write(), json!([])));
    daemon.pods.put(&annotated("u2", state.write(), json!(["example.com/vif"])));
    daemon.pods.put(&annotated("u3", "{".repeat(100_000), json!(["staffetta.dev/vif"])));
    for uid in ["u1", "u2", "u3"] {
        assert_eq!(code(daemon.add(&request(uid, uid, uid)).await), 11, "{uid}");
    }
    let mut unknown = vif(2);
    unknown.class =
        VifClass::Other { name: "VIFAcme".into(), version: "1.0".into(), fields: serde_json::Map::new() };
    daemon.pods.put(&pod("odd", "u4", &PodState::new(unknown)));
    let error = daemon.add(&request("odd", "u4", "c4")).await.unwrap_err();
    assert_eq!(error.msg, "this node cannot bind a VIF of the class `VIFAcme`");
    assert!(kernel.ports().is_empty());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn no_port_and_no_address_is_bound_twice_on_a_node() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("first", "u1", &PodState::new(vif(1))));
    daemon.add(&request("first", "u1", "c1")).await.unwrap();
    let (mut same_mac, mut same_ip) = (vif(2), vif(3));
    same_mac.address = vif(1).address;
    same_ip.subnets = vif(1).subnets;
    for (uid, vif) in [("u2", vif(1)), ("u3", same_mac), ("u4", same_ip)] {
        daemon.pods.put(&pod(uid, uid, &PodState::new(vif)));
        let error = daemon.add(&request(uid, uid, uid)).await.unwrap_err();
        assert!(error.msg.ends_with("is bound to another pod of this node"), "{error:?}");
        assert_eq!(error.details, "default/first");
    }
    assert_eq!(kernel.ports(), ["port-001-0000"]);
    let mut alike = vif(6);
    alike.id = "port-001-00ff".into();
    daemon.pods.put(&pod("u7", "u7", &PodState::new(alike)));
    let error = daemon.add(&request("u7", "u7", "u7")).await.unwrap_err();
    assert_eq!(error.msg, "the port port-001-00ff is bound to another pod of this node");
    // Whatever network the annotation names, it is on the same bridge.
    let mut elsewhere = vif(5);
    (elsewhere.subnets, elsewhere.network.id) = (vif(1).subnets, "other".into());
    daemon.pods.put(&pod("u8", "u8", &PodState::new(elsewhere.clone())));
    let error = daemon.add(&request("u8", "u8", "u8")).await.unwrap_err();
    assert_eq!(error.msg, "the address 10.0.0.1 is bound to another pod of this node");
    elsewhere.class = VifClass::Bridge { vif_name: "tap".to_owned(), bridge_name: "br1".to_owned() };
    let macvlan = VifClass::MacvlanNested { vif_name: "eth0".to_owned() };
    let [first, in_node_network] = [8, 9].map(|number| Vif {
        class: macvlan.clone(),
        network: Network::new(format!("n{number}").as_str().into()),
        subnets: vif(8).subnets,
        ..vif(number)
    });
    daemon.pods.put(&pod("u9", "u9", &PodState::new(first)));
    daemon.add(&request("u9", "u9", "u9")).await.unwrap();
    daemon.pods.put(&pod("u6", "u6", &PodState::new(in_node_network)));
    let error = daemon.add(&request("u6", "u6", "u6")).await.unwrap_err();
    assert_eq!(error.msg, "the address 10.0.0.8 is bound to another pod of this node");
    daemon.delete(&request("u9", "u9", "u9")).await.unwrap();
    daemon.pods.put(&pod("u5", "u5", &PodState::new(elsewhere)));
    daemon.add(&request("u5", "u5", "u5")).await.unwrap();
    daemon.delete(&request("u5", "u5", "u5")).await.unwrap();
    // The first pod is gone and its DEL was lost: its address is free.
    daemon.pods.remove("u1");
    daemon.add(&request("u4", "u4", "u4")).await.unwrap();
    assert_eq!(kernel.ports(), ["port-003-0000"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_the_same_name_with_another_uid_gets_its_own_vif() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.pods.put(&pod("db-0", "u1", &PodState::new(vif(1))));
    daemon.add(&request("db-0", "u1", "c1")).await.unwrap();
    daemon.pods.put(&pod("db-0", "u2", &PodState::new(vif(2))));
    let answer = daemon.add(&request("db-0", "u2", "c2")).await.unwrap();
    assert_eq!(answer["versioned_object.data"]["id"], "port-002-0000");
    daemon.delete(&request("db-0", "u1", "c1")).await.unwrap();
    assert_eq!(kernel.ports(), ["port-002-0000"]);
}

#[tokio::test(start_paused = true)]
async fn fifty_pods_at_once_are_all_bound() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    let mut adds = tokio::task::JoinSet::new();
    for number in 1..=50 {
        let uid = format!("u{number}");
        daemon.pods.put(&pod(&uid, &uid, &PodState::new(vif(number))));
        let daemon = std::sync::Arc::clone(&daemon);
        adds.spawn(async move { daemon.add(&request(&uid, &uid, &uid)).await.map(drop) });
    }
    assert!(adds.join_all().await.into_iter().all(|result| result.is_ok()));
    assert_eq!(kernel.ports().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn the_port_of_the_node_is_no_pods_and_status_fails_while_it_does_not_work() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path());
    daemon.reserve(
        vif(1).id.as_str().chars().take(11).fold("tap".to_owned(), |name, part| name + &part.to_string()),
        vif(2).address,
    );
    let mut alike = vif(4);
    alike.id = "port-001-00ff".into();
    for (uid, vif) in [("u1", vif(1)), ("u2", vif(2)), ("u4", alike)] {
        daemon.pods.put(&pod(uid, uid, &PodState::new(vif)));
        let error = daemon.add(&request(uid, uid, uid)).await.unwrap_err();
        assert_eq!((error.code, &*error.msg), (999, "the VIF is the port of the node itself"));
        daemon.delete(&request(uid, uid, uid)).await.unwrap();
    }
    daemon.pods.put(&pod("u3", "u3", &PodState::new(vif(3))));
    daemon.set_node_port_error(Some("there is no bridge br-int on the node".to_owned()));
    let error = daemon.status().unwrap_err();
    assert_eq!((error.code, &*error.details), (50, "there is no bridge br-int on the node"));
    daemon.add(&request("u3", "u3", "u3")).await.unwrap();
    daemon.set_node_port_error(None);
    daemon.status().unwrap();
}
