//! Ownership of Node objects: this handler, another handler or installation, or a kubelet.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::api::core::v1::Node;
use staffetta_handler::{CLUSTER_LABEL, HANDLER_LABEL};

use super::label::LONGEST;

/// A label of all virtual nodes, as key and value. No other node has it.
const TYPE: (&str, &str) = ("type", "virtual-kubelet");

/// An annotation that providers built on the virtual-kubelet library write on their nodes; some of these providers
/// write no label.
const AGENT: &str = "virtual-kubelet.io/last-applied-node-status";

/// The key and value of a label.
pub(crate) type Label = (&'static str, &'static str);

/// The owner of a virtual node: a handler of one installation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeOwner<'a> {
    /// The name of the handler.
    pub(crate) handler: &'a str,
    /// The name of the installation.
    pub(crate) cluster: &'a str,
    /// A label of the nodes of a previous controller: this handler takes over the nodes that have it. `None` if there is no such
    /// controller.
    pub(crate) predecessor: Option<Label>,
}

/// The ownership of a Node object, from the view of one handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ownership {
    /// The handler owns the object, or may take it over.
    Ours,
    /// Another handler or installation owns the object.
    Others,
    /// A kubelet owns the object.
    Real,
}

/// Returns the labels that identify a virtual node and its owner. The labels of a `NodeSpec` cannot change them.
pub(crate) fn own_labels<'a>(name: &'a str, node_owner: NodeOwner<'a>) -> [(&'static str, Cow<'a, str>); 4] {
    let (key, value) = TYPE;
    [
        (key, value.into()),
        (HANDLER_LABEL, node_owner.handler.into()),
        (CLUSTER_LABEL, node_owner.cluster.into()),
        ("kubernetes.io/hostname", host_name(name)),
    ]
}

/// Returns the value of the label `kubernetes.io/hostname`: the name of the node. A name that is too long for a label is cut
/// and gets a digest of the whole name, so that it stays unique.
fn host_name(name: &str) -> Cow<'_, str> {
    if name.len() <= LONGEST {
        return name.into();
    }
    let mut digest = DefaultHasher::new();
    name.hash(&mut digest);
    format!("{name:.46}-{:016x}", digest.finish()).into()
}

/// Returns `true` if the key is that of a label that identifies a virtual node or its owner.
pub(crate) fn is_own_label(key: &str) -> bool {
    let none = NodeOwner { handler: "", cluster: "", predecessor: None };
    own_labels("", none).iter().any(|(own, _)| *own == key)
}

/// Returns `true` if the node has a kubelet: it carries neither the labels of an owner, nor the label or annotation of
/// a virtual kubelet, nor the label of the `predecessor`.
pub(crate) fn is_real(node: &Node, predecessor: Option<Label>) -> bool {
    let has = |(key, value): Label| label(node, key) == Some(value);
    let marked = [HANDLER_LABEL, CLUSTER_LABEL].iter().all(|key| label(node, key).is_some());
    let agent = node.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(AGENT));
    !(marked || agent || has(TYPE) || predecessor.is_some_and(has))
}

/// Determines who owns a Node object. This handler owns a virtual node without labels of another handler or
/// installation.
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

/// Returns `true` if the labels of the node name this handler and this installation. Unlike [`ownership`], a missing
/// label does not match.
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
    fn the_host_name_of_a_node_fits_into_a_label_and_is_unique() {
        let [one, other] = ["a", "b"].map(|end| format!("vnode.{}.{end}", "x".repeat(60)));
        assert_eq!(host_name("vnode.base-1.dev"), "vnode.base-1.dev");
        assert!([&one, &other].iter().all(|name| crate::node::is_label_value(&host_name(name))));
        assert_ne!(host_name(&one), host_name(&other));
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
