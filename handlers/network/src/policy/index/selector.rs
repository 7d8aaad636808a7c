//! Label selectors of network policies: of pods and of namespaces.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde::Serialize;

/// The labels of a Kubernetes object, by key.
pub(super) type Labels = BTreeMap<String, String>;

/// A label selector, of pods or of namespaces: a conjunction of requirements. An empty selector matches every object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct ObjectSelector(BTreeSet<LabelRequirement>);

/// A requirement of a label selector. The first text of each variant but the last is the key of the label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
enum LabelRequirement {
    /// The object has the label with one of these values.
    In(String, BTreeSet<String>),
    /// The object does not have the label with any of these values.
    NotIn(String, BTreeSet<String>),
    /// The object has the label.
    Exists(String),
    /// The object does not have the label.
    Absent(String),
    /// An operator that the Kubernetes API does not define, and which matches no object.
    Unknown(String),
}

impl ObjectSelector {
    /// Parses a label selector, so that equal requirements in `matchLabels` and `matchExpressions` give equal selectors.
    pub(super) fn of(selector: &LabelSelector) -> Self {
        let labels = selector.match_labels.iter().flatten();
        let labels = labels.map(|(key, value)| LabelRequirement::In(key.clone(), [value.clone()].into()));
        let expressions = selector.match_expressions.iter().flatten().map(LabelRequirement::of);
        Self(labels.chain(expressions).collect())
    }

    /// Returns `true` if all requirements match these labels.
    pub(super) fn matches(&self, labels: &Labels) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }

    /// Returns the operators in the selector that the Kubernetes API does not define.
    pub(super) fn unknown(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|requirement| match requirement {
            LabelRequirement::Unknown(operator) => Some(operator.as_str()),
            _ => None,
        })
    }
}

impl LabelRequirement {
    /// Parses one requirement of a selector; an unknown operator becomes [`LabelRequirement::Unknown`].
    fn of(expression: &LabelSelectorRequirement) -> Self {
        let values = || expression.values.iter().flatten().cloned().collect();
        let key = expression.key.clone();
        match expression.operator.as_str() {
            "In" => Self::In(key, values()),
            "NotIn" => Self::NotIn(key, values()),
            "Exists" => Self::Exists(key),
            "DoesNotExist" => Self::Absent(key),
            other => Self::Unknown(other.to_owned()),
        }
    }

    /// Returns `true` if these labels meet the requirement.
    fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Self::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Self::Exists(key) => labels.contains_key(key),
            Self::Absent(key) => !labels.contains_key(key),
            Self::Unknown(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_operators_are_evaluated() {
        let labels: Labels = [("tier".to_owned(), "web".to_owned())].into();
        let cases = [
            (json!({}), true),
            (json!({ "matchLabels": { "tier": "web" } }), true),
            (json!({ "matchLabels": { "tier": "db" } }), false),
            (json!({ "matchLabels": { "tier": "web", "zone": "a" } }), false),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["db", "web"] }] }),
                true,
            ),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "In", "values": ["a"] }] }), false),
            (
                json!({ "matchExpressions": [{ "key": "tier", "operator": "NotIn", "values": ["web"] }] }),
                false,
            ),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "NotIn", "values": ["a"] }] }), true),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "Exists" }] }), true),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "Exists" }] }), false),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "DoesNotExist" }] }), false),
            (json!({ "matchExpressions": [{ "key": "zone", "operator": "DoesNotExist" }] }), true),
            (json!({ "matchExpressions": [{ "key": "tier", "operator": "Like" }] }), false),
        ];
        for (selector, expected) in cases {
            let selected =
                ObjectSelector::of(&serde_json::from_value(selector.clone()).unwrap()).matches(&labels);
            assert_eq!(selected, expected, "{selector}");
        }
    }

    #[test]
    fn equivalent_selectors_are_equal() {
        let of = |text: serde_json::Value| ObjectSelector::of(&serde_json::from_value(text).unwrap());
        let listed = json!({ "matchExpressions": [{ "key": "a", "operator": "In", "values": ["1"] }] });
        assert_eq!(of(json!({ "matchLabels": { "a": "1" } })), of(listed));
        let odd = of(json!({ "matchExpressions": [{ "key": "a", "operator": "Like" }] }));
        assert_eq!(odd.unknown().collect::<Vec<_>>(), ["Like"]);
    }
}
