//! Checks the specification of a device, without its driver. Labels and taints are checked by the rules of the API
//! server, which would otherwise reject the Node object.

use std::collections::HashSet;

use super::description::node;
use super::device::DeviceDescription;
use crate::node::{is_label_key, is_label_value, is_own_label};

/// Returns a message about the first field of a specification that is invalid for every driver, with the path of the field;
/// `None` if there is none.
pub(super) fn mistake(spec: &DeviceDescription) -> Option<String> {
    if spec.port == Some(0) {
        return Some("port: must be 1 to 65535".to_owned());
    }
    if spec.max_pods == 0 {
        return Some("maxPods: must be 1 or more".to_owned());
    }
    if let Some(key) = spec.labels.keys().find(|key| is_own_label(key)) {
        return Some(format!("labels: `{key}` is reserved: it identifies the owner of the node"));
    }
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    for (field, value) in [("region", &spec.region), ("zone", &spec.zone)] {
        values.extend(value.as_deref().map(|value| (field.to_owned(), value)));
    }
    for (key, value) in &spec.labels {
        keys.push((format!("labels[{key}]"), key.as_str()));
        values.push((format!("labels[{key}]"), value.as_str()));
    }
    for (place, taint) in spec.taints.iter().enumerate() {
        keys.push((format!("taints[{place}].key"), taint.key.as_str()));
        values.push((format!("taints[{place}].value"), taint.value.as_str()));
    }
    if let Some((path, _)) = keys.into_iter().find(|(_, key)| !is_label_key(key)) {
        return Some(format!(
            "{path}: a key is a name, or a domain, `/` and a name, of at most 63 letters, digits, `-`, `_` and `.`"
        ));
    }
    if let Some((path, _)) = values.into_iter().find(|(_, value)| !is_label_value(value)) {
        return Some(format!(
            "{path}: a value has at most 63 letters, digits, `-`, `_` and `.`, with a letter or a digit at both ends"
        ));
    }
    let mut seen = HashSet::new();
    let taints = node("", spec).taints;
    let twice = taints.iter().find(|taint| !seen.insert((&taint.key, &taint.effect)))?;
    Some(format!("taints: the node has one `{}` with the effect {} already", twice.key, twice.effect))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn mistake_of(more: &Value) -> Option<String> {
        let mut spec = json!({ "address": "x" });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        mistake(&serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn labels_and_taints_that_a_server_refuses_are_named_with_their_field() {
        let long = "x".repeat(64);
        for (more, path) in [
            (json!({ "labels": { "rack": "seven of nine" } }), "labels[rack]: a value"),
            (json!({ "labels": { "rack": long } }), "labels[rack]: a value"),
            (json!({ "labels": { "a b": "1" } }), "labels[a b]: a key"),
            (json!({ "labels": { "Example.com/rack": "1" } }), "labels[Example.com/rack]: a key"),
            (json!({ "labels": { "example.com/": "1" } }), "labels[example.com/]: a key"),
            (json!({ "labels": { "": "1" } }), "labels[]: a key"),
            (json!({ "region": "-north" }), "region: a value"),
            (json!({ "zone": "a/b" }), "zone: a value"),
            (json!({ "taints": [{ "key": "a/b/c", "effect": "NoExecute" }] }), "taints[0].key: a key"),
            (
                json!({ "taints": [{ "key": "a", "value": "b.", "effect": "NoExecute" }] }),
                "taints[0].value: a value",
            ),
            (
                json!({ "taints": [{ "key": "a", "effect": "NoExecute" }, { "key": "a", "value": "b", "effect": "NoExecute" }] }),
                "taints: the node has one `a`",
            ),
            (
                json!({ "taints": [{ "key": "virtual-kubelet.io/provider", "effect": "NoSchedule" }] }),
                "taints: the node has one `virtual-kubelet.io/provider`",
            ),
        ] {
            let reported = mistake_of(&more).unwrap_or_else(|| panic!("{more} is taken"));
            assert!(reported.starts_with(path), "{reported}");
        }
    }

    #[test]
    fn what_a_server_takes_is_taken() {
        let taints =
            json!([{ "key": "edge", "effect": "NoExecute" }, { "key": "edge", "effect": "NoSchedule" }]);
        let labels = json!({ "rack": "", "example.com/Row_1.a": "B-2_c.d", "x": "x".repeat(63) });
        assert_eq!(
            mistake_of(&json!({ "labels": labels, "taints": taints, "region": "n", "zone": "" })),
            None
        );
    }
}
