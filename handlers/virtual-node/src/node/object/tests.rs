//! Tests of the Node object and its patches.

use std::sync::Arc;

use super::*;
use crate::machine::Machine;
use crate::node::{NodeHealth, Room};
use crate::node_store::NodeStore;
use crate::pod::ClusterIndex;
use crate::policy::Policy;
use crate::reach::MISDESCRIBED;

const OWNER: NodeOwner<'_> = NodeOwner { handler: "machines", cluster: "east", predecessor: None };

fn machine() -> Arc<Machine> {
    machine_of(spec())
}

fn machine_of(spec: NodeSpec) -> Arc<Machine> {
    let node_store = NodeStore::new(Arc::<ClusterIndex>::default(), Policy::default());
    node_store.add_or_update(spec);
    node_store.get("r1").unwrap()
}

fn spec() -> NodeSpec {
    let taint = json!({ "key": "ours", "value": "v", "effect": "NoSchedule" });
    NodeSpec {
        labels: [("rack".to_owned(), "7".to_owned())].into(),
        taints: vec![serde_json::from_value(taint).unwrap()],
        max_pods: 4,
        ..NodeSpec::bare("r1")
    }
}

fn time(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Returns the created object as the API server stores it.
fn object(machine: &Machine) -> Node {
    let mut node = created(&machine.view(), OWNER, time(0));
    node.metadata.uid = Some("u1".into());
    node.metadata.resource_version = Some("1".into());
    node
}

fn ready(status: &Value) -> Value {
    condition(status, "Ready")
}

fn condition(status: &Value, kind: &str) -> Value {
    let conditions = status["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == kind).unwrap().clone()
}

#[test]
fn a_node_as_it_was_made_needs_nothing_however_old_it_is() {
    let machine = machine();
    let node = object(&machine);
    assert!(metadata_patch(&node, &machine.view(), OWNER).is_none());
    assert_eq!(status_patch(&node, &machine.view(), time(86_400)), None);
}

#[test]
fn a_condition_without_a_message_is_written_once_though_the_api_server_drops_the_message() {
    let machine = machine();
    machine.read_succeeded();
    let own = json!([{ "type": "BaseActivated", "status": "True", "reason": "ACTIVATED", "message": "" }]);
    let conditions = serde_json::from_value(own).unwrap();
    machine.reported_health(NodeHealth { conditions, ..NodeHealth::default() });
    let mut node = object(&machine);
    let stored = node.status.as_mut().unwrap().conditions.as_mut().unwrap().last_mut().unwrap();
    assert_eq!((stored.type_.as_str(), stored.message.take().as_deref()), ("BaseActivated", Some("")));
    assert_eq!(status_patch(&node, &machine.view(), time(7)), None);
}

#[test]
fn a_machine_that_becomes_ready_or_not_is_reported_at_once_and_when_that_was() {
    let machine = machine();
    let node = object(&machine);
    machine.read_succeeded();
    machine.reported_health(NodeHealth::default());
    let up = status_patch(&node, &machine.view(), time(7)).unwrap();
    assert_eq!(
        (ready(&up)["status"].as_str(), ready(&up)["lastTransitionTime"].as_str()),
        (Some("True"), Some("1970-01-01T00:00:07Z"))
    );
    machine.read_failed("DriverRefused", "wrong password".into(), true);
    let down = status_patch(&node, &machine.view(), time(9)).unwrap();
    assert_eq!(ready(&down)["reason"], "MachineUnreachable");
    assert_eq!(
        ready(&down)["message"],
        "the machine cannot be read any more (DriverRefused): wrong password"
    );
    machine.read_failed(MISDESCRIBED, "no such driver".into(), true);
    let invalid = status_patch(&node, &machine.view(), time(9)).unwrap();
    assert_eq!(
        ready(&invalid)["message"],
        "the machine has no usable description any more (MachineInvalid): no such driver"
    );
}

#[test]
fn taints_of_others_stay_and_ours_come_back() {
    let machine = machine();
    let mut node = object(&machine);
    let others = json!([{ "key": "theirs", "effect": "NoExecute" }, { "key": "ours", "value": "changed", "effect": "NoSchedule" }]);
    node.spec.as_mut().unwrap().taints = serde_json::from_value(others).unwrap();
    let patch = metadata_patch(&node, &machine.view(), OWNER).unwrap();
    let expected = json!([{ "key": "theirs", "effect": "NoExecute" }, { "key": "ours", "value": "v", "effect": "NoSchedule" }]);
    assert_eq!(patch["spec"]["taints"], expected);
    assert_eq!(
        (&patch["metadata"]["resourceVersion"], &patch["metadata"]["labels"]),
        (&json!("1"), &json!({}))
    );
}

#[test]
fn labels_and_taints_that_a_description_asks_for_no_more_go_and_those_of_others_stay() {
    let mut node = object(&machine());
    node.metadata.labels.as_mut().unwrap().insert("theirs".into(), "1".into());
    let theirs = json!({ "key": "theirs", "effect": "NoExecute" });
    node.spec
        .as_mut()
        .unwrap()
        .taints
        .as_mut()
        .unwrap()
        .push(serde_json::from_value(theirs.clone()).unwrap());
    let bare = machine_of(NodeSpec { labels: BTreeMap::new(), taints: Vec::new(), ..spec() });
    let patch = metadata_patch(&node, &bare.view(), OWNER).unwrap();
    assert_eq!(patch["metadata"]["labels"], json!({ "rack": null }));
    assert_eq!(patch["spec"]["taints"], json!([theirs]));
    let after = patch["metadata"]["annotations"].clone();
    node.metadata.annotations = serde_json::from_value(after).unwrap();
    node.metadata.labels.as_mut().unwrap().insert("rack".into(), "8".into());
    node.spec.as_mut().unwrap().taints = serde_json::from_value(patch["spec"]["taints"].clone()).unwrap();
    assert!(
        metadata_patch(&node, &bare.view(), OWNER).is_none(),
        "what somebody sets who is not described is theirs"
    );
}

#[test]
fn the_labels_by_which_a_node_is_ours_are_nobody_elses_to_choose() {
    let labels = [("type", "edge"), ("staffetta.dev/handler", "x"), ("kubernetes.io/hostname", "x")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    let node = object(&machine_of(NodeSpec { labels, ..spec() }));
    assert_eq!(super::super::ownership(&node, OWNER), super::super::Ownership::Ours);
    assert_eq!(node.metadata.labels.unwrap()["kubernetes.io/hostname"], "r1");
}

#[test]
fn what_the_machine_did_not_tell_yet_stays_as_the_object_has_it() {
    let machine = machine();
    let mut node = object(&machine);
    node.status.as_mut().unwrap().capacity.as_mut().unwrap().insert("cpu".into(), Quantity("2".into()));
    assert!(status_patch(&node, &machine.view(), time(1)).is_none());
    machine.reported_health(NodeHealth::default());
    let patch = status_patch(&node, &machine.view(), time(1)).unwrap();
    assert_eq!(patch["capacity"], json!({ "cpu": null, "pods": "4" }), "now it is known that there is none");
}

#[test]
fn the_port_of_a_kubelet_api_that_is_not_served_any_more_is_removed() {
    let machine = machine();
    let mut node = object(&machine);
    assert!(status_patch(&node, &machine.view(), time(1)).is_none());
    let port = json!({ "kubeletEndpoint": { "Port": 10250 } });
    node.status.as_mut().unwrap().daemon_endpoints = serde_json::from_value(port).unwrap();
    let patch = status_patch(&node, &machine.view(), time(1)).unwrap();
    assert_eq!(patch.get("daemonEndpoints"), Some(&Value::Null));
}

#[test]
fn a_machine_that_runs_out_of_something_is_reported_and_what_it_does_not_report_is_not_claimed() {
    let machine = machine();
    let node = object(&machine);
    machine.read_succeeded();
    let reported = |memory: Option<u64>, storage: Option<u64>| {
        let room = |free: Option<u64>| free.map(|free| Room { free, all: 100 });
        machine.reported_health(NodeHealth {
            memory: room(memory),
            storage: room(storage),
            ..NodeHealth::default()
        });
        let status = status_patch(&node, &machine.view(), time(1)).unwrap();
        ["MemoryPressure", "DiskPressure"].map(|kind| {
            let condition = condition(&status, kind);
            format!("{} {}", condition["status"], condition["reason"]).replace('"', "")
        })
    };
    assert_eq!(reported(None, None), ["False NotReported", "False NotReported"]);
    let (calm, filled) = ("False KubeletHasNoDiskPressure", "True KubeletHasInsufficientMemory");
    assert_eq!(reported(Some(5), Some(5)), ["False KubeletHasSufficientMemory", calm]);
    assert_eq!(reported(Some(4), Some(100)), [filled, calm]);
    assert_eq!(reported(Some(0), Some(0)), [filled, "True KubeletHasDiskPressure"]);
}
