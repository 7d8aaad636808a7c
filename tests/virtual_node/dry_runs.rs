//! A dry run reads each device once, and plans its node and pods.

use kube::api::DeleteParams;
use serde_json::json;
use staffetta_apiserver::RequestRecord;

use crate::custom_resource::{self, device};
use crate::world::World;

/// The lines of a plan below an object, without their indentation.
fn lines<'a>(plan: &'a str, object: &str) -> Vec<&'a str> {
    let from = plan.lines().skip_while(|line| *line != object).skip(1);
    from.take_while(|line| !line.is_empty()).map(str::trim).collect()
}

#[tokio::test]
async fn devices_nodes_and_pods_are_planned_and_nothing_is_written() {
    let world =
        custom_resource::world("devices = [{ name = \"edge-1\", device = { address = \"one\" } }]").await;
    device(&world, "edge-2", json!({ "driver": "FAKE", "address": "two" })).await;
    world.pod("web", json!({ "nodeName": "edge-1" })).await;
    world.server.clear_requests();
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    for node in ["edge-1", "edge-2"] {
        let created = lines(&plan, &format!("Node {node}"));
        assert_eq!(created.len(), 1, "{plan}");
        assert!(
            created[0].starts_with("app_hosting: would create: ") && created[0].contains("label type"),
            "{plan}"
        );
        assert_eq!(lines(&plan, &format!("Lease kube-node-lease/{node}")).len(), 1, "{plan}");
    }
    let web = lines(&plan, "Pod default/web");
    assert_eq!(web[0], "app_hosting: would deploy a pod: device one, images flash:/a.tar", "{plan}");
    assert!(web[1].starts_with("app_hosting: would write: + status."), "{plan}");
    let resource = lines(&plan, "CiscoDevice edge-2");
    assert!(resource[0].contains("+ finalizer cisco.vk/device-cleanup"), "{plan}");
    assert!(dry_run.is_complete(), "{plan}");
    let writes: Vec<_> = world.server.requests().into_iter().filter(RequestRecord::is_write).collect();
    assert!(writes.len() > 4 && writes.iter().all(|request| request.dry_run), "{writes:#?}");
    assert!(world.nodes().get_opt("edge-1").await.unwrap().is_none());
    assert_eq!(world.pods().get("web").await.unwrap().status.unwrap().container_statuses, None);
}

#[tokio::test]
async fn nothing_is_planned_when_everything_is_up_to_date() {
    let world =
        custom_resource::world("devices = [{ name = \"edge-1\", device = { address = \"one\" } }]").await;
    let controller = world.controller().await;
    world.node_ready("edge-1", "True").await;
    controller.stop().await.unwrap();
    assert_eq!(world.dry_run().await.to_string(), "Nothing would be done. Nothing was written.\n");
}

#[tokio::test]
async fn removals_from_a_machine_and_from_the_cluster_are_planned() {
    let mut world = World::new().await;
    let machine = world.machines.add("r1");
    world.machines.add("r2");
    let controller = world.controller().await;
    world.pod("web", json!({})).await;
    world.pod_in("web", "Running").await;
    world.node_ready("r2", "True").await;
    controller.stop().await.unwrap();
    world.machines.remove("r2");
    world.pods().delete("web", &DeleteParams::default()).await.unwrap();
    // The machines of this test are not recorded; the dry run only reads them.
    machine.failure(Some(staffetta_driver::Reason::Unavailable));
    world.orphan_grace = std::time::Duration::ZERO;
    let dry_run = world.dry_run().await;
    let plan = dry_run.to_string();
    // A server answers a deletion without the kind of what is gone.
    assert_eq!(lines(&plan, "nodes r2"), ["machines: would delete"], "{plan}");
    assert!(plan.contains("not planned: ") && plan.contains("r1: "), "what cannot be read is said: {plan}");
    assert!(!dry_run.is_complete());
    assert!(world.nodes().get_opt("r2").await.unwrap().is_some());
    assert_eq!(machine.ledger(), ["install web flash:/a.tar"]);
}
