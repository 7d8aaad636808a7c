//! The choice of nodes for the pods of a template, with the semantics of Kubernetes: `nodeSelector`, required node affinity,
//! and tolerations (Kubernetes documentation, "Assigning Pods to Nodes", "Taints and Tolerations").

use k8s_openapi::api::core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PodSpec, Taint, Toleration};

use super::node::BaseNode;

/// Returns `true` if a pod with this specification may run on `node`. Preferences decide nothing.
pub(super) fn may_run(pod: &PodSpec, node: &BaseNode) -> bool {
    let selected = pod.node_selector.iter().flatten().all(|(key, value)| node.labels.get(key) == Some(value));
    let affinity = pod.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|node| node.required_during_scheduling_ignored_during_execution.as_ref());
    // Terms are alternatives. A selector without any term selects nothing.
    let attracted = required.is_none_or(|one| one.node_selector_terms.iter().any(|term| matches(term, node)));
    let tolerations = pod.tolerations.as_deref().unwrap_or_default();
    let tolerated = node.taints.iter().all(|taint| tolerations.iter().any(|one| tolerates(one, taint)));
    selected && attracted && tolerated
}

/// Returns `true` if the node meets all requirements of a node selector term. A term without requirements matches no node.
fn matches(term: &NodeSelectorTerm, node: &BaseNode) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if labels.is_empty() && fields.is_empty() {
        return false;
    }
    // The name is the only field that can be required.
    let field = |key: &str| (key == "metadata.name").then_some(node.name.as_str());
    labels.iter().all(|one| satisfies(one, node.labels.get(&one.key).map(String::as_str)))
        && fields.iter().all(|one| one.key == "metadata.name" && satisfies(one, field(&one.key)))
}

/// Returns `true` if a label with this value meets a requirement. `value` is `None` if the node has no such label.
fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let among = |value: &str| values.iter().any(|one| one == value);
    let compare = |holds: fn(&i64, &i64) -> bool| {
        let (Some(value), [bound]) = (value, values) else { return false };
        matches!((value.parse(), bound.parse()), (Ok(value), Ok(bound)) if holds(&value, &bound))
    };
    match requirement.operator.as_str() {
        "In" => value.is_some_and(among),
        "NotIn" => !value.is_some_and(among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compare(i64::gt),
        "Lt" => compare(i64::lt),
        _ => false,
    }
}

/// Returns `true` if a toleration tolerates a taint.
fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let absent = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if !absent(&toleration.effect) && text(&toleration.effect) != taint.effect {
        return false;
    }
    let any_value = toleration.operator.as_deref() == Some("Exists");
    if absent(&toleration.key) {
        return any_value;
    }
    text(&toleration.key) == taint.key && (any_value || text(&toleration.value) == text(&taint.value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn node() -> BaseNode {
        let labels = [("zone", "a"), ("size", "7")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        BaseNode { name: "vnode.b-1.dev".into(), labels: labels.into(), taints: Vec::new() }
    }

    fn pod(spec: Value) -> PodSpec {
        let mut spec = spec;
        spec["containers"] = json!([]);
        serde_json::from_value(spec).unwrap()
    }

    /// Returns a specification with these alternatives of requirements.
    fn required(terms: &Value) -> PodSpec {
        let required =
            json!({ "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": terms } });
        pod(json!({ "affinity": { "nodeAffinity": required } }))
    }

    fn one(key: &str, operator: &str, values: &[&str]) -> PodSpec {
        required(&json!([{ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] }]))
    }

    #[test]
    fn each_operator_means_what_kubernetes_says() {
        for (key, operator, values, expected) in [
            ("zone", "In", &["b", "a"][..], true),
            ("zone", "In", &["b"], false),
            ("rack", "In", &["a"], false),
            ("zone", "NotIn", &["b"], true),
            ("zone", "NotIn", &["a"], false),
            ("rack", "NotIn", &["a"], true),
            ("zone", "Exists", &[], true),
            ("rack", "Exists", &[], false),
            ("rack", "DoesNotExist", &[], true),
            ("zone", "DoesNotExist", &[], false),
            ("size", "Gt", &["6"], true),
            ("size", "Gt", &["7"], false),
            ("size", "Lt", &["8"], true),
            ("zone", "Lt", &["8"], false),
            ("size", "Gt", &["1", "2"], false),
            ("zone", "Like", &["a"], false),
        ] {
            assert_eq!(
                may_run(&one(key, operator, values), &node()),
                expected,
                "{key} {operator} {values:?}"
            );
        }
    }

    #[test]
    fn terms_are_alternatives_and_the_requirements_of_a_term_are_not() {
        let (yes, no) =
            (json!({ "key": "zone", "operator": "Exists" }), json!({ "key": "rack", "operator": "Exists" }));
        let expressions = |all: &[&Value]| json!({ "matchExpressions": all });
        let runs = |terms: &[Value]| may_run(&required(&terms.into()), &node());
        assert!(runs(&[expressions(&[&no]), expressions(&[&yes])]));
        assert!(!runs(&[expressions(&[&no, &yes])]));
        assert!(!runs(&[]) && !runs(&[json!({})]), "nothing is selected by nothing");
        let name = |value: &str| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [value] }] });
        assert!(runs(&[name("vnode.b-1.dev")]) && !runs(&[name("vnode.b-2.dev")]));
        let other = json!({ "matchFields": [{ "key": "spec.x", "operator": "DoesNotExist" }] });
        assert!(!runs(&[other]));
    }

    #[test]
    fn a_node_selector_and_the_affinity_must_both_match() {
        let selector = |zone: &str| pod(json!({ "nodeSelector": { "zone": zone } }));
        assert!(may_run(&selector("a"), &node()) && !may_run(&selector("b"), &node()));
        let mut both = one("size", "Gt", &["1"]);
        both.node_selector = selector("a").node_selector;
        assert!(may_run(&both, &node()));
        both.node_selector = selector("b").node_selector;
        assert!(!may_run(&both, &node()));
    }

    #[test]
    fn a_taint_repels_pods_that_do_not_tolerate_it() {
        let taint =
            Taint { key: "k".into(), value: Some("v".into()), effect: "NoExecute".into(), time_added: None };
        let tainted = BaseNode { taints: vec![taint], ..node() };
        let runs = |toleration: Value| may_run(&pod(json!({ "tolerations": [toleration] })), &tainted);
        assert!(!may_run(&pod(json!({})), &tainted));
        for toleration in [
            json!({ "operator": "Exists" }),
            json!({ "key": "k", "operator": "Exists" }),
            json!({ "key": "k", "value": "v" }),
            json!({ "key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute" }),
        ] {
            assert!(runs(toleration.clone()), "{toleration}");
        }
        for toleration in [
            json!({ "key": "k", "value": "w" }),
            json!({ "key": "k", "operator": "Exists", "effect": "NoSchedule" }),
            json!({ "key": "j", "operator": "Exists" }),
            json!({ "value": "v" }),
        ] {
            assert!(!runs(toleration.clone()), "{toleration}");
        }
    }

    proptest! {
        /// Law: `NotIn` is the opposite of `In`, `DoesNotExist` that of `Exists`, and a list of terms matches if one of them does.
        #[test]
        fn opposites_and_alternatives(
            label in prop::option::of("[ab]"),
            values in prop::collection::vec("[abc]", 1..3),
            operators in prop::collection::vec(prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]), 0..4),
        ) {
            let labels = label.iter().map(|value| ("zone".to_owned(), value.clone())).collect();
            let node = BaseNode { labels, ..node() };
            let values: Vec<_> = values.iter().map(String::as_str).collect();
            let runs = |operator| may_run(&one("zone", operator, &values), &node);
            prop_assert_eq!(runs("In"), !runs("NotIn"));
            prop_assert_eq!(runs("Exists"), !runs("DoesNotExist"));
            let terms: Vec<_> = operators.iter()
                .map(|operator| json!({ "matchExpressions": [{ "key": "zone", "operator": operator, "values": values }] }))
                .collect();
            let any = operators.iter().any(|operator| runs(operator));
            prop_assert_eq!(may_run(&required(&terms.into()), &node), any);
        }
    }
}
