//! JSON merge patch (RFC 7386).

use serde_json::Value;

use crate::object::map_mut;

/// Merges `patch` into `target`: maps field by field, null removes, anything else replaces.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let fields = map_mut(target);
    for (field, change) in changes {
        if change.is_null() {
            fields.remove(field);
        } else {
            merge(fields.entry(field.as_str()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The rows of RFC 7386, appendix A: original, patch, result.
    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (original, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!([1, 2]), json!({"a": "b", "c": null}), json!({"a": "b"})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut target = original.clone();
            merge(&mut target, &patch);
            assert_eq!(target, result, "{original} patched with {patch}");
        }
    }
}
