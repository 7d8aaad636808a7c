//! The metadata of objects, which are plain JSON: name, version, owners.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value};

/// A stored object. It is never changed in place: a write stores another one.
pub(crate) type Object = Arc<Value>;

/// The key of an object within its resource. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

/// A string of the metadata; empty where it is absent.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// The metadata, made where it is absent.
pub(crate) fn meta_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(map_mut(object).entry("metadata").or_insert(Value::Null))
}

/// The value as a map; anything else is replaced by an empty one.
pub(crate) fn map_mut(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made an object above")
}

/// Copies one field of `from` into `into`, or removes it where `from` has none.
pub(crate) fn carry(from: &Map<String, Value>, into: &mut Map<String, Value>, field: &str) {
    match from.get(field) {
        Some(value) => into.insert(field.into(), value.clone()),
        None => into.remove(field),
    };
}

/// The key of an object as its metadata gives it.
pub(crate) fn key(object: &Value) -> Key {
    Key::new(meta(object, "namespace"), meta(object, "name"))
}

/// The revision at which the object was written.
#[cfg(test)]
pub(crate) fn revision(object: &Value) -> u64 {
    meta(object, "resourceVersion").parse().unwrap_or_default()
}

/// The finalizers that hold the object.
pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    list(&object["metadata"]["finalizers"]).iter().filter_map(Value::as_str).collect()
}

/// Has the deletion been asked for?
pub(crate) fn terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// The elements of an array; none for anything else.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Is the value absent, or as empty as if it were?
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// A time as it stands in metadata: whole seconds, UTC.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
