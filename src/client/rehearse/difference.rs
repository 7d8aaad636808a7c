//! What a write would change in an object. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use staffetta_handler::Particular;

/// One place in which two states of an object differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    place: Place,
    from: Option<Value>,
    to: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
enum Place {
    /// A field, by the names that lead to it.
    Field(Vec<String>),
    /// One of the finalizers: they are a set, and each is somebody else's.
    Finalizer(String),
}

/// What the server writes by itself, what nobody can change, what every object has, and when somebody was last heard of.
const NOT_TOLD: [&[&str]; 11] = [
    &["apiVersion"],
    &["kind"],
    &["metadata", "creationTimestamp"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "resourceVersion"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["spec", "renewTime"],
];

/// How the key begins under which a strategic merge patch removes from a list.
const REMOVED_FROM: &str = "$deleteFromPrimitiveList/";

/// What leads from `before` to `after`, in the order of the names. A map that is absent and one that is empty are the same.
pub(super) fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(&mut Vec::new(), Some(before), Some(after), &mut found);
    found
}

fn compare(
    path: &mut Vec<String>,
    before: Option<&Value>,
    after: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    let nothing = Map::new();
    let (before, after) = (before.filter(|value| !value.is_null()), after.filter(|value| !value.is_null()));
    if before == after || NOT_TOLD.iter().any(|place| path.iter().eq(place.iter())) {
        return;
    }
    if path.as_slice() == ["metadata", "finalizers"] {
        let of = |list: Option<&Value>| -> BTreeSet<String> {
            let list = list.and_then(Value::as_array).into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let (before, after) = (of(before), of(after));
        for finalizer in before.symmetric_difference(&after) {
            let side = |held: bool| held.then_some(Value::Bool(true));
            found.push(Difference {
                place: Place::Finalizer(finalizer.clone()),
                from: side(before.contains(finalizer)),
                to: side(after.contains(finalizer)),
            });
        }
        return;
    }
    let map = |side: Option<&'_ Value>| side.is_none_or(Value::is_object);
    if map(before) && map(after) {
        let before = before.and_then(Value::as_object).unwrap_or(&nothing);
        let after = after.and_then(Value::as_object).unwrap_or(&nothing);
        for key in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
            path.push(key.clone());
            compare(path, before.get(key), after.get(key), found);
            path.pop();
        }
        return;
    }
    found.push(Difference { place: Place::Field(path.clone()), from: before.cloned(), to: after.cloned() });
}

impl Difference {
    /// Changes `object` as this says.
    pub(super) fn apply(&self, object: &mut Value) {
        match &self.place {
            Place::Finalizer(finalizer) => {
                let list = field(object, &["metadata".to_owned(), "finalizers".to_owned()]);
                let mut held = list.as_array().cloned().unwrap_or_default();
                held.retain(|present| present != finalizer.as_str());
                if self.to.is_some() {
                    held.push(finalizer.as_str().into());
                }
                *list = held.into();
            }
            Place::Field(path) => match (&self.to, path.split_last()) {
                (Some(to), _) => *field(object, path) = to.clone(),
                (None, Some((key, parents))) => {
                    if let Some(parent) = field(object, parents).as_object_mut() {
                        parent.remove(key);
                    }
                }
                (None, None) => *object = Value::Null,
            },
        }
    }

    /// For people; of a secret without what it holds.
    pub(super) fn particular(&self, secret: bool) -> Particular {
        let (name, hidden) = match &self.place {
            Place::Finalizer(finalizer) => (format!("finalizer {finalizer}"), false),
            Place::Field(path) => {
                let name = match path.as_slice() {
                    [meta, annotations, key] if meta == "metadata" && annotations == "annotations" => {
                        format!("annotation {key}")
                    }
                    [meta, labels, key] if meta == "metadata" && labels == "labels" => format!("label {key}"),
                    path => path.join("."),
                };
                let data = path.first().is_some_and(|first| first == "data" || first == "stringData");
                (name, secret && data)
            }
        };
        let shown = |value: &Option<Value>| {
            value.clone().map(|value| if hidden { Value::from("(hidden)") } else { value })
        };
        Particular::Changes { name, from: shown(&self.from), to: shown(&self.to) }
    }
}

/// The field at the end of `path`, made where it is absent.
fn field<'a>(object: &'a mut Value, path: &[String]) -> &'a mut Value {
    let mut place = object;
    for step in path {
        if !place.is_object() {
            *place = Value::Object(Map::new());
        }
        let map = place.as_object_mut().expect("it was made one");
        place = map.entry(step.as_str()).or_insert(Value::Null);
    }
    place
}

/// About what the server would make of `object` and a merge patch, strategic or not, for when it cannot be asked: lists are
/// replaced, finalizers added and removed one by one.
pub(super) fn merged(object: &Value, patch: &Value) -> Value {
    let mut merged = object.clone();
    merge(&mut merged, patch);
    merged
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else { return };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let target = target.as_object_mut().expect("it was made one");
    for (key, change) in patch {
        if let Some(list) = key.strip_prefix(REMOVED_FROM) {
            let removed = change.as_array().cloned().unwrap_or_default();
            if let Some(list) = target.get_mut(list).and_then(Value::as_array_mut) {
                list.retain(|present| !removed.contains(present));
            }
        } else if key == "finalizers" {
            let list = target.entry(key.as_str()).or_insert(Value::Null);
            let mut held = list.as_array().cloned().unwrap_or_default();
            let added = change.as_array().into_iter().flatten();
            held.extend(added.filter(|added| !held.contains(added)).cloned().collect::<Vec<_>>());
            *list = held.into();
        } else if change.is_object() {
            merge(target.entry(key.as_str()).or_insert(Value::Null), change);
        } else if !key.starts_with('$') {
            target.insert(key.clone(), change.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn names(before: &Value, after: &Value) -> Vec<String> {
        let particular = |difference: &Difference| match difference.particular(false) {
            Particular::Changes { name, from, to } => format!("{name} {} {}", from.is_some(), to.is_some()),
            Particular::Is { name, .. } => panic!("{name} is no change"),
        };
        differences(before, after).iter().map(particular).collect()
    }

    #[test]
    fn annotations_and_finalizers_are_told_one_by_one_and_what_the_server_writes_is_not() {
        let before = json!({ "metadata": { "uid": "u", "resourceVersion": "1", "generation": 1, "finalizers": ["a/b", "c/d"],
            "annotations": { "kept": "1", "old": "1", "other": "1" } } });
        let after = json!({ "metadata": { "uid": "u", "resourceVersion": "2", "generation": 2, "finalizers": ["e/f", "a/b"],
            "managedFields": [{}], "labels": { "new": "1" }, "annotations": { "kept": "1", "new": "1", "other": "2" } } });
        let expected = [
            "annotation new false true",
            "annotation old true false",
            "annotation other true true",
            "finalizer c/d true false",
            "finalizer e/f false true",
            "label new false true",
        ];
        assert_eq!(names(&before, &after), expected);
    }

    #[test]
    fn fields_are_told_by_their_path_and_lists_as_a_whole() {
        let before = json!({ "spec": { "a": { "b": 1 } }, "status": { "loadBalancer": {} } });
        let after = json!({ "spec": { "a": { "b": 1 } }, "status": { "loadBalancer": { "ingress": [{ "ip": "1.2.3.4" }] } } });
        assert_eq!(names(&before, &after), ["status.loadBalancer.ingress false true"]);
        assert_eq!(names(&json!({}), &json!({ "status": {}, "spec": null })), [""; 0]);
    }

    #[test]
    fn what_a_secret_holds_is_hidden() {
        let (before, after) =
            (json!({ "data": { "password": "b2xk" } }), json!({ "data": { "password": "bmV3" } }));
        let shown = |secret| format!("{:?}", differences(&before, &after)[0].particular(secret));
        assert!(shown(false).contains("bmV3"));
        assert!(!shown(true).contains("b2xk") && !shown(true).contains("bmV3"), "{}", shown(true));
        assert!(shown(true).contains("data.password"));
    }

    #[test]
    fn a_merge_knows_of_strategic_patches_what_this_program_sends() {
        let object = json!({ "metadata": { "finalizers": ["a/b", "c/d"], "annotations": { "k": "v" } } });
        let patch = json!({ "metadata": { "finalizers": ["e/f", "a/b"], "annotations": { "k": null, "n": "1" },
            "$deleteFromPrimitiveList/finalizers": ["c/d"] }, "status": { "x": [1] } });
        let after = merged(&object, &patch);
        let expected = [
            "annotation k true false",
            "annotation n false true",
            "finalizer c/d true false",
            "finalizer e/f false true",
            "status.x false true",
        ];
        assert_eq!(names(&object, &after), expected);
    }

    fn object() -> impl Strategy<Value = Value> {
        let texts = prop::collection::btree_map("[a-c]", "[xy]", 0..3);
        let finalizers = prop::collection::btree_set("[a-c]/f", 0..3);
        let status = prop::collection::btree_map("[a-c]", prop::collection::vec(0..3_u8, 0..2), 0..3);
        (texts.clone(), texts, finalizers, status).prop_map(|(annotations, labels, finalizers, status)| {
            json!({ "metadata": { "annotations": annotations, "labels": labels, "finalizers": finalizers },
                "status": status })
        })
    }

    proptest! {
        #[test]
        fn applied_differences_lead_from_the_one_to_the_other(before in object(), after in object()) {
            let mut made = before.clone();
            for difference in differences(&before, &after) {
                difference.apply(&mut made);
            }
            prop_assert_eq!(differences(&made, &after), []);
            prop_assert!(!made.to_string().contains("null"), "what is removed is not there: {}", made);
        }

        #[test]
        fn what_somebody_else_changed_meanwhile_stays(before in object(), after in object()) {
            let mut meanwhile = before.clone();
            meanwhile["metadata"]["annotations"]["theirs"] = json!("new");
            meanwhile["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("their/own"));
            for difference in differences(&before, &after) {
                difference.apply(&mut meanwhile);
            }
            prop_assert_eq!(&meanwhile["metadata"]["annotations"]["theirs"], "new");
            let finalizers = meanwhile["metadata"]["finalizers"].as_array().unwrap();
            prop_assert!(finalizers.contains(&json!("their/own")));
        }
    }
}
