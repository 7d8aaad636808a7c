//! Converts the reports of a base into the specification and health of its node, and reads them back from the Node object.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeCondition, Taint};
use staffetta_driver::tunnel::{
    NetworkInfo, NodeActivation, NodeDescription, NodeId, NodeMetadata, NodeResource, NodeStatusData,
};

use super::base::BaseProfile;
use super::marks;
use crate::node::{MachineInfo, NodeHealth, NodeMarks, NodeSpec, is_label_key, is_label_value, is_own_label};

/// The prefix of the name of each node that a base backs.
const PREFIX: &str = "vnode.";

/// The maximum number of labels, of annotations, of taints, of resources and of conditions that a base may report; further ones are left
/// out.
const MAX_REPORTED: usize = 32;

/// The maximum length in bytes of the value of an annotation, and of the reason and the message of a condition, that a base reports. An
/// annotation or condition with a longer one is left out.
const MAX_TEXT: usize = 1024;

/// The properties that all nodes of the bases of one environment share.
#[derive(Clone, Debug)]
pub(super) struct NodeTemplate {
    /// The environment of the bases, a part of the names of their nodes (`vnode.environment`).
    pub(super) environment: String,
    /// The maximum number of pods on each node.
    pub(super) max_pods: u32,
}

impl NodeTemplate {
    /// Returns the name of the node of a base.
    pub(super) fn name(&self, base: &NodeId) -> String {
        format!("{PREFIX}{base}.{}", self.environment)
    }

    /// Returns the id of the base whose node has the name `node`; `None` if no node of this environment can have that name.
    pub(super) fn base(&self, node: &str) -> Option<NodeId> {
        let id = node.strip_prefix(PREFIX)?.strip_suffix(&self.environment)?.strip_suffix('.')?;
        id.parse().ok()
    }

    /// Returns the specification of the node of a base. Labels of the base that are no valid labels, or that other parts of the
    /// cluster rely on, are left out.
    pub(super) fn spec(
        &self,
        base: &NodeId,
        tunnel: &str,
        description: &NodeDescription,
        reported: &NodeMarks,
    ) -> NodeSpec {
        let network = &description.network_info;
        let own = [
            (marks::COMPONENT, marks::COMPONENT_NODE.to_owned()),
            (marks::ENVIRONMENT, self.environment.clone()),
            (marks::TUNNEL, tunnel.to_owned()),
            (marks::BASE_NAME, description.metadata.name.clone()),
            (marks::BASE_VERSION, description.metadata.version.clone()),
            (marks::BASE_HOST_NAME, network.host_name.clone()),
            (marks::TUNNEL_PORT, network.port.map(|port| port.to_string()).unwrap_or_default()),
        ];
        let own = own.into_iter().filter(|(_, value)| !value.is_empty() && is_label_value(value));
        let theirs = description.custom_labels.iter().chain(&reported.labels);
        let mut labels: BTreeMap<_, _> = theirs
            .filter(|(key, value)| may_label(key) && is_label_value(value))
            .take(MAX_REPORTED)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        labels.extend(own.map(|(key, value)| (key.to_owned(), value)));
        let mut annotations: BTreeMap<_, _> = reported
            .annotations
            .iter()
            .filter(|(key, value)| may_label(key) && value.len() <= MAX_TEXT)
            .take(MAX_REPORTED)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        if !description.tunnel_data.is_empty() {
            let data = serde_json::json!(description.tunnel_data).to_string();
            annotations.insert(marks::TUNNEL_DATA.to_owned(), data);
        }
        NodeSpec {
            name: self.name(base),
            labels,
            annotations,
            taints: self.taints(reported),
            max_pods: self.max_pods,
            host_ip: network.node_ip,
            host_name: Some(network.host_name.clone()).filter(|name| !name.is_empty()),
            address: base.to_string(),
            // A connection to a base ends with the Lease of its node.
            session: 0,
            retired: false,
        }
    }

    /// Returns the taints of a node: those of all nodes of bases, then those that the base reports.
    fn taints(&self, reported: &NodeMarks) -> Vec<Taint> {
        let taint = |key: &str, value: &str| Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()),
            effect: "NoExecute".to_owned(),
            time_added: None,
        };
        let mut taints = vec![
            taint(marks::VIRTUAL_NODE_TAINT, "True"),
            taint(marks::ENVIRONMENT_TAINT, &self.environment),
        ];
        let valid = reported.taints.iter().filter(|taint| {
            let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            may_label(&taint.key)
                && taint.value.as_deref().is_none_or(is_label_value)
                && effects.contains(&taint.effect.as_str())
        });
        for taint in valid.take(MAX_REPORTED) {
            let known = taints.iter().any(|known| known.key == taint.key && known.effect == taint.effect);
            if !known {
                taints.push(Taint { time_added: None, ..taint.clone() });
            }
        }
        taints
    }
}

/// Returns `true` if a base may set a label, annotation or taint with this key.
fn may_label(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let is_of = |other: &str| domain == other || domain.ends_with(&format!(".{other}"));
    let reserved =
        ["kubernetes.io", "k8s.io", "staffetta.dev", "virtual-kubelet.io", "schedule.koupleless.io"];
    is_label_key(key) && !is_own_label(key) && !reserved.into_iter().any(is_of)
}

/// Converts the status that a base reports into the health of its node. Invalid conditions are left out.
pub(super) fn health(status: &NodeStatusData) -> NodeHealth {
    let resources = || status.resources.iter().take(MAX_REPORTED);
    let capacity = |(name, amounts): (&String, &NodeResource)| (name.clone(), amounts.capacity.clone());
    let allocatable = |(name, amounts): (&String, &NodeResource)| (name.clone(), amounts.allocatable.clone());
    let short = |text: &String| text.len() <= MAX_TEXT;
    let conditions = status.custom_conditions.iter().filter(|condition| {
        is_label_key(&condition.type_)
            && ["True", "False", "Unknown"].contains(&condition.status.as_str())
            && condition.reason.as_ref().is_none_or(short)
            && condition.message.as_ref().is_none_or(short)
    });
    let untimed = |condition: &NodeCondition| NodeCondition {
        last_heartbeat_time: None,
        last_transition_time: None,
        ..condition.clone()
    };
    NodeHealth {
        capacity: resources().map(capacity).collect(),
        allocatable: resources().map(allocatable).collect(),
        info: MachineInfo { container_runtime: "koupleless://".to_owned(), ..MachineInfo::default() },
        conditions: conditions.take(MAX_REPORTED).map(untimed).collect(),
        ..NodeHealth::default()
    }
}

/// Returns the labels, annotations and taints that a base reports for its node.
pub(super) fn reported_marks(status: &NodeStatusData) -> NodeMarks {
    NodeMarks {
        labels: status.custom_labels.clone(),
        annotations: status.custom_annotations.clone(),
        taints: status.custom_taints.clone(),
    }
}

/// Reads the key of a base's tunnel (empty if it is missing) and the last reports of the base about itself from its Node object. They are
/// used until the base reports to this process.
pub(super) fn profile_of(node: &Node) -> (String, BaseProfile) {
    let applied = NodeMarks::of(node);
    let label = |key: &str| {
        node.metadata.labels.iter().flatten().find(|(known, _)| *known == key).map(|(_, value)| value.clone())
    };
    let text = |key| label(key).unwrap_or_default();
    let tunnel = text(marks::TUNNEL);
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let address = |kind: &str| {
        addresses.clone().find(|address| address.type_ == kind).map(|address| address.address.clone())
    };
    let own = [
        marks::COMPONENT,
        marks::ENVIRONMENT,
        marks::TUNNEL,
        marks::BASE_NAME,
        marks::BASE_VERSION,
        marks::BASE_HOST_NAME,
        marks::TUNNEL_PORT,
    ];
    let theirs = applied.labels.into_iter().filter(|(key, _)| !own.contains(&key.as_str()));
    let common = [marks::VIRTUAL_NODE_TAINT, marks::ENVIRONMENT_TAINT];
    let taints = applied.taints.into_iter().filter(|taint| !common.contains(&taint.key.as_str()));
    let mut annotations = applied.annotations;
    let tunnel_data = annotations.remove(marks::TUNNEL_DATA);
    let tunnel_data = tunnel_data.and_then(|data| serde_json::from_str(&data).ok()).unwrap_or_default();
    let description = NodeDescription {
        metadata: NodeMetadata {
            name: text(marks::BASE_NAME),
            version: text(marks::BASE_VERSION),
            status: NodeActivation::Activated,
        },
        network_info: NetworkInfo {
            node_ip: address("InternalIP").and_then(|address| address.parse().ok()),
            host_name: address("Hostname").unwrap_or_default(),
            port: label(marks::TUNNEL_PORT).and_then(|port| port.parse().ok()),
        },
        custom_labels: BTreeMap::new(),
        tunnel_data,
    };
    let marks = NodeMarks { labels: theirs.collect(), annotations, taints: taints.collect() };
    (tunnel, BaseProfile { description, marks })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn template() -> NodeTemplate {
        NodeTemplate { environment: "dev".into(), max_pods: 100 }
    }

    fn described(more: &Value) -> NodeDescription {
        let mut description = json!({ "metadata": { "name": "shop", "version": "1.1", "status": "activated" },
            "network_info": { "node_ip": "192.0.2.7", "host_name": "shop-0", "port": 1238 } });
        description.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(description).unwrap()
    }

    #[test]
    fn the_name_of_a_node_contains_an_id_with_dots() {
        for id in ["base-1", "192.0.2.7"] {
            let name = template().name(&id.parse().unwrap());
            assert_eq!(template().base(&name), Some(id.parse().unwrap()));
        }
        for other in ["vnode.a.prod", "vnode.dev", "a.dev", "vnode..dev", "vnode.a.b_c.dev"] {
            assert_eq!(template().base(other), None, "{other}");
        }
    }

    #[test]
    fn a_node_gives_back_what_its_base_has_reported() {
        let base = "base-1".parse().unwrap();
        let reported = NodeMarks {
            labels: [("example.com/rack".to_owned(), "7".to_owned())].into(),
            annotations: [("example.com/zone".to_owned(), "a b".to_owned())].into(),
            taints: vec![
                serde_json::from_value(
                    json!({ "key": "example.com/drain", "value": "True", "effect": "NoExecute" }),
                )
                .unwrap(),
            ],
        };
        let description = described(&json!({ "tunnel_data": { "gateway": { "port": 7 } } }));
        let spec = template().spec(&base, "koupleless-http", &description, &reported);
        let keys: Vec<_> = spec.taints.iter().map(|taint| taint.key.as_str()).collect();
        assert_eq!(keys, [marks::VIRTUAL_NODE_TAINT, marks::ENVIRONMENT_TAINT, "example.com/drain"]);
        let machine = crate::node::MachineView {
            spec: std::sync::Arc::new(spec.clone()),
            reach: crate::reach::Reachability::Untried,
            object: crate::node::NodeObject::Ours,
            health: None,
            kubelet: None,
        };
        let owner = crate::node::NodeOwner { handler: "vnode", cluster: "east", predecessor: None };
        let node = crate::node::created(&machine, owner, jiff::Timestamp::UNIX_EPOCH);
        let (tunnel, again) = profile_of(&node);
        assert_eq!(
            (tunnel.as_str(), &again.description, &again.marks),
            ("koupleless-http", &description, &reported)
        );
        let taken_over = template().spec(&base, &tunnel, &again.description, &again.marks);
        assert_eq!(taken_over, spec, "a take-over changes nothing");
    }

    #[test]
    fn a_base_cannot_set_what_others_rely_on() {
        let labels = json!({ "node-role.kubernetes.io/control-plane": "", "type": "x", "staffetta.dev/handler": "x",
            "base.koupleless.io/tunnel": "x", "kubernetes.io/hostname": "x", "good": "1", "bad": "a b", "a/b/c": "1" });
        let description = described(&json!({ "custom_labels": labels }));
        let taints = json!([{ "key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule" },
            { "key": "good", "effect": "NoExecute" }, { "key": "good", "effect": "NoExecute" },
            { "key": "bad", "effect": "Never" }, { "key": "bad", "value": "a b", "effect": "NoExecute" },
            { "key": marks::ENVIRONMENT_TAINT, "value": "x", "effect": "NoExecute" }]);
        let too_many = (0..MAX_REPORTED).map(|number| (format!("kubernetes.io/{number}"), String::new()));
        let annotations = too_many.chain([("z".to_owned(), String::new())]).collect();
        let taints = serde_json::from_value(taints).unwrap();
        let reported = NodeMarks { annotations, taints, ..NodeMarks::default() };
        let spec = template().spec(&"b".parse().unwrap(), "koupleless-http", &description, &reported);
        let theirs = spec.labels.keys().filter(|key| !key.contains("koupleless.io"));
        assert_eq!(theirs.collect::<Vec<_>>(), ["good"]);
        assert_eq!(spec.annotations.keys().collect::<Vec<_>>(), ["z"], "the others do not count");
        assert_eq!(spec.labels[marks::TUNNEL], "koupleless-http");
        assert_eq!(spec.taints.iter().map(|taint| taint.key.as_str()).skip(2).collect::<Vec<_>>(), ["good"]);
    }

    #[test]
    fn conditions_of_a_base_are_checked_and_lose_their_times() {
        let status = json!({ "resources": { "memory": { "capacity": "1Gi", "allocatable": "512Mi" } },
            "custom_conditions": [
                { "type": "MemoryPressure", "status": "True", "reason": "MetaspaceFull", "lastHeartbeatTime": "2026-11-24T08:00:00Z" },
                { "type": "Odd", "status": "Perhaps" }, { "type": "a b", "status": "True" } ] });
        let health = health(&serde_json::from_value(status).unwrap());
        assert_eq!(health.allocatable["memory"].0, "512Mi");
        assert_eq!(health.conditions.len(), 1);
        assert!(health.conditions[0].last_heartbeat_time.is_none());
    }
}
