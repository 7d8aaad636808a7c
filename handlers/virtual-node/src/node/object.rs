//! Builds the Node object and the patches that correct it, without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec as ObjectSpec,
    NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::applied_spec::AppliedNodeSpec;
use super::conditions::{conditions, has_content_of};
use super::ownership::{NodeOwner, own_labels};
use super::quantity;
use super::spec::{MachineInfo, NodeSpec};
use super::view::MachineView;

/// Returns the labels that the node should have. [`NodeSpec::labels`] do not override the labels that identify the node
/// and its owner.
fn labels(machine: &MachineView, node_owner: NodeOwner<'_>) -> BTreeMap<String, String> {
    let spec = &machine.spec;
    let info = machine.health.as_deref().map(|health| health.info.clone()).unwrap_or_default();
    let mut labels: BTreeMap<String, String> =
        [("kubernetes.io/role", "agent".to_owned()), ("kubernetes.io/os", system(&info))]
            .map(|(key, value)| (key.to_owned(), value))
            .into();
    if !info.architecture.is_empty() {
        labels.insert("kubernetes.io/arch".to_owned(), info.architecture);
    }
    labels.extend(spec.labels.clone());
    labels
        .extend(own_labels(&spec.name, node_owner).map(|(key, value)| (key.to_owned(), value.into_owned())));
    labels
}

/// Builds the Node object of a virtual node that does not exist yet: labels, annotations, taints and status.
pub(crate) fn created(machine: &MachineView, node_owner: NodeOwner<'_>, now: Timestamp) -> Node {
    let spec = &machine.spec;
    Node {
        metadata: ObjectMeta {
            name: Some(spec.name.clone()),
            labels: Some(labels(machine, node_owner)),
            annotations: Some(
                spec.annotations.clone().into_iter().chain([AppliedNodeSpec::of(spec).written()]).collect(),
            ),
            ..ObjectMeta::default()
        },
        spec: Some(ObjectSpec { taints: Some(spec.taints.clone()), ..ObjectSpec::default() }),
        status: Some(status(machine, &NodeStatus::default(), now)),
    }
}

/// Returns the patch that corrects the labels, annotations and taints of a Node object; `None` if they are correct. Those
/// that this program wrote before ([`AppliedNodeSpec`]) and that are not wanted any more are removed; those of
/// other writers stay. The patch contains the `resourceVersion`, because taints are one list that other controllers
/// write too.
pub(crate) fn metadata_patch(node: &Node, machine: &MachineView, node_owner: NodeOwner<'_>) -> Option<Value> {
    let spec = &machine.spec;
    let present = node.metadata.labels.clone().unwrap_or_default();
    let (applied, before) = (AppliedNodeSpec::of(spec), AppliedNodeSpec::read(node));
    let wanted = labels(machine, node_owner);
    let labels = corrections(&present, &wanted, &before.labels);
    let noted = node.metadata.annotations.clone().unwrap_or_default();
    let mut annotations = corrections(&noted, &spec.annotations, &before.annotations);
    let taints = taints(node, spec, &before);
    if labels.is_empty() && annotations.is_empty() && taints.is_none() && applied == before {
        return None;
    }
    let mut metadata = json!({ "uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version, "labels": labels });
    if applied != before {
        let (key, value) = applied.written();
        annotations.insert(key, value.into());
    }
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    Some(match taints {
        Some(taints) => json!({ "metadata": metadata, "spec": { "taints": taints } }),
        None => json!({ "metadata": metadata }),
    })
}

/// Returns the patch that turns the labels or annotations `present` into `wanted`, by key; `null` for each key that this program
/// wrote `before` and that is not wanted any more.
fn corrections(
    present: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    before: &BTreeSet<String>,
) -> serde_json::Map<String, Value> {
    let past = before.iter().filter(|key| !wanted.contains_key(*key) && present.contains_key(*key));
    let missing = wanted.iter().filter(|(key, value)| present.get(*key) != Some(value));
    let missing = missing.map(|(key, value)| (key.clone(), json!(value)));
    missing.chain(past.map(|key| (key.clone(), Value::Null))).collect()
}

/// Returns the corrected list of taints: missing taints are added, and those that this program wrote `before` and that
/// are not wanted any more are removed. `None` if the list is correct.
fn taints(node: &Node, spec: &NodeSpec, before: &AppliedNodeSpec) -> Option<Vec<Taint>> {
    let mut taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let same = |one: &Taint, other: &Taint| one.key == other.key && one.effect == other.effect;
    let is_wanted = |taint: &Taint| spec.taints.iter().any(|wanted| same(taint, wanted));
    let missing: Vec<_> = spec
        .taints
        .iter()
        .filter(|wanted| !taints.iter().any(|taint| same(taint, wanted) && taint.value == wanted.value))
        .cloned()
        .collect();
    let is_past = |taint: &Taint| before.has_taint(taint) && !is_wanted(taint);
    if missing.is_empty() && !taints.iter().any(is_past) {
        return None;
    }
    taints.retain(|taint| !is_past(taint) && !missing.iter().any(|wanted| same(taint, wanted)));
    taints.extend(missing);
    Some(taints)
}

/// Returns the status that the node should have. Values that the machine has not reported yet stay as in `before`.
fn status(machine: &MachineView, before: &NodeStatus, now: Timestamp) -> NodeStatus {
    let pods = ("pods".to_owned(), Quantity(machine.spec.max_pods.to_string()));
    let health = machine.health.as_deref();
    let resources = |reported: Option<&BTreeMap<String, Quantity>>, before: &Option<BTreeMap<_, _>>| {
        let amounts = reported.or(before.as_ref()).cloned().unwrap_or_default();
        Some(amounts.into_iter().chain([pods.clone()]).collect())
    };
    NodeStatus {
        addresses: Some(addresses(machine)),
        allocatable: resources(health.map(|health| &health.allocatable), &before.allocatable),
        capacity: resources(health.map(|health| &health.capacity), &before.capacity),
        conditions: Some(conditions(machine, before.conditions.as_deref().unwrap_or_default(), now)),
        daemon_endpoints: machine.kubelet.map(|kubelet| NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: kubelet.port().into() }),
        }),
        node_info: before.node_info.clone().filter(|_| health.is_none()).or_else(|| Some(info(machine))),
        ..NodeStatus::default()
    }
}

/// Returns the addresses of the node: the `InternalIP` (that of the kubelet API, or else that of the machine if known), and the `Hostname`
/// if the specification has one.
fn addresses(machine: &MachineView) -> Vec<NodeAddress> {
    let internal = machine.kubelet.map(|kubelet| kubelet.ip()).or(machine.host_ip());
    let address =
        |address: IpAddr| NodeAddress { type_: "InternalIP".to_owned(), address: address.to_string() };
    let host_name = machine.spec.host_name.clone();
    let host_name = host_name.map(|address| NodeAddress { type_: "Hostname".to_owned(), address });
    internal.map(address).into_iter().chain(host_name).collect()
}

/// Returns the operating system for the label `kubernetes.io/os` and for `nodeInfo`; `linux` if the machine does not
/// report one.
fn system(info: &MachineInfo) -> String {
    if info.operating_system.is_empty() { "linux".to_owned() } else { info.operating_system.clone() }
}

/// Returns `status.nodeInfo` as the machine reports it. The kubelet version is that of this program, which takes the place of a kubelet.
fn info(machine: &MachineView) -> NodeSystemInfo {
    let info = machine.health.as_deref().map(|health| health.info.clone()).unwrap_or_default();
    NodeSystemInfo {
        operating_system: system(&info),
        machine_id: info.machine_id.clone(),
        system_uuid: info.machine_id,
        kernel_version: info.kernel_version,
        os_image: info.os_image,
        container_runtime_version: info.container_runtime,
        architecture: info.architecture,
        kubelet_version: concat!("v", env!("CARGO_PKG_VERSION"), "-staffetta").to_owned(),
        ..NodeSystemInfo::default()
    }
}

/// Returns the patch that corrects the status; `None` if the status is correct. The patch does not contain the conditions of
/// other writers.
pub(crate) fn status_patch(node: &Node, machine: &MachineView, now: Timestamp) -> Option<Value> {
    let before = node.status.clone().unwrap_or_default();
    let wanted = status(machine, &before, now);
    let known = before.conditions.as_deref().unwrap_or_default();
    let is_present = |wanted: &NodeCondition| known.iter().any(|condition| has_content_of(condition, wanted));
    let moved = before.addresses.clone().unwrap_or_default() != addresses(machine);
    let same = wanted.conditions.iter().flatten().all(is_present)
        && quantity::same(before.capacity.as_ref(), wanted.capacity.as_ref())
        && quantity::same(before.allocatable.as_ref(), wanted.allocatable.as_ref())
        && before.node_info == wanted.node_info
        && port(&before) == port(&wanted)
        && !moved;
    if same {
        return None;
    }
    let mut patch = json!(wanted);
    if wanted.daemon_endpoints.is_none() && port(&before) != 0 {
        patch["daemonEndpoints"] = Value::Null;
    }
    if let Some(addresses) = patch["addresses"].as_array_mut().filter(|_| moved) {
        addresses.insert(0, json!({ "$patch": "replace" }));
    }
    for (field, before) in [("capacity", &before.capacity), ("allocatable", &before.allocatable)] {
        for key in before.iter().flat_map(BTreeMap::keys) {
            if patch[field].get(key).is_none() {
                patch[field][key] = Value::Null;
            }
        }
    }
    Some(patch)
}

/// Returns the port of the kubelet API in the status of a node; 0 if there is none.
fn port(status: &NodeStatus) -> i32 {
    let endpoints = status.daemon_endpoints.as_ref();
    endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref()).map_or(0, |endpoint| endpoint.port)
}

#[cfg(test)]
mod tests;
