//! A change of an object's metadata as one strategic merge patch.

use std::collections::BTreeMap;
use std::fmt::Debug;

use kube::Resource;
use serde::Serialize;

/// A change of the metadata of one object, sent as a strategic merge patch. The patch contains the UID of the object, so that it never
/// applies to another object of the same name.
///
/// The patch leaves the finalizers and annotations of other controllers unchanged.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetadataPatch {
    annotations: BTreeMap<String, Option<String>>,
    add_finalizer: Option<String>,
    remove_finalizer: Option<String>,
    claim: bool,
}

impl MetadataPatch {
    /// Sets the annotation `key` to `value`.
    #[must_use]
    pub fn annotate(mut self, key: &str, value: impl Into<String>) -> Self {
        self.annotations.insert(key.to_owned(), Some(value.into()));
        self
    }

    /// Removes the annotation `key`.
    #[must_use]
    pub fn remove_annotation(mut self, key: &str) -> Self {
        self.annotations.insert(key.to_owned(), None);
        self
    }

    /// Adds a finalizer to the object. A patch adds at most one: a further call replaces it.
    #[must_use]
    pub fn add_finalizer(mut self, finalizer: &str) -> Self {
        self.add_finalizer = Some(finalizer.to_owned());
        self
    }

    /// Removes a finalizer from the object. A patch removes at most one: a further call replaces it.
    #[must_use]
    pub fn remove_finalizer(mut self, finalizer: &str) -> Self {
        self.remove_finalizer = Some(finalizer.to_owned());
        self
    }

    /// Makes the patch carry the resourceVersion (optimistic locking): the server rejects it with a conflict (409) if the object has
    /// changed.
    #[must_use]
    pub fn claim(mut self) -> Self {
        self.claim = true;
        self
    }

    /// Returns `true` if `object` already has the annotations and finalizers that the patch requests, so that
    /// no request is needed.
    pub fn changes_nothing_of(&self, object: &impl Resource) -> bool {
        let meta = object.meta();
        let annotation =
            |key: &String| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
        let has = |finalizer: &String| meta.finalizers.iter().flatten().any(|present| present == finalizer);
        self.annotations.iter().all(|(key, value)| annotation(key) == value.as_ref())
            && self.add_finalizer.as_ref().is_none_or(has)
            && !self.remove_finalizer.as_ref().is_some_and(has)
    }

    /// Returns the JSON body of the patch for `object`.
    pub fn body<'a>(&'a self, object: &'a impl Resource) -> impl Serialize + Debug + 'a {
        let meta = object.meta();
        let one = |finalizer: &'a Option<String>| finalizer.as_deref().map(|finalizer| [finalizer]);
        let metadata = BodyMetadata {
            uid: meta.uid.as_deref(),
            resource_version: meta.resource_version.as_deref().filter(|_| self.claim),
            annotations: &self.annotations,
            added: one(&self.add_finalizer),
            removed: one(&self.remove_finalizer),
        };
        BTreeMap::from([("metadata", metadata)])
    }
}

/// The `metadata` of the patch. It is serialized directly, without a [`serde_json::Value`], because the write is the largest part of the
/// cost of handling a pod.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct BodyMetadata<'a> {
    uid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_version: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, Option<String>>,
    #[serde(rename = "finalizers", skip_serializing_if = "Option::is_none")]
    added: Option<[&'a str; 1]>,
    #[serde(rename = "$deleteFromPrimitiveList/finalizers", skip_serializing_if = "Option::is_none")]
    removed: Option<[&'a str; 1]>,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: &Value) -> Pod {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    #[test]
    fn a_claim_carries_only_the_uid_the_version_and_our_own_fields() {
        let pod = pod(
            &json!({ "uid": "u1", "resourceVersion": "7", "finalizers": ["a/b"], "annotations": { "x": "y" } }),
        );
        let patch = MetadataPatch::default().annotate("k", "v").add_finalizer("staffetta.dev/vif").claim();
        let expected = json!({ "metadata": { "uid": "u1", "resourceVersion": "7", "annotations": { "k": "v" },
            "finalizers": ["staffetta.dev/vif"] } });
        assert_eq!(serde_json::to_value(patch.body(&pod)).unwrap(), expected);
    }

    #[test]
    fn removal_deletes_the_finalizer_from_the_list() {
        let pod = pod(&json!({ "uid": "u1", "finalizers": ["a/b", "staffetta.dev/vif"] }));
        let patch = MetadataPatch::default().remove_annotation("k").remove_finalizer("staffetta.dev/vif");
        let expected = json!({ "metadata": { "uid": "u1", "annotations": { "k": null },
            "$deleteFromPrimitiveList/finalizers": ["staffetta.dev/vif"] } });
        assert_eq!(serde_json::to_value(patch.body(&pod)).unwrap(), expected);
    }

    #[test]
    fn a_patch_without_a_change_is_detected() {
        let pod = pod(&json!({ "uid": "u1", "finalizers": ["f"], "annotations": { "k": "v" } }));
        assert!(MetadataPatch::default().annotate("k", "v").add_finalizer("f").changes_nothing_of(&pod));
        assert!(
            MetadataPatch::default()
                .remove_annotation("other")
                .remove_finalizer("g")
                .changes_nothing_of(&pod)
        );
        assert!(!MetadataPatch::default().annotate("k", "w").changes_nothing_of(&pod));
        assert!(!MetadataPatch::default().remove_finalizer("f").changes_nothing_of(&pod));
        assert!(!MetadataPatch::default().remove_annotation("k").changes_nothing_of(&pod));
    }
}
