//! Keeps the fields of an annotation that this program does not know when the annotation is
//! rewritten.

use serde_json::{Map, Value, json};

use super::format::{DATA, NAME, VERSION, pod_state};

/// The key of the list of changed fields in an envelope of oslo.versionedobjects, which some programs write.
const CHANGES: &str = "versioned_object.changes";

/// Wraps a VIF outside of a `PodState`, as Kuryr's Queens release wrote it, in a `PodState`.
/// Returns any other value unchanged.
pub(super) fn as_pod_state(value: Value) -> Value {
    let is_vif = value.get(NAME).and_then(Value::as_str).is_some_and(|name| name.starts_with("VIF"));
    if is_vif { pod_state(json!({ "default_vif": value })) } else { value }
}

/// Merges the unknown fields of `old` into `new`. A field is unknown if `old` has it and `known`
/// does not; `known` is `old` as this program would have written it. An object in `new` that has
/// another class or another id than the object at its place in `old` is returned unchanged.
pub(super) fn overlay(old: Value, known: &Value, new: Value) -> Value {
    match (old, known, new) {
        (Value::Object(old), Value::Object(known), Value::Object(new)) if same_object(&old, &new) => {
            Value::Object(merge(old, known, new))
        }
        (Value::Array(old), Value::Array(known), Value::Array(new))
            if old.len() == known.len() && old.len() == new.len() =>
        {
            let elements = old.into_iter().zip(known).zip(new);
            Value::Array(elements.map(|((old, known), new)| overlay(old, known, new)).collect())
        }
        (_, _, new) => new,
    }
}

/// Merges two objects of the same class and id. The result has the fields of `new`, the unknown
/// fields of `old` and the class version of `old`.
fn merge(
    mut old: Map<String, Value>,
    known: &Map<String, Value>,
    new: Map<String, Value>,
) -> Map<String, Value> {
    let mut merged = Map::new();
    for (key, value) in new {
        let value = match (old.remove(&key), known.get(&key)) {
            // The unknown fields belong to the old version.
            (Some(version), _) if key == VERSION => version,
            (Some(old), Some(known)) => overlay(old, known, value),
            _ => value,
        };
        merged.insert(key, value);
    }
    merged.extend(old.into_iter().filter(|(key, _)| key != CHANGES && !known.contains_key(key)));
    merged
}

/// Returns `true` if both objects have the same class and id.
fn same_object(old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let id = |object: &Map<String, Value>| object.get(DATA).and_then(|data| data.get("id")).cloned();
    old.get(NAME) == new.get(NAME) && id(old) == id(new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, version: &str, data: &Value) -> Value {
        json!({ NAME: name, VERSION: version, DATA: data })
    }

    #[test]
    fn unknown_fields_and_the_version_of_the_old_object_are_kept() {
        let old = object("VIFBridge", "1.1", &json!({ "id": "a", "active": false, "vlan": 7 }));
        let known = object("VIFBridge", "1.0", &json!({ "id": "a", "active": false }));
        let new = object("VIFBridge", "1.0", &json!({ "id": "a", "active": true }));
        let expected = object("VIFBridge", "1.1", &json!({ "id": "a", "active": true, "vlan": 7 }));
        assert_eq!(overlay(old, &known, new), expected);
    }

    #[test]
    fn a_removed_known_field_stays_removed() {
        let old = object("Network", "1.1", &json!({ "id": "a", "mtu": 1450 }));
        let new = object("Network", "1.1", &json!({ "id": "a" }));
        assert_eq!(overlay(old.clone(), &old, new.clone()), new);
    }

    #[test]
    fn the_list_of_changes_is_dropped() {
        let known = object("VIFBridge", "1.0", &json!({}));
        let mut old = known.clone();
        old[CHANGES] = json!(["active"]);
        assert_eq!(overlay(old, &known, known.clone()), known);
    }

    #[test]
    fn objects_of_another_id_or_class_are_not_merged() {
        let new = object("VIFBridge", "1.0", &json!({ "id": "a" }));
        for (name, id) in [("VIFBridge", "b"), ("VIFOpenVSwitch", "a")] {
            let old = object(name, "1.0", &json!({ "id": id, "vlan": 7 }));
            let known = object(name, "1.0", &json!({ "id": id }));
            assert_eq!(overlay(old, &known, new.clone()), new);
        }
    }

    #[test]
    fn lists_of_equal_length_are_merged_element_by_element() {
        let merged = overlay(json!([{ "x": 1 }, 2]), &json!([{}, 2]), json!([{ "y": 3 }, 4]));
        assert_eq!(merged, json!([{ "x": 1, "y": 3 }, 4]));
        assert_eq!(overlay(json!([1, 2]), &json!([1, 2]), json!([3])), json!([3]));
    }
}
