//! Finds the fields that a write changes. This module does no I/O.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::operate::dry_run::plan::StepDetail;

/// The current and the new value of each changed field (`None` if the field is absent), by the path of the field. The path of a finalizer
/// is `metadata`, `finalizers` and its name.
type ChangedFields = BTreeMap<Vec<String>, (Option<Value>, Option<Value>)>;

/// Fields that are not shown, because the server sets them, every object has them, or the renewal of a lease changes them every few
/// seconds.
const HIDDEN: [&[&str]; 9] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "uid"],
    &["spec", "renewTime"],
];

/// The prefix of a key in a strategic merge patch that removes entries of a list.
const REMOVED_FROM: &str = "$deleteFromPrimitiveList/";

/// Returns the fields in `patch` that differ between `before` and `after`, sorted by path. `after` is the object that the server returned;
/// if it is `None`, the values in the patch are the new ones. An absent field is equal to a field that is null. If `secret` is `true`, the
/// values below `data` and `stringData` are hidden.
pub(super) fn changes(patch: &Value, before: &Value, after: Option<&Value>, secret: bool) -> Vec<StepDetail> {
    let mut found = ChangedFields::new();
    compare(&mut Vec::new(), patch, before, after, &mut found);
    found.into_iter().map(|(path, values)| detail(&path, values, secret)).collect()
}

/// Adds to `found` each field in `patch` whose value differs between `before` and `after`; if `after` is `None`, the values in `patch` are
/// the new ones. `path` is the path of `patch` within the whole write.
fn compare(
    path: &mut Vec<String>,
    patch: &Value,
    before: &Value,
    after: Option<&Value>,
    found: &mut ChangedFields,
) {
    if HIDDEN.iter().any(|hidden| path.iter().eq(hidden.iter())) {
        return;
    }
    let Value::Object(fields) = patch else {
        let value = |side: &Value| Some(side.clone()).filter(|value| !value.is_null());
        let (from, to) = (value(before), value(after.unwrap_or(patch)));
        if from != to {
            found.insert(path.clone(), (from, to));
        }
        return;
    };
    for (key, patch) in fields {
        let name = key.strip_prefix(REMOVED_FROM).unwrap_or(key);
        if name.starts_with('$') {
            continue;
        }
        let (before, after) = (&before[name], after.map(|after| &after[name]));
        path.push(name.to_owned());
        if path.as_slice() == ["metadata", "finalizers"] {
            // Finalizers are a set with several owners, so each one is a field of its own.
            let (before, after, mut named) = (as_set(before), after.map(as_set), as_set(patch));
            if name == key {
                named.extend(before.clone());
            } else {
                named.values_mut().for_each(|value| *value = Value::Null);
            }
            compare(path, &named.into(), &before.into(), after.map(Value::Object).as_ref(), found);
        } else {
            compare(path, patch, before, after, found);
        }
        path.pop();
    }
}

/// The state of an object before and after a write that the server accepts in a dry run. The server stores nothing, so neither state
/// contains the changes of earlier writes of the dry run. After a conflict, both are the state that was read.
pub(in crate::operate::dry_run) struct AcceptedWrite {
    pub(super) before: Value,
    pub(super) after: Value,
}

/// Returns an object with the changes of all `writes`, based on the state that the server stored last.
pub(in crate::operate::dry_run) fn combined(writes: &[AcceptedWrite]) -> Value {
    let mut newer = writes.last().map(|write| write.before.clone()).unwrap_or_default();
    for AcceptedWrite { before, after } in writes {
        apply_changes(&mut newer, before, after);
    }
    newer
}

/// Makes the changes between `before` and `after`, two states of an object, in `newer`, another state of the same object. The items of a
/// list are added and removed one by one, because a list such as the finalizers has several owners; an added item replaces an item with
/// the same UID, type or name.
fn apply_changes(newer: &mut Value, before: &Value, after: &Value) {
    match (newer, after) {
        (newer, after) if newer == before => *newer = after.clone(),
        (Value::Object(newer), Value::Object(after)) => {
            for (name, after) in after.iter().filter(|(name, after)| before[name.as_str()] != **after) {
                apply_changes(newer.entry(name).or_insert(Value::Null), &before[name], after);
            }
            newer.retain(|name, _| after.contains_key(name) || before.get(name).is_none());
        }
        (Value::Array(newer), Value::Array(after)) => {
            let before = before.as_array().map_or(&[][..], Vec::as_slice);
            let added = after.iter().filter(|item| !before.contains(item));
            let is_replaced = |item: &Value| added.clone().any(|added| identity(added) == identity(item));
            newer.retain(|item| (after.contains(item) || !before.contains(item)) && !is_replaced(item));
            newer.extend(added.clone().cloned());
        }
        (newer, after) => *newer = after.clone(),
    }
}

/// Returns the part of an item of a list that distinguishes the item from the others: its UID, its type or its name, or the whole item.
fn identity(item: &Value) -> &Value {
    ["uid", "type", "name"].into_iter().find_map(|field| item.get(field)).unwrap_or(item)
}

/// Converts a JSON list of names to an object with the value `true` for each name.
fn as_set(list: &Value) -> Map<String, Value> {
    let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|name| (name.to_owned(), true.into())).collect()
}

/// Converts a changed field to a detail of a planned step: `from` is its current value and `to` its new value, `None` if it is absent. If
/// `secret` is `true`, the values below `data` and `stringData` are hidden.
fn detail(path: &[String], (from, to): (Option<Value>, Option<Value>), secret: bool) -> StepDetail {
    let path: Vec<_> = path.iter().map(String::as_str).collect();
    let hidden = secret && matches!(path.first(), Some(&("data" | "stringData")));
    let name = match path.as_slice() {
        ["metadata", "annotations", key] => format!("annotation {key}"),
        ["metadata", "labels", key] => format!("label {key}"),
        ["metadata", "finalizers", finalizer] => format!("finalizer {finalizer}"),
        path => path.join("."),
    };
    let shown = |value: Value| if hidden { Value::from("(hidden)") } else { value };
    StepDetail::Change { name, from: from.map(shown), to: to.map(shown) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(patch: &Value, before: &Value, after: Option<&Value>) -> Vec<String> {
        let found = changes(patch, before, after, false).into_iter().map(|change| match change {
            StepDetail::Change { name, from, to } => format!("{name} {} {}", from.is_some(), to.is_some()),
            StepDetail::Argument { name, .. } => panic!("{name} is not a change"),
        });
        found.collect()
    }

    #[test]
    fn annotations_and_finalizers_are_compared_one_by_one_and_only_those_that_the_patch_names() {
        let before = json!({ "metadata": { "uid": "u", "resourceVersion": "1", "finalizers": ["a/b", "c/d"],
            "annotations": { "kept": "1", "old": "1", "other": "1", "theirs": "1" } } });
        let after = json!({ "metadata": { "uid": "u", "resourceVersion": "2", "finalizers": ["e/f", "a/b"],
            "labels": { "new": "1", "theirs": "1" }, "annotations": { "kept": "1", "new": "1", "other": "2", "theirs": "2" } } });
        let patch = json!({ "metadata": { "uid": "u", "resourceVersion": "1", "finalizers": ["e/f"],
            "$deleteFromPrimitiveList/finalizers": ["c/d"], "labels": { "new": "1" },
            "annotations": { "kept": "1", "old": null, "new": "1", "other": "2" } } });
        let found = names(&patch, &before, Some(&after));
        let expected = [
            "annotation new false true",
            "annotation old true false",
            "annotation other true true",
            "finalizer c/d true false",
            "finalizer e/f false true",
            "label new false true",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn without_an_answer_the_values_of_the_patch_are_the_new_ones() {
        let before = json!({ "metadata": { "finalizers": ["a/b", "c/d"], "annotations": { "k": "v" } } });
        let patch = json!({ "metadata": { "finalizers": ["e/f", "a/b"], "annotations": { "k": null, "n": "1" },
            "$deleteFromPrimitiveList/finalizers": ["c/d"] }, "status": { "x": [1] } });
        let found = names(&patch, &before, None);
        let expected = [
            "annotation k true false",
            "annotation n false true",
            "finalizer c/d true false",
            "finalizer e/f false true",
            "status.x false true",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn fields_are_named_by_their_path_and_lists_are_compared_as_a_whole() {
        let ingress = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } } });
        let before = json!({ "status": { "loadBalancer": {} } });
        assert_eq!(names(&ingress, &before, Some(&ingress)), ["status.loadBalancer.ingress false true"]);
        assert_eq!(names(&ingress, &ingress, Some(&ingress)), [""; 0]);
        assert_eq!(names(&json!({ "status": {}, "spec": null }), &json!({}), None), [""; 0]);
    }

    #[test]
    fn the_changes_of_two_writes_are_applied_together() {
        let stored = json!({ "spec": {}, "metadata": { "resourceVersion": "1", "annotations": { "old": "1", "kept": "1" } } });
        let mut newer = stored.clone();
        for written in [
            json!({ "spec": {}, "metadata": { "resourceVersion": "2", "annotations": { "kept": "1", "a": "1" }, "finalizers": ["a/b"] } }),
            json!({ "spec": {}, "metadata": { "resourceVersion": "2", "annotations": { "old": "1", "kept": "2" }, "finalizers": ["c/d"] } }),
        ] {
            apply_changes(&mut newer, &stored, &written);
        }
        let expected = json!({ "resourceVersion": "2", "annotations": { "kept": "2", "a": "1" }, "finalizers": ["a/b", "c/d"] });
        assert_eq!(newer, json!({ "spec": {}, "metadata": expected }));
    }

    #[test]
    fn an_item_that_two_writes_add_or_change_is_there_once() {
        let stored = json!({ "finalizers": [], "conditions": [{ "type": "A", "status": "0" }, { "type": "B", "status": "0" }] });
        let mut newer = stored.clone();
        for status in ["1", "2"] {
            let conditions = json!([{ "type": "A", "status": status }, { "type": "B", "status": "0" }]);
            apply_changes(&mut newer, &stored, &json!({ "finalizers": ["a/b"], "conditions": conditions }));
        }
        let conditions = json!([{ "type": "B", "status": "0" }, { "type": "A", "status": "2" }]);
        assert_eq!(newer, json!({ "finalizers": ["a/b"], "conditions": conditions }));
    }

    #[test]
    fn the_order_of_a_list_that_one_write_changes_is_kept() {
        let (stored, written) = (json!(["a", "b"]), json!(["b", "a", "a"]));
        let mut newer = stored.clone();
        apply_changes(&mut newer, &stored, &written);
        assert_eq!(newer, written);
    }

    #[test]
    fn the_renewal_of_a_lease_is_no_change() {
        let (before, after) =
            (json!({ "spec": { "renewTime": "1" } }), json!({ "spec": { "renewTime": "2" } }));
        assert_eq!(names(&after, &before, Some(&after)), [""; 0]);
    }

    #[test]
    fn the_data_of_a_secret_is_hidden() {
        let (before, after) =
            (json!({ "data": { "password": "b2xk" } }), json!({ "data": { "password": "bmV3" } }));
        let shown = |secret| format!("{:?}", changes(&after, &before, Some(&after), secret));
        assert!(shown(false).contains("bmV3"));
        assert!(!shown(true).contains("b2xk") && !shown(true).contains("bmV3"), "{}", shown(true));
        assert!(shown(true).contains("data.password"));
    }
}
