//! The Node object: as it is made, and what of it must be mended. Pure.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints, NodeSpec as ObjectSpec,
    NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::conditions::{holds, timed, wanted};
use super::keeper::{Keeper, own_labels};
use super::marks::Marks;
use super::quantity;
use super::spec::NodeSpec;
use crate::machine::Machine;

/// The labels that a node is to have. Those by which it is known whose it is are nobody else's to choose.
fn labels(machine: &Machine, keeper: Keeper<'_>) -> BTreeMap<String, String> {
    let spec = machine.spec();
    let info = machine.health().map(|health| health.info.clone()).unwrap_or_default();
    let or = |text: String, otherwise: &str| if text.is_empty() { otherwise.to_owned() } else { text };
    let mut labels: BTreeMap<String, String> = [
        ("kubernetes.io/role", "agent".to_owned()),
        ("kubernetes.io/os", or(info.operating_system, "linux")),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into();
    if !info.architecture.is_empty() {
        labels.insert("kubernetes.io/arch".to_owned(), info.architecture);
    }
    labels.extend(spec.labels.clone());
    labels.extend(own_labels(&spec.name, keeper).map(|(key, value)| (key.to_owned(), value.to_owned())));
    labels
}

/// The Node object as it is made.
pub(crate) fn created(machine: &Machine, keeper: Keeper<'_>, now: Timestamp) -> Node {
    let spec = machine.spec();
    Node {
        metadata: ObjectMeta {
            name: Some(spec.name.clone()),
            labels: Some(labels(machine, keeper)),
            annotations: Some(BTreeMap::from([Marks::of(&spec).written()])),
            ..ObjectMeta::default()
        },
        spec: Some(ObjectSpec { taints: Some(spec.taints.clone()), ..ObjectSpec::default() }),
        status: Some(status(machine, None, now)),
    }
}

/// What of the labels and taints must be mended; nothing of others is touched. What we set once and want no more goes. Refused by
/// the server when the object changed meanwhile: taints are one list, which others write too.
pub(crate) fn metadata_patch(node: &Node, machine: &Machine, keeper: Keeper<'_>) -> Option<Value> {
    let spec = machine.spec();
    let present = node.metadata.labels.clone().unwrap_or_default();
    let (marks, before) = (Marks::of(&spec), Marks::read(node));
    let wanted = labels(machine, keeper);
    let past = before.labels.iter().filter(|key| !wanted.contains_key(*key) && present.contains_key(*key));
    let past = past.map(|key| (key.clone(), Value::Null));
    let missing = wanted.iter().filter(|(key, value)| present.get(*key) != Some(value));
    let labels: serde_json::Map<_, _> =
        missing.map(|(key, value)| (key.clone(), json!(value))).chain(past).collect();
    let taints = taints(node, &spec, &before);
    if labels.is_empty() && taints.is_none() && marks == before {
        return None;
    }
    let mut metadata = json!({ "uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version, "labels": labels });
    if marks != before {
        metadata["annotations"] = json!(BTreeMap::from([marks.written()]));
    }
    Some(match taints {
        Some(taints) => json!({ "metadata": metadata, "spec": { "taints": taints } }),
        None => json!({ "metadata": metadata }),
    })
}

/// The list of taints in which those that are missing are, and those are not that we set `before` and want no more; none when it
/// is as it is to be.
fn taints(node: &Node, spec: &NodeSpec, before: &Marks) -> Option<Vec<Taint>> {
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

/// The whole status of a node. What its machine did not tell yet stays as the object has it.
fn status(machine: &Machine, before: Option<&NodeStatus>, now: Timestamp) -> NodeStatus {
    let spec = machine.spec();
    let health = machine.health();
    let pods = [("pods".to_owned(), Quantity(spec.max_pods.to_string()))];
    let resources = |of: Option<&BTreeMap<String, Quantity>>| {
        Some(of.cloned().unwrap_or_default().into_iter().chain(pods.clone()).collect())
    };
    let condition = |kind: &str| -> Option<&NodeCondition> {
        before?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)
    };
    let conditions = wanted(machine)
        .into_iter()
        .map(|wanted| {
            let old = condition(wanted.kind);
            timed(wanted, old, now)
        })
        .collect();
    NodeStatus {
        addresses: Some(addresses(machine)),
        allocatable: resources(health.as_deref().map(|health| &health.allocatable)),
        capacity: resources(health.as_deref().map(|health| &health.capacity)),
        conditions: Some(conditions),
        daemon_endpoints: machine.kubelet().map(|kubelet| NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint { port: kubelet.port.into() }),
        }),
        node_info: Some(info(machine)),
        ..NodeStatus::default()
    }
}

/// Where the node is reached. Not its name: an API server that prefers names to addresses would ask a resolver for it, in vain.
fn addresses(machine: &Machine) -> Vec<NodeAddress> {
    let internal = machine.kubelet().map(|kubelet| kubelet.address).or(machine.host_ip());
    let address =
        |address: IpAddr| NodeAddress { type_: "InternalIP".to_owned(), address: address.to_string() };
    internal.map(address).into_iter().collect()
}

fn info(machine: &Machine) -> NodeSystemInfo {
    let info = machine.health().map(|health| health.info.clone()).unwrap_or_default();
    NodeSystemInfo {
        machine_id: info.machine_id.clone(),
        system_uuid: info.machine_id,
        kernel_version: info.kernel_version,
        os_image: info.os_image,
        container_runtime_version: info.container_runtime,
        architecture: info.architecture,
        operating_system: if info.operating_system.is_empty() {
            "linux".into()
        } else {
            info.operating_system
        },
        kubelet_version: concat!("v", env!("CARGO_PKG_VERSION"), "-staffetta").to_owned(),
        ..NodeSystemInfo::default()
    }
}

/// The status as it is to be, when the object's is another or its heartbeat is old. Conditions of others are not in it.
pub(crate) fn status_patch(node: &Node, machine: &Machine, now: Timestamp) -> Option<Value> {
    let before = node.status.clone().unwrap_or_default();
    let mut wanted = status(machine, Some(&before), now);
    if machine.health().is_none() {
        // A process that began just now knows less of the machine than the object says.
        wanted.capacity = Some(merged(before.capacity.as_ref(), wanted.capacity));
        wanted.allocatable = Some(merged(before.allocatable.as_ref(), wanted.allocatable));
        wanted.node_info = before.node_info.clone().or(wanted.node_info);
    }
    let known = before.conditions.as_deref().unwrap_or_default();
    let held = wanted.conditions.iter().flatten().all(|wanted| {
        known.iter().any(|condition| condition.type_ == wanted.type_ && holds(condition, wanted))
    });
    let has = |addresses: &Option<Vec<NodeAddress>>| {
        let mut addresses: Vec<_> = addresses
            .iter()
            .flatten()
            .map(|address| (address.type_.clone(), address.address.clone()))
            .collect();
        addresses.sort_unstable();
        addresses
    };
    let same = held
        && quantity::same(before.capacity.as_ref(), wanted.capacity.as_ref())
        && quantity::same(before.allocatable.as_ref(), wanted.allocatable.as_ref())
        && before.node_info == wanted.node_info
        && port(&before) == port(&wanted)
        && has(&before.addresses) == has(&wanted.addresses);
    if same {
        return None;
    }
    let mut patch = json!(wanted);
    if has(&before.addresses) != has(&wanted.addresses)
        && let Some(addresses) = patch["addresses"].as_array_mut()
    {
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

fn port(status: &NodeStatus) -> i32 {
    let endpoints = status.daemon_endpoints.as_ref();
    endpoints.and_then(|endpoints| endpoints.kubelet_endpoint.as_ref()).map_or(0, |endpoint| endpoint.port)
}

/// What was known before, with what is known now over it.
fn merged(
    before: Option<&BTreeMap<String, Quantity>>,
    now: Option<BTreeMap<String, Quantity>>,
) -> BTreeMap<String, Quantity> {
    let mut all = before.cloned().unwrap_or_default();
    all.extend(now.unwrap_or_default());
    all
}

#[cfg(test)]
mod tests;
