//! Ownership of Node objects.

use k8s_openapi::api::core::v1::Node;
use staffetta_handler::HANDLER_LABEL;

/// A label on all virtual nodes and on no other node.
const TYPE: (&str, &str) = ("type", "virtual-kubelet");

/// The annotation of nodes that an agent keeps which is built on the library of the virtual kubelet; some such agents set no label.
const AGENT: &str = "virtual-kubelet.io/last-applied-node-status";

/// The label of the installation that keeps a node: several may keep nodes in one cluster.
const CLUSTER_LABEL: &str = "staffetta.dev/cluster";

/// A label, as key and value.
pub(crate) type Label = (&'static str, &'static str);

/// The owner of nodes: a handler of one installation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeOwner<'a> {
    /// The handler.
    pub(crate) handler: &'a str,
    /// The name by which the installation marks what it makes.
    pub(crate) cluster: &'a str,
    /// A label that identifies the nodes of a previous agent, which this handler takes over.
    pub(crate) predecessor: Option<Label>,
}

/// The ownership of a Node object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// Owned by this handler, or by a predecessor of the same machine.
    Ours,
    /// Owned by another handler or installation.
    Others,
    /// Owned by a kubelet.
    Real,
}

/// The labels by which a node is known to be ours. A description of a machine cannot change them.
pub(crate) fn own_labels<'a>(name: &'a str, node_owner: NodeOwner<'a>) -> [(&'static str, &'a str); 4] {
    [
        TYPE,
        (HANDLER_LABEL, node_owner.handler),
        (CLUSTER_LABEL, node_owner.cluster),
        ("kubernetes.io/hostname", name),
    ]
}

/// Returns `true` if the key is one of the labels that we manage.
pub(crate) fn is_own_label(key: &str) -> bool {
    let none = NodeOwner { handler: "", cluster: "", predecessor: None };
    own_labels("", none).iter().any(|(own, _)| *own == key)
}

/// Returns `true` if the node has a kubelet. A node marked by an installation has none, whatever its other labels
/// are.
pub(crate) fn is_real(node: &Node, predecessor: Option<Label>) -> bool {
    let has = |(key, value): Label| label(node, key) == Some(value);
    let marked = [HANDLER_LABEL, CLUSTER_LABEL].iter().all(|key| label(node, key).is_some());
    let agent = node.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(AGENT));
    !(marked || agent || has(TYPE) || predecessor.is_some_and(has))
}

/// Determines the ownership of a Node object. One that names no installation may belong to any.
pub(crate) fn ownership(node: &Node, node_owner: NodeOwner<'_>) -> Ownership {
    let is_or_none = |key, ours| label(node, key).is_none_or(|found| found == ours);
    if is_real(node, node_owner.predecessor) {
        Ownership::Real
    } else if is_or_none(HANDLER_LABEL, node_owner.handler) && is_or_none(CLUSTER_LABEL, node_owner.cluster) {
        Ownership::Ours
    } else {
        Ownership::Others
    }
}

/// Returns `true` if the node names this owner explicitly.
pub(crate) fn names_owner(node: &Node, node_owner: NodeOwner<'_>) -> bool {
    let says = |key, ours| label(node, key) == Some(ours);
    says(HANDLER_LABEL, node_owner.handler) && says(CLUSTER_LABEL, node_owner.cluster)
}

fn label<'a>(node: &'a Node, key: &str) -> Option<&'a str> {
    node.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_node_belongs_to_whom_its_labels_say() {
        let node_owner = NodeOwner { handler: "machines", cluster: "east", predecessor: None };
        let of = |labels: Value| {
            let node: Node = serde_json::from_value(json!({ "metadata": { "labels": labels } })).unwrap();
            (ownership(&node, node_owner), names_owner(&node, node_owner))
        };
        let kept = |handler: &str, cluster: &str| {
            of(json!({ "type": "virtual-kubelet", HANDLER_LABEL: handler, CLUSTER_LABEL: cluster }))
        };
        assert_eq!(of(json!({ "kubernetes.io/os": "linux" })), (Ownership::Real, false));
        assert_eq!(of(json!({ "type": "edge", HANDLER_LABEL: "machines" })), (Ownership::Real, false));
        assert_eq!(of(json!({ "type": "virtual-kubelet" })), (Ownership::Ours, false));
        let unnamed = of(json!({ "type": "virtual-kubelet", HANDLER_LABEL: "machines" }));
        assert_eq!(unnamed, (Ownership::Ours, false), "it may be that of any installation");
        assert_eq!(kept("machines", "east"), (Ownership::Ours, true));
        assert_eq!(kept("machines", "west"), (Ownership::Others, false));
        assert_eq!(kept("others", "east"), (Ownership::Others, false));
        let bare = |handler: &str| json!({ HANDLER_LABEL: handler, CLUSTER_LABEL: "east" });
        assert_eq!(of(bare("machines")), (Ownership::Ours, true), "it was marked, and lacks one label");
        assert_eq!(of(bare("others")), (Ownership::Others, false));
    }

    #[test]
    fn the_node_of_an_agent_that_kept_the_machine_before_has_no_kubelet() {
        let predecessor = ("provider", "before");
        let node_owner = NodeOwner { handler: "machines", cluster: "east", predecessor: Some(predecessor) };
        let of = |metadata: Value, node_owner| {
            let node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            ownership(&node, node_owner)
        };
        let labelled = json!({ "labels": { "platform": "x", "provider": "before" } });
        assert_eq!(of(labelled.clone(), node_owner), Ownership::Ours);
        assert_eq!(of(labelled, NodeOwner { predecessor: None, ..node_owner }), Ownership::Real);
        assert_eq!(of(json!({ "labels": { "provider": "other" } }), node_owner), Ownership::Real);
        let annotated = json!({ "annotations": { AGENT: "{}" } });
        assert_eq!(of(annotated, NodeOwner { predecessor: None, ..node_owner }), Ownership::Ours);
    }
}
