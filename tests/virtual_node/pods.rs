//! Pods: their start, their changes and their end.

use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use staffetta_apiserver::{Fault, Requests};
use staffetta_driver::Reason;

use crate::world::World;

#[tokio::test]
async fn a_pod_runs_on_its_machine_and_its_status_says_all() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    let pod = world.pod_in("web", "Running").await;
    let status = pod.status.unwrap();
    let addresses = (status.pod_ip.as_deref(), status.host_ip.as_deref());
    assert_eq!(addresses, (Some("10.0.0.7"), Some("192.0.2.1")));
    assert_eq!(status.pod_ips.unwrap()[0].ip, "10.0.0.7");
    let conditions = status.conditions.unwrap();
    for kind in ["PodScheduled", "Initialized", "PodReadyToStartContainers", "ContainersReady", "Ready"] {
        assert!(
            conditions.iter().any(|condition| condition.type_ == kind && condition.status == "True"),
            "{kind}"
        );
    }
    let container = &status.container_statuses.unwrap()[0];
    assert!(container.ready && container.started == Some(true) && container.restart_count == 0);
    assert!(container.container_id.as_deref().is_some_and(|id| id.starts_with("test://")));
    assert!(container.state.as_ref().unwrap().running.as_ref().unwrap().started_at.is_some());
    assert!(status.start_time.is_some());
    assert_eq!(machine.ledger(), ["install web flash:/a.tar"]);
    world.until_reported("Deployed").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_runs_no_more_pods_than_it_has_room_for() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    // The node advertises room for 40 pods.
    for number in 0..41 {
        world.pod(&format!("web-{number}"), json!({})).await;
    }
    let controller = world.controller().await;
    let mut rejected = Vec::new();
    world
        .until("all pods run but one, which is rejected", async || {
            let pods = world.pods().list(&ListParams::default()).await.unwrap();
            let statuses = || pods.iter().filter_map(|pod| pod.status.clone());
            rejected = statuses().filter_map(|status| status.reason).collect();
            statuses().filter(|status| status.phase.as_deref() == Some("Running")).count() == 40
                && !rejected.is_empty()
        })
        .await;
    assert_eq!((rejected, machine.running().len()), (vec!["OutOfpods".to_owned()], 40));
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_runs_costs_no_write_and_a_new_controller_changes_nothing_of_it() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    let before = world.pod_in("web", "Running").await;
    controller.stop().await.unwrap();
    let controller = world.controller().await;
    world.node_ready("r1", "True").await;
    let reads = machine.reads();
    world.until("it was read again", async || machine.reads() > reads + 2).await;
    let after = world.pods().get("web").await.unwrap();
    assert_eq!(before.metadata.resource_version, after.metadata.resource_version);
    assert_eq!(machine.ledger(), ["install web flash:/a.tar"]);
    assert_eq!(world.events("Deployed").await.len(), 1, "it ran before, and nobody is told again");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_leaves_its_machine_before_it_leaves_the_cluster() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    let faults = world.server.faults();
    let ending = Requests::any().verb("delete").resource("pods").saying("\"gracePeriodSeconds\":0");
    faults.inject(ending, 1, Fault::Hold);
    world.delete("web").await;
    faults.until_held(1).await;
    assert_eq!(machine.ledger(), ["install web flash:/a.tar", "remove web flash:/a.tar"]);
    assert!(machine.running().is_empty());
    faults.let_go();
    world.until_pod_is_gone("web").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_is_installed_leaves_nothing() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    for round in 0..5 {
        let name = format!("web{round}");
        world.pod(&name, json!({})).await;
        world
            .until("it is on its way", async || machine.ledger().iter().any(|line| line.contains(&name)))
            .await;
        world.delete(&name).await;
        world.until_pod_is_gone(&name).await;
    }
    assert!(machine.running().is_empty());
    assert_eq!(machine.ledger().len(), 10, "{:?}", machine.ledger());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn two_pods_of_one_name_one_after_the_other_are_two() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    for _ in 0..3 {
        world.pod("web", json!({})).await;
        world.pod_in("web", "Running").await;
        world.delete("web").await;
        world.until_pod_is_gone("web").await;
    }
    world.pod("web", json!({ "containers": [{ "name": "app", "image": "flash:/b.tar" }] })).await;
    world.pod_in("web", "Running").await;
    assert_eq!(machine.running(), [("web".to_owned(), "flash:/b.tar".to_owned())]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_changes_is_removed_and_made_anew_and_that_is_reported() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    world.change_pod("web", json!({ "metadata": { "labels": { "a": "b" } } })).await;
    world
        .change_pod("web", json!({ "spec": { "containers": [{ "name": "app", "image": "flash:/b.tar" }] } }))
        .await;
    world
        .until("the other image runs", async || {
            machine.running() == [("web".to_owned(), "flash:/b.tar".to_owned())]
        })
        .await;
    let expected = ["install web flash:/a.tar", "remove web flash:/a.tar", "install web flash:/b.tar"];
    assert_eq!(machine.ledger(), expected);
    let reported = world.until_reported("Replaced").await;
    assert!(reported.contains("removed and deployed again"), "{reported}");
    world.pod_in("web", "Running").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_change_that_a_machine_refuses_is_reported_and_what_runs_goes_on() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    machine.refuse("spec.activeDeadlineSeconds: nobody ends a pod here");
    let (deadline, image) =
        (json!({ "activeDeadlineSeconds": 60 }), [json!({ "name": "app", "image": "b" })]);
    world.change_pod("web", json!({ "spec": deadline })).await;
    let reported = world.until_reported("CreateContainerConfigError").await;
    assert!(reported.contains("spec.activeDeadlineSeconds: nobody ends a pod here"), "{reported}");
    world.change_pod("web", json!({ "spec": { "containers": image } })).await;
    let reads = machine.reads();
    world.until("it was read again", async || machine.reads() > reads + 2).await;
    let status = world.pods().get("web").await.unwrap().status.unwrap();
    let container = &status.container_statuses.unwrap()[0];
    assert_eq!((container.ready, container.image.as_str()), (true, "flash:/a.tar"));
    assert_eq!(machine.ledger(), ["install web flash:/a.tar"]);
    assert!(world.events("Replaced").await.is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_is_lost_while_its_change_is_refused_is_reported_lost_and_not_replaced() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    machine.refuse("spec.activeDeadlineSeconds: nobody ends a pod here");
    world.change_pod("web", json!({ "spec": { "activeDeadlineSeconds": 60 } })).await;
    world.until_reported("CreateContainerConfigError").await;
    machine.forget();
    world.until_reported("LostByMachine").await;
    let mut ended = None;
    world
        .until("its status says how it ended", async || {
            let status = world.pods().get("web").await.unwrap().status.unwrap();
            let container = status.container_statuses.unwrap().remove(0);
            ended = container.last_state.and_then(|last| last.terminated?.reason);
            ended.is_some()
        })
        .await;
    assert_eq!(ended.as_deref(), Some("ContainerStatusUnknown"));
    assert!(world.events("Replaced").await.is_empty());
    assert_eq!(machine.ledger(), ["install web flash:/a.tar"]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_ends_is_started_again_or_is_over_as_the_pod_says() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("service", json!({ "restartPolicy": "Always" })).await;
    world.pod("job", json!({ "restartPolicy": "Never" })).await;
    world.pod("broken", json!({ "restartPolicy": "Never" })).await;
    for name in ["service", "job", "broken"] {
        world.pod_in(name, "Running").await;
    }
    machine.end("service", 0);
    machine.end("job", 0);
    machine.end("broken", 1);
    world.pod_in("job", "Succeeded").await;
    world.pod_in("broken", "Failed").await;
    world
        .until("it runs again", async || {
            let pod = world.pods().get("service").await.unwrap();
            let containers = pod.status.unwrap().container_statuses.unwrap();
            containers[0].ready && containers[0].restart_count == 1
        })
        .await;
    let restarted = machine.ledger().iter().filter(|line| line.starts_with("restart")).count();
    assert_eq!(restarted, 1);
    world
        .until("what lies there of what is over is removed", async || {
            let removed = |name: &str| machine.ledger().contains(&format!("remove {name} flash:/a.tar"));
            removed("job") && removed("broken")
        })
        .await;
    assert_eq!(machine.running(), [("service".to_owned(), "flash:/a.tar".to_owned())]);
    let job = world.pods().get("job").await.unwrap();
    assert_eq!(job.status.unwrap().phase.as_deref(), Some("Succeeded"), "the pod itself stays");
    world.delete("job").await;
    world.until_pod_is_gone("job").await;
    assert_eq!(machine.ledger().iter().filter(|line| line.starts_with("install")).count(), 3);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_a_machine_cannot_do_is_reported_at_the_pod() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    machine.refuse("spec.volumes[0]: there are no volumes here");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    let reported = world.until_reported("CreateContainerConfigError").await;
    assert!(reported.contains("spec.volumes[0]: there are no volumes here"), "{reported}");
    let pod = world.pod_in("web", "Pending").await;
    let container = &pod.status.unwrap().container_statuses.unwrap()[0];
    let waiting = container.state.as_ref().unwrap().waiting.as_ref().unwrap();
    assert_eq!(waiting.reason.as_deref(), Some("CreateContainerConfigError"));
    world.delete("web").await;
    world.until_pod_is_gone("web").await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_has_long_had_no_pod_is_removed_and_what_is_not_ours_is_left() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    machine.plant("orphan", true);
    machine.plant("theirs", false);
    let controller = world.controller().await;
    world.until("the orphan is removed", async || machine.ledger() == ["remove orphan i"]).await;
    assert_eq!(machine.running(), [("theirs".to_owned(), "i".to_owned())]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_deletion_that_comes_late_ends_no_other_pod_of_that_name() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    machine.failure(Some(Reason::Unavailable));
    world.node_ready("r1", "False").await;
    world.delete("web").await;
    let faults = world.server.faults();
    faults.inject(Requests::any().verb("delete").resource("pods"), 1, Fault::Hold);
    machine.failure(None);
    faults.until_held(1).await;
    let by_force = DeleteParams::default().grace_period(0);
    world.pods().delete("web", &by_force).await.unwrap();
    let other = world.pod("web", json!({})).await;
    faults.let_go();
    world
        .until("the deletion is refused", async || {
            let requests = world.server.requests();
            requests.iter().any(|request| (request.verb.as_str(), request.code) == ("delete", 409))
        })
        .await;
    let running = world.pod_in("web", "Running").await;
    assert_eq!(running.metadata.uid, other.metadata.uid);
    assert!(running.metadata.deletion_timestamp.is_none());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_belongs_to_a_pod_that_nobody_can_decode_is_no_orphan() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    controller.stop().await.unwrap();
    let lists = Requests::any().verb("list").resource("pods");
    world.server.faults().inject(lists, 1, Fault::undecodable("web", "/spec/containers"));
    world.server.clear_requests();
    let controller = world.controller().await;
    world
        .until("somebody asks once more whether the pod exists, and again", async || {
            let requests = world.server.requests();
            requests.iter().filter(|request| request.verb == "get" && request.resource == "pods").count() > 1
        })
        .await;
    assert_eq!(machine.running().len(), 1);
    assert_eq!(machine.ledger(), ["install web flash:/a.tar"]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_somebody_keeps_after_its_end_says_that_it_has_ended() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    let kept = json!({ "metadata": { "finalizers": ["batch.kubernetes.io/job-tracking"] } });
    world.change_pod("web", kept).await;
    world.delete("web").await;
    let pod = world.pod_in("web", "Failed").await;
    let container = &pod.status.unwrap().container_statuses.unwrap()[0];
    let ended = container.state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((ended.exit_code, container.ready), (137, false));
    assert!(machine.running().is_empty());
    world.change_pod("web", json!({ "metadata": { "finalizers": null } })).await;
    world.until_pod_is_gone("web").await;
    assert_eq!(machine.ledger().len(), 2, "{:?}", machine.ledger());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_changed_while_nobody_looked_on_is_replaced_and_that_is_reported() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    controller.stop().await.unwrap();
    world
        .change_pod("web", json!({ "spec": { "containers": [{ "name": "app", "image": "flash:/b.tar" }] } }))
        .await;
    let controller = world.controller().await;
    world.until_reported("Replaced").await;
    world
        .until("the other image runs, and is told", async || {
            let status = world.pods().get("web").await.unwrap().status.unwrap();
            let container = &status.container_statuses.unwrap()[0];
            container.ready && container.image == "flash:/b.tar"
        })
        .await;
    let status = world.pods().get("web").await.unwrap().status.unwrap();
    let last = status.container_statuses.unwrap()[0].last_state.clone().unwrap().terminated.unwrap();
    assert_eq!(last.reason.as_deref(), Some("Replaced"));
    assert_eq!(machine.running(), [("web".to_owned(), "flash:/b.tar".to_owned())]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn what_runs_under_a_name_that_was_cut_is_an_orphan_only_if_no_pod_of_the_namespace_is_its_own() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    controller.stop().await.unwrap();
    machine.plant("orphan", true);
    machine.cut_names();
    let lists = Requests::any().verb("list").resource("pods");
    world.server.faults().inject(lists, 1, Fault::undecodable("web", "/spec/containers"));
    world.server.clear_requests();
    let controller = world.controller().await;
    world.until("the orphan is removed", async || machine.ledger().len() == 2).await;
    world
        .until("the pods of the namespace were asked for more than once", async || {
            let requests = world.server.requests();
            let lists =
                requests.iter().filter(|request| request.verb == "list" && request.resource == "pods");
            lists.filter(|request| request.namespace == "default").count() > 2
        })
        .await;
    assert_eq!(machine.ledger(), ["install web flash:/a.tar", "remove orphan~0123 i"]);
    assert_eq!(machine.running(), [("web~0123".to_owned(), "flash:/a.tar".to_owned())]);
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_step_that_stays_unanswered_by_a_machine_that_can_be_reached_is_reported() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    machine.balk(true);
    let controller = world.controller().await;
    world.node_ready("r1", "True").await;
    world.pod("web", json!({})).await;
    world
        .until("its status says why it waits", async || {
            let status = world.pods().get("web").await.unwrap().status.unwrap_or_default();
            let container = status.container_statuses.and_then(|containers| containers.first().cloned());
            let waiting = container.and_then(|container| container.state?.waiting);
            waiting.is_some_and(|waiting| {
                waiting.reason.as_deref() == Some("DriverUnavailable")
                    && waiting.message.is_some_and(|message| message.contains("as ordered"))
            })
        })
        .await;
    machine.balk(false);
    world.pod_in("web", "Running").await;
    machine.balk(true);
    world.delete("web").await;
    let reported = world.until_reported("DriverUnavailable").await;
    assert!(reported.contains("remove the pod from its machine"), "{reported}");
    machine.balk(false);
    world.until_pod_is_gone("web").await;
    assert!(machine.running().is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_that_was_finished_is_looked_for_no_more() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    world.server.clear_requests();
    world.delete("web").await;
    world
        .until("it is gone, and that was seen", async || {
            let pods = world.pods().list(&ListParams::default()).await.unwrap();
            pods.items.is_empty() && machine.running().is_empty()
        })
        .await;
    let reads = machine.reads();
    world.until("the machine was read again", async || machine.reads() > reads + 2).await;
    let requests = world.server.requests();
    let of_pods = |verb: &str| {
        requests.iter().filter(|request| request.verb == verb && request.resource == "pods").count()
    };
    // The deletion that was asked for, and the one that ends it.
    assert_eq!((of_pods("get"), of_pods("delete")), (0, 2));
    assert!(world.events("Removed").await.is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn who_adds_an_ephemeral_container_learns_that_nothing_comes_of_it() {
    let world = World::new().await;
    let machine = world.machines.add("r1");
    let controller = world.controller().await;
    // As if it had been added: this server has no such subresource.
    let debug = json!({ "ephemeralContainers": [{ "name": "debug", "image": "busybox" }] });
    world.pod("web", debug).await;
    world.pod_in("web", "Running").await;
    let reported = world.until_reported("FieldNotSupported").await;
    assert!(reported.starts_with("spec.ephemeralContainers: "), "{reported}");
    assert_eq!(machine.ledger(), ["install web flash:/a.tar"]);
    controller.stop().await.unwrap();
}
