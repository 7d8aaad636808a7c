//! The validation rules of metadata, which apply to every kind.

use serde_json::Value;

use crate::object::{is_empty, list, terminating};
use crate::status::Cause;
use crate::table::{Resource, Trait};

/// All annotations of an object together, names and values.
const ANNOTATION_BYTES: usize = 256 * 1024;

/// The rules for metadata at any time.
pub(crate) fn metadata(resource: &Resource, object: &Value) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = Vec::new();
    let name = metadata["name"].as_str().unwrap_or_default();
    if let Some(why) = name_is_wrong(resource, name) {
        causes.push(Cause::invalid("metadata.name", &name.into(), why));
    }
    annotations(&metadata["annotations"], &mut causes);
    for (key, value) in metadata["labels"].as_object().into_iter().flatten() {
        if !is_qualified_name(key) {
            causes.push(Cause::invalid(
                "metadata.labels",
                &key.as_str().into(),
                "name part must consist of alphanumeric characters, '-', '_' or '.'",
            ));
        }
        let text = value.as_str().unwrap_or_default();
        if !(text.is_empty() || is_name_part(text)) {
            causes.push(Cause::invalid("metadata.labels", value, "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"));
        }
    }
    if !resource.has(Trait::FreeFinalizers) {
        finalizers(&metadata["finalizers"], &mut causes);
    }
    owners(&metadata["ownerReferences"], &mut causes);
    causes
}

fn annotations(annotations: &Value, causes: &mut Vec<Cause>) {
    let mut bytes = 0;
    for (key, value) in annotations.as_object().into_iter().flatten() {
        bytes += key.len() + value.as_str().map_or(0, str::len);
        if !is_qualified_name(&key.to_lowercase()) {
            causes.push(Cause::invalid(
                "metadata.annotations",
                &key.as_str().into(),
                "name part must consist of alphanumeric characters, '-', '_' or '.'",
            ));
        }
    }
    if bytes > ANNOTATION_BYTES {
        causes.push(Cause::too_long("metadata.annotations", ANNOTATION_BYTES));
    }
}

fn finalizers(finalizers: &Value, causes: &mut Vec<Cause>) {
    for (index, finalizer) in list(finalizers).iter().enumerate() {
        let text = finalizer.as_str().unwrap_or_default();
        let standard = ["orphan", "foregroundDeletion", "kubernetes"].contains(&text);
        let qualified = is_qualified_name(text) && text.contains('/');
        if !(standard || qualified) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(&format!("metadata.finalizers[{index}]"), finalizer, why));
        }
    }
}

fn owners(owners: &Value, causes: &mut Vec<Cause>) {
    for (index, owner) in list(owners).iter().enumerate() {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if is_empty(&owner[field]) {
                let field = format!("metadata.ownerReferences[{index}].{field}");
                causes.push(Cause::invalid(&field, &"".into(), why));
            }
        }
    }
    let controllers = list(owners).iter().filter(|owner| owner["controller"] == true).count();
    if controllers > 1 {
        let why = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid("metadata.ownerReferences", owners, why));
    }
}

/// Validates an update of metadata.
pub(crate) fn metadata_update(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["name", "namespace", "uid", "creationTimestamp"] {
        let (old, new) = (&old["metadata"][field], &new["metadata"][field]);
        if old != new {
            causes.push(Cause::invalid(&format!("metadata.{field}"), new, "field is immutable"));
        }
    }
    if terminating(old) {
        let before = list(&old["metadata"]["finalizers"]);
        let added: Vec<_> =
            list(&new["metadata"]["finalizers"]).iter().filter(|one| !before.contains(one)).collect();
        if !added.is_empty() {
            let names: Vec<_> = added.iter().map(ToString::to_string).collect();
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                names.join(", ")
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    causes
}

/// Checks that maps of strings hold strings, before any other validation.
pub(crate) fn shape(object: &Value) -> Result<(), String> {
    for field in ["labels", "annotations"] {
        let map = &object["metadata"][field];
        if !(map.is_null() || map.is_object()) {
            return Err(format!("metadata.{field}: must be a map of strings"));
        }
        for (key, value) in map.as_object().into_iter().flatten() {
            if !(value.is_string() || value.is_null()) {
                return Err(format!("metadata.{field}[{key:?}]: must be a string"));
            }
        }
    }
    for field in ["name", "generateName", "namespace", "uid", "resourceVersion"] {
        let value = &object["metadata"][field];
        if !(value.is_null() || value.is_string()) {
            return Err(format!("metadata.{field}: must be a string"));
        }
    }
    for field in ["finalizers", "ownerReferences"] {
        let value = &object["metadata"][field];
        if !(value.is_null() || value.is_array()) {
            return Err(format!("metadata.{field}: must be a list"));
        }
    }
    Ok(())
}

fn name_is_wrong(resource: &Resource, name: &str) -> Option<&'static str> {
    let in_set = |more: &str| {
        name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || more.as_bytes().contains(&b))
    };
    let ends_well = name.split('.').all(|part| {
        let alphanumeric = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
        alphanumeric(part.as_bytes().first()) && alphanumeric(part.as_bytes().last())
    });
    if resource.group == "rbac.authorization.k8s.io" {
        let bad = name.is_empty() || name == "." || name == ".." || name.contains(['/', '%']);
        return bad.then_some("may not be '.' or '..' and may not contain '/' or '%'");
    }
    if ["namespaces", "services"].contains(&resource.plural.as_str()) && resource.group.is_empty() {
        return (!in_set("-") || !ends_well || name.len() > 63).then_some(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
        );
    }
    (!in_set("-.") || !ends_well || name.len() > 253).then_some(
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
    )
}

/// A name with or without a DNS prefix: `app`, `example.org/app`.
pub(crate) fn is_qualified_name(name: &str) -> bool {
    match name.split_once('/') {
        None => is_name_part(name),
        Some((prefix, part)) => {
            let dns = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
            !prefix.is_empty() && prefix.len() <= 253 && prefix.bytes().all(dns) && is_name_part(part)
        }
    }
}

fn is_name_part(part: &str) -> bool {
    let bytes = part.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_.".contains(b);
    let ends = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    part.len() <= 63 && ends(bytes.first()) && ends(bytes.last()) && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;
    use crate::table::builtin;
    use serde_json::json;

    fn fields(metadata: &Value) -> Vec<String> {
        let pods = builtin("", "pods");
        let causes = super::metadata(&pods, &json!({"metadata": metadata}));
        let status = Status::invalid(&pods, "a", &causes).json();
        list(&status["details"]["causes"]).iter().map(|c| c["field"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn good_metadata_is_let_through() {
        let good = json!({
            "name": "a-1.b", "labels": {"app": "", "x.y/z": "A_b"}, "annotations": {"openstack.org/kuryr-vif": "{}"},
            "finalizers": ["a.b/c", "foregroundDeletion"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": true}],
        });
        assert!(fields(&good).is_empty());
    }

    #[test]
    fn every_mistake_is_named() {
        for (bad, field) in [
            (json!({"name": "A"}), "metadata.name"),
            (json!({"name": "-a"}), "metadata.name"),
            (json!({"name": "a", "labels": {"a": "b c"}}), "metadata.labels"),
            (json!({"name": "a", "labels": {"/": "b"}}), "metadata.labels"),
            (json!({"name": "a", "finalizers": ["plain"]}), "metadata.finalizers[0]"),
            (
                json!({"name": "a", "annotations": {"a": "x".repeat(ANNOTATION_BYTES)}}),
                "metadata.annotations",
            ),
            (
                json!({"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a"}]}),
                "metadata.ownerReferences[0].uid",
            ),
        ] {
            assert_eq!(fields(&bad), [field], "{bad}");
        }
    }

    #[test]
    fn a_terminating_object_takes_no_new_finalizer() {
        let old = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
        let fewer = json!({"metadata": {"deletionTimestamp": "t"}});
        let more = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b", "c/d"]}});
        assert!(metadata_update(&old, &fewer).is_empty());
        assert_eq!(metadata_update(&old, &more).len(), 1);
    }
}
