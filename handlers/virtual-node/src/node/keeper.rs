//! Whose a Node object is.

use k8s_openapi::api::core::v1::Node;
use staffetta_handler::HANDLER_LABEL;

/// What virtual nodes have, and no other.
const TYPE: (&str, &str) = ("type", "virtual-kubelet");

/// The annotation of nodes that an agent keeps which is built on the library of the virtual kubelet; some such agents set no label.
const AGENT: &str = "virtual-kubelet.io/last-applied-node-status";

/// The label of the installation that keeps a node: several may keep nodes in one cluster.
const CLUSTER_LABEL: &str = "staffetta.dev/cluster";

/// A label, as key and value.
pub(crate) type Label = (&'static str, &'static str);

/// Who keeps a node: a handler of an installation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeper<'a> {
    /// The handler.
    pub(crate) handler: &'a str,
    /// The name by which the installation marks what it makes.
    pub(crate) cluster: &'a str,
    /// What the nodes have of the agent which kept such machines before, if there is one.
    pub(crate) predecessor: Option<Label>,
}

/// Whose a Node object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// That of this keeper, or of an agent like it which kept the machine before.
    Ours,
    /// That of another one.
    Others,
    /// That of a kubelet.
    Real,
}

/// The labels by which a node is known to be ours. A description of a machine cannot change them.
pub(crate) fn own_labels<'a>(name: &'a str, keeper: Keeper<'a>) -> [(&'static str, &'a str); 4] {
    [TYPE, (HANDLER_LABEL, keeper.handler), (CLUSTER_LABEL, keeper.cluster), ("kubernetes.io/hostname", name)]
}

/// Whether that is the key of one of these labels.
pub(crate) fn is_own_label(key: &str) -> bool {
    let nobody = Keeper { handler: "", cluster: "", predecessor: None };
    own_labels("", nobody).iter().any(|(own, _)| *own == key)
}

/// Whether a node has a kubelet. One that an installation has marked has none, whatever somebody did to its other labels.
pub(crate) fn is_real(node: &Node, predecessor: Option<Label>) -> bool {
    let has = |(key, value): Label| label(node, key) == Some(value);
    let marked = [HANDLER_LABEL, CLUSTER_LABEL].iter().all(|key| label(node, key).is_some());
    let agent = node.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(AGENT));
    !(marked || agent || has(TYPE) || predecessor.is_some_and(has))
}

/// Whose a Node object is, as `keeper` sees it. One that names no installation may be that of any.
pub(crate) fn standing(node: &Node, keeper: Keeper<'_>) -> Standing {
    let is_or_none = |key, ours| label(node, key).is_none_or(|found| found == ours);
    if is_real(node, keeper.predecessor) {
        Standing::Real
    } else if is_or_none(HANDLER_LABEL, keeper.handler) && is_or_none(CLUSTER_LABEL, keeper.cluster) {
        Standing::Ours
    } else {
        Standing::Others
    }
}

/// Whether a node says of itself that this keeper keeps it, and not only that anybody may.
pub(crate) fn has_keeper(node: &Node, keeper: Keeper<'_>) -> bool {
    let says = |key, ours| label(node, key) == Some(ours);
    says(HANDLER_LABEL, keeper.handler) && says(CLUSTER_LABEL, keeper.cluster)
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
        let keeper = Keeper { handler: "machines", cluster: "east", predecessor: None };
        let of = |labels: Value| {
            let node: Node = serde_json::from_value(json!({ "metadata": { "labels": labels } })).unwrap();
            (standing(&node, keeper), has_keeper(&node, keeper))
        };
        let kept = |handler: &str, cluster: &str| {
            of(json!({ "type": "virtual-kubelet", HANDLER_LABEL: handler, CLUSTER_LABEL: cluster }))
        };
        assert_eq!(of(json!({ "kubernetes.io/os": "linux" })), (Standing::Real, false));
        assert_eq!(of(json!({ "type": "edge", HANDLER_LABEL: "machines" })), (Standing::Real, false));
        assert_eq!(of(json!({ "type": "virtual-kubelet" })), (Standing::Ours, false));
        let unnamed = of(json!({ "type": "virtual-kubelet", HANDLER_LABEL: "machines" }));
        assert_eq!(unnamed, (Standing::Ours, false), "it may be that of any installation");
        assert_eq!(kept("machines", "east"), (Standing::Ours, true));
        assert_eq!(kept("machines", "west"), (Standing::Others, false));
        assert_eq!(kept("others", "east"), (Standing::Others, false));
        let bare = |handler: &str| json!({ HANDLER_LABEL: handler, CLUSTER_LABEL: "east" });
        assert_eq!(of(bare("machines")), (Standing::Ours, true), "it was marked, and lacks one label");
        assert_eq!(of(bare("others")), (Standing::Others, false));
    }

    #[test]
    fn the_node_of_an_agent_that_kept_the_machine_before_has_no_kubelet() {
        let predecessor = ("provider", "before");
        let keeper = Keeper { handler: "machines", cluster: "east", predecessor: Some(predecessor) };
        let of = |metadata: Value, keeper| {
            let node: Node = serde_json::from_value(json!({ "metadata": metadata })).unwrap();
            standing(&node, keeper)
        };
        let labelled = json!({ "labels": { "platform": "x", "provider": "before" } });
        assert_eq!(of(labelled.clone(), keeper), Standing::Ours);
        assert_eq!(of(labelled, Keeper { predecessor: None, ..keeper }), Standing::Real);
        assert_eq!(of(json!({ "labels": { "provider": "other" } }), keeper), Standing::Real);
        let annotated = json!({ "annotations": { AGENT: "{}" } });
        assert_eq!(of(annotated, Keeper { predecessor: None, ..keeper }), Standing::Ours);
    }
}
