//! Decodes the objects of a watch one by one, so that an object that cannot be decoded does not affect the others.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::value::RawValue;

use crate::event::{Identity, Object, ObjectRef};

/// The result of decoding one object of a watch.
#[derive(Clone)]
pub enum WatchItem {
    /// The decoded object, without its `managedFields`.
    Object(Arc<dyn Object>),
    /// An object that exists but cannot be decoded as its kind.
    Undecodable(Undecodable),
}

impl WatchItem {
    /// Returns the kind, names and UID of the object, whether it could be decoded or not.
    pub fn object_ref(&self) -> ObjectRef<'_> {
        match self {
            Self::Object(object) => ObjectRef::of(&**object),
            Self::Undecodable(object) => object.identity.object_ref(),
        }
    }

    /// Returns the resourceVersion of the object; empty if it has none.
    pub fn version(&self) -> &str {
        let version = match self {
            Self::Object(object) => &object.meta().resource_version,
            Self::Undecodable(object) => &object.identity.resource_version,
        };
        version.as_deref().unwrap_or_default()
    }
}

/// An object that exists but does not match the Rust type of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot be decoded as a {}: {error}", identity.kind)]
pub struct Undecodable {
    /// The identity of the object.
    pub identity: Identity,
    /// The decoding error with its position in the JSON text. The text of the error is cut after 1024 bytes.
    pub error: String,
}

/// An object of kind `K`, or the metadata of an object that cannot be decoded. Both are boxed, because kube passes the value on by
/// value several times.
#[derive(Clone, Debug)]
pub(crate) enum Decoded<K> {
    /// The decoded object.
    Object(Box<K>),
    /// The metadata of an object that does not match the type `K`, and the reason.
    Undecodable { meta: Box<ObjectMeta>, error: String },
}

impl<K> Decoded<K>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    /// Erases the type, and removes the `managedFields`, which no handler reads.
    pub(crate) fn into_item(self) -> WatchItem {
        match self {
            Self::Object(mut object) => {
                object.meta_mut().managed_fields = None;
                WatchItem::Object(Arc::new(*object))
            }
            Self::Undecodable { meta, error } => {
                let (name, uid) = (meta.name.unwrap_or_default(), meta.uid.unwrap_or_default());
                let mut identity = Identity::of::<K>(meta.namespace, name, uid);
                identity.resource_version = meta.resource_version;
                WatchItem::Undecodable(Undecodable { identity, error })
            }
        }
    }
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Decoded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut text = String::from(Box::<str>::from(Box::<RawValue>::deserialize(deserializer)?));
        if let Some(managed_fields) = managed_fields(&text) {
            text.replace_range(managed_fields, "null");
        }
        match serde_json::from_str(&text) {
            Ok(object) => Ok(Self::Object(object)),
            Err(error) => match metadata(&text) {
                Some(meta) => Ok(Self::Undecodable { meta: Box::new(meta), error: reason(&error) }),
                None => Err(D::Error::custom(reason(&error))),
            },
        }
    }
}

/// Returns the text of the error, truncated, but always with the position: serde quotes an unexpected value of any length.
fn reason(error: &serde_json::Error) -> String {
    let words = error.to_string();
    if words.len() <= MAX_UNTRUSTED_TEXT {
        return words;
    }
    format!("{} at line {} column {}", truncated(words), error.line(), error.column())
}

/// Truncates untrusted text that is longer than 1024 bytes, and appends ` ...` to it.
pub fn truncated(mut text: String) -> String {
    if text.len() > MAX_UNTRUSTED_TEXT {
        let end = (0..=MAX_UNTRUSTED_TEXT).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(" ...");
    }
    text
}

/// The maximum length of untrusted text, in bytes. It bounds the memory for the errors of 100,000 failed objects to about 100 MB.
const MAX_UNTRUSTED_TEXT: usize = 1024;

/// Returns the byte range of the value of `metadata.managedFields` in the JSON text of an object; `None` if none is found. That range is
/// replaced before decoding, because the field is a tree of many small maps and would cost as much as the rest of the object.
fn managed_fields(text: &str) -> Option<Range<usize>> {
    let object: WithMetadata<ManagedFields<'_>> = serde_json::from_str(text).ok()?;
    let found = object.metadata.managed_fields?.get();
    let start = found.as_ptr().addr() - text.as_ptr().addr();
    Some(start..start + found.len())
}

/// Decodes only the metadata of an object. Returns `None` if the metadata cannot be decoded, or has no name or UID.
fn metadata(text: &str) -> Option<ObjectMeta> {
    let metadata = serde_json::from_str::<WithMetadata<ObjectMeta>>(text).ok()?.metadata;
    (metadata.name.is_some() && metadata.uid.is_some()).then_some(metadata)
}

/// An object of which only the metadata, or some of its fields, are decoded.
#[derive(Deserialize)]
pub(crate) struct WithMetadata<M> {
    /// The decoded fields of the metadata.
    pub(crate) metadata: M,
}

/// The metadata of an object, with the only field that [`managed_fields`] needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields<'a> {
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

impl<K: Resource<DynamicType = ()>> Resource for Decoded<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Object(object) => object.meta(),
            Self::Undecodable { meta, .. } => meta,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Object(object) => object.meta_mut(),
            Self::Undecodable { meta, .. } => meta,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::{ObjectList, WatchEvent};
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Value {
        json!({ "metadata": { "namespace": "default", "name": "web", "uid": "u1", "resourceVersion": "7",
            "managedFields": [{ "manager": "m" }] }, "spec": spec })
    }

    #[test]
    fn an_object_that_cannot_be_decoded_does_not_affect_the_others_of_its_list() {
        let items = [pod(&json!({ "containers": [] })), pod(&json!({ "containers": "none" }))];
        let text = json!({ "metadata": { "resourceVersion": "9" }, "items": items }).to_string();
        let list: ObjectList<Decoded<Pod>> = serde_json::from_str(&text).unwrap();
        let seen: Vec<_> = list.items.into_iter().map(Decoded::into_item).collect();
        let [WatchItem::Object(object), WatchItem::Undecodable(other)] = &seen[..] else {
            panic!("one is a pod, one is not");
        };
        assert_eq!((object.meta().name.as_deref(), &object.meta().managed_fields), (Some("web"), &None));
        assert_eq!(other.identity.object_ref().to_string(), "Pod default/web (u1)");
        assert_eq!(other.identity.resource_version.as_deref(), Some("7"));
        let text = other.to_string();
        assert!(text.starts_with("cannot be decoded as a Pod: invalid type: string"), "{text}");
    }

    #[test]
    fn the_error_is_short_and_keeps_the_position_of_a_long_unexpected_value() {
        let text = pod(&json!({ "containers": "none ".repeat(10_000) })).to_string();
        let Ok(Decoded::<Pod>::Undecodable { error, .. }) = serde_json::from_str(&text) else {
            panic!("it is none")
        };
        assert!(error.starts_with("invalid type: string \"none none ") && error.len() < 1100, "{error}");
        assert!(error.contains(" ... at line 1 column "), "{error}");
        let nameless = text.replace("\"name\":\"web\"", "\"name\":5");
        let error = serde_json::from_str::<Decoded<Pod>>(&nameless).unwrap_err().to_string();
        assert!(error.len() < 1200, "{error}");
    }

    #[test]
    fn the_managed_fields_are_found_at_any_position_and_only_in_the_metadata() {
        let fields = r#"[{"manager":"m","fieldsV1":{"f:spec":{"}":"]"}}}]"#;
        for (text, found) in [
            (
                format!(r#"{{"spec":{{}},"metadata":{{"name":"web","managedFields":{fields},"uid":"u"}}}}"#),
                Some(fields),
            ),
            (format!(r#"{{"metadata":{{ "managedFields" : {fields} }},"spec":null}}"#), Some(fields)),
            (
                format!(
                    r#"{{"metadata":{{"annotations":{{"managedFields":"no"}}}},"managedFields":{fields}}}"#
                ),
                None,
            ),
            (r#"{"metadata":{"name":5}}"#.to_owned(), None),
            ("7".to_owned(), None),
        ] {
            assert_eq!(managed_fields(&text).map(|range| &text[range]), found, "{text}");
        }
    }

    #[test]
    fn a_watch_event_is_decoded_the_same_way() {
        let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, pod(&json!(5)));
        let event: WatchEvent<Decoded<Pod>> = serde_json::from_str(&line).unwrap();
        let WatchEvent::Modified(Decoded::Undecodable { meta, .. }) = event else { panic!("it is known") };
        assert_eq!(meta.uid.as_deref(), Some("u1"));
    }

    #[test]
    fn an_object_without_a_name_is_an_error_of_the_whole_response() {
        for text in ["5", r#"{"metadata":{"name":5}}"#, r#"{"metadata":{"name":"web","uid":"u"},"spec":}"#] {
            assert!(serde_json::from_str::<Decoded<Pod>>(text).is_err(), "{text}");
        }
    }
}
