//! A base as the scheduler sees it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Taint};
use staffetta_driver::tunnel::{
    NetworkInfo, NodeActivation, NodeDescription, NodeId, NodeMetadata, QueryBaselineRequest,
};

use crate::node::{MachineView, NodeMarks, NodeObject, NodeOwner, created};
use crate::reach::Reachability;
use crate::vnode::HANDLER;
use crate::vnode::describe::NodeTemplate;
use crate::vnode::marks::{COMPONENT, COMPONENT_NODE, ENVIRONMENT};

/// The prefix of taints that the cluster sets while a node has a condition, such as `not-ready`. They come and go, so they decide
/// nothing here, as in a `DaemonSet`.
const CONDITION_TAINTS: &str = "node.kubernetes.io/";

/// The properties of a base by which Kubernetes chooses nodes for pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BaseNode {
    /// The name of the node.
    pub(crate) name: String,
    /// The labels of the node.
    pub(crate) labels: BTreeMap<String, String>,
    /// The taints of the node with the effect `NoSchedule` or `NoExecute`, except those that follow its conditions.
    pub(crate) taints: Vec<Taint>,
}

impl BaseNode {
    /// Returns the base behind a node; `None` for a node that is no base of this environment, or is being deleted.
    pub(crate) fn of(node: &Node, environment: &str) -> Option<Self> {
        let labels = node.metadata.labels.as_ref();
        let is =
            |key: &str, value: &str| labels.and_then(|of| of.get(key)).is_some_and(|found| found == value);
        let ends = node.metadata.deletion_timestamp.is_some();
        if ends || !is(COMPONENT, COMPONENT_NODE) || !is(ENVIRONMENT, environment) {
            return None;
        }
        Some(Self::seen(node))
    }

    /// Returns the properties that the node of a base of this installation (`cluster`) will have, from the baseline query that the base
    /// sends before the node exists. `tunnel` is the key of the tunnel through which it asks.
    pub(crate) fn asking(
        id: &NodeId,
        tunnel: &str,
        cluster: &str,
        environment: &str,
        request: &QueryBaselineRequest,
    ) -> Self {
        let QueryBaselineRequest { name, version, custom_labels, custom_taints } = request.clone();
        let metadata = NodeMetadata { name, version, status: NodeActivation::Activated };
        let network_info = NetworkInfo::default();
        let tunnel_data = serde_json::Map::new();
        let description = NodeDescription { metadata, network_info, custom_labels, tunnel_data };
        let reported = NodeMarks { taints: custom_taints, ..NodeMarks::default() };
        let template = NodeTemplate { environment: environment.to_owned(), max_pods: 1 };
        let machine = MachineView {
            spec: Arc::new(template.spec(id, tunnel, &description, &reported)),
            reach: Reachability::Untried,
            object: NodeObject::Coming,
            health: None,
            kubelet: None,
        };
        let owner = NodeOwner { handler: HANDLER, cluster, predecessor: None };
        Self::seen(&created(&machine, owner, Timestamp::UNIX_EPOCH))
    }

    /// Returns the properties of a Node object by which Kubernetes chooses nodes for pods.
    fn seen(node: &Node) -> Self {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
        Self {
            name: node.metadata.name.clone().unwrap_or_default(),
            labels: node.metadata.labels.clone().unwrap_or_default(),
            taints: taints.into_iter().filter(repels).collect(),
        }
    }
}

/// Returns `true` if the taint keeps pods off the node, and does not follow a condition of the node.
fn repels(taint: &Taint) -> bool {
    matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute") && !taint.key.starts_with(CONDITION_TAINTS)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::vnode::marks::{BASE_NAME, TUNNEL};

    #[test]
    fn only_bases_of_the_environment_count_and_conditions_do_not() {
        let node = |component: &str, environment: &str| {
            let labels = json!({ COMPONENT: component, ENVIRONMENT: environment });
            let taints = json!([
                { "key": "node.kubernetes.io/unreachable", "effect": "NoExecute" },
                { "key": "soft", "effect": "PreferNoSchedule" },
                { "key": "drain", "effect": "NoSchedule" },
            ]);
            let node = json!({ "metadata": { "name": "n", "labels": labels }, "spec": { "taints": taints } });
            serde_json::from_value::<Node>(node).unwrap()
        };
        let base = BaseNode::of(&node("vnode", "dev"), "dev").unwrap();
        assert_eq!(base.taints.iter().map(|taint| taint.key.as_str()).collect::<Vec<_>>(), ["drain"]);
        assert!(BaseNode::of(&node("vnode", "prod"), "dev").is_none());
        assert!(BaseNode::of(&node("other", "dev"), "dev").is_none());
        let mut ending = node("vnode", "dev");
        ending.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(Timestamp::UNIX_EPOCH));
        assert!(BaseNode::of(&ending, "dev").is_none());
    }

    #[test]
    fn a_base_that_asks_has_the_marks_that_its_node_will_have() {
        let request = QueryBaselineRequest {
            name: "shop".into(),
            version: "1".into(),
            custom_labels: [("zone".to_owned(), "a".to_owned())].into(),
            ..QueryBaselineRequest::default()
        };
        let base = BaseNode::asking(&"b-1".parse().unwrap(), "http", "east", "dev", &request);
        assert_eq!(base.name, "vnode.b-1.dev");
        assert_eq!((base.labels["zone"].as_str(), base.labels[BASE_NAME].as_str()), ("a", "shop"));
        assert_eq!((base.labels[COMPONENT].as_str(), base.taints.len()), ("vnode", 2));
        for (key, value) in [
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/hostname", "vnode.b-1.dev"),
            ("type", "virtual-kubelet"),
            ("staffetta.dev/cluster", "east"),
            ("staffetta.dev/handler", "vnode"),
            (TUNNEL, "http"),
        ] {
            assert_eq!(base.labels.get(key).map(String::as_str), Some(value), "{key}");
        }
    }
}
