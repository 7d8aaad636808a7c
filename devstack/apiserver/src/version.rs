//! API versions: an object that is stored once can be read and written as another group or version.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::object::map_mut;
use crate::table::Resource;

/// The fields of a core/v1 Event and their names in events.k8s.io/v1.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// The stored object as this resource shows it.
pub(crate) fn shown<'a>(resource: &Resource, stored: &'a Value) -> Cow<'a, Value> {
    let api_version = resource.api_version();
    if stored["apiVersion"] == api_version {
        return Cow::Borrowed(stored);
    }
    let mut object = stored.clone();
    if resource.group == "events.k8s.io" {
        rename(&mut object, EVENT_FIELDS.iter().copied());
    }
    object["apiVersion"] = api_version.into();
    Cow::Owned(object)
}

/// The object that was sent to this resource as it is stored. An error says why it is not one of its objects.
pub(crate) fn stored(resource: &Resource, mut object: Value) -> Result<Value, String> {
    let fields = object.as_object_mut().ok_or("the body must be a JSON object")?;
    let api_version = resource.api_version();
    for (field, wanted) in [("apiVersion", &api_version), ("kind", &resource.kind)] {
        let given = fields.entry(field).or_insert_with(|| json!(wanted));
        if given != wanted.as_str() {
            return Err(format!(
                "the object provided is unrecognized: its {field} is {given}, but {} takes {wanted:?}",
                resource.qualified()
            ));
        }
    }
    if resource.group == "events.k8s.io" {
        rename(&mut object, EVENT_FIELDS.iter().map(|(core, newer)| (*newer, *core)));
        object["apiVersion"] = json!("v1");
    }
    Ok(object)
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let fields = map_mut(object);
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.into(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::builtin;

    #[test]
    fn an_event_reads_the_same_from_both_groups() {
        let newer = builtin("events.k8s.io", "events");
        let sent = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "regarding": {"name": "a"}});
        let kept = stored(&newer, sent.clone()).unwrap();
        assert_eq!(
            kept,
            json!({"apiVersion": "v1", "kind": "Event", "message": "n", "involvedObject": {"name": "a"}})
        );
        assert_eq!(*shown(&newer, &kept), sent);
    }

    #[test]
    fn an_object_of_another_kind_is_refused() {
        let error = stored(&builtin("", "pods"), json!({"kind": "Service"})).unwrap_err();
        assert!(error.contains("\"Service\"") && error.contains("\"Pod\""), "{error}");
    }
}
