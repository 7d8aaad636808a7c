//! Objects as a watch shows them: each decoded by itself, so that one that cannot be costs the others nothing.

use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::failure::{LONGEST, shortened};
use crate::object::{Identity, Object};

/// What a watch shows of one object.
#[derive(Clone)]
pub enum Sighting {
    /// The object.
    Object(Arc<dyn Object>),
    /// The server sent something that is no object of its kind. It exists all the same.
    Undecodable(Undecodable),
}

/// An object that cannot be decoded: which one, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is no {} as this program knows it: {error}", identity.kind)]
pub struct Undecodable {
    /// Which object.
    pub identity: Identity,
    /// Why it cannot be decoded, with the place in the JSON text; of a long reason the first 1024 bytes.
    pub error: String,
}

/// A `K`, or what could be made out of a text that is none. It goes by value through many hands, and an object is large.
#[derive(Clone)]
pub(crate) enum Decoded<K> {
    Object(Box<K>),
    Undecodable { meta: Box<ObjectMeta>, error: String },
}

impl<K> Decoded<K>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    /// The object without its `managedFields`, which nobody reads.
    pub(crate) fn share(self) -> Sighting {
        match self {
            Self::Object(mut object) => {
                object.meta_mut().managed_fields = None;
                Sighting::Object(Arc::new(*object))
            }
            Self::Undecodable { meta, error } => {
                let identity = Identity {
                    type_id: TypeId::of::<K>(),
                    kind: K::kind(&()),
                    api_version: K::api_version(&()),
                    namespace: meta.namespace,
                    name: meta.name.unwrap_or_default(),
                    uid: meta.uid.unwrap_or_default(),
                    resource_version: meta.resource_version,
                };
                Sighting::Undecodable(Undecodable { identity, error })
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
            Err(error) => match names(&text) {
                Some(meta) => Ok(Self::Undecodable { meta: Box::new(meta), error: reason(&error) }),
                None => Err(D::Error::custom(reason(&error))),
            },
        }
    }
}

/// Why a text cannot be decoded. The words quote what stands in the place of something else, however long that is.
fn reason(error: &serde_json::Error) -> String {
    let words = error.to_string();
    if words.len() <= LONGEST {
        return words;
    }
    format!("{} at line {} column {}", shortened(words), error.line(), error.column())
}

/// Where in the text of an object its `managedFields` stand. Nobody reads them, and to decode them costs as much as the rest:
/// they are trees of many small maps.
fn managed_fields(text: &str) -> Option<Range<usize>> {
    let mut found = None;
    let search = Search { path: &["metadata", "managedFields"], found: &mut found };
    // Its error says that the search is over, or that there is nothing to be found.
    let _ = search.deserialize(&mut serde_json::Deserializer::from_str(text));
    let found: &str = found?;
    let start = found.as_ptr().addr() - text.as_ptr().addr();
    Some(start..start + found.len())
}

/// Looks for the value at a path, and reads no further: the greater part of an object stands behind its `metadata`.
struct Search<'s, 'de> {
    path: &'s [&'s str],
    found: &'s mut Option<&'de str>,
}

impl<'de> DeserializeSeed<'de> for Search<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if !self.path.is_empty() {
            return deserializer.deserialize_map(self);
        }
        *self.found = Some(<&RawValue>::deserialize(deserializer)?.get());
        Err(D::Error::custom("it is found"))
    }
}

impl<'de> Visitor<'de> for Search<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((first, rest)) = self.path.split_first() else { return Ok(()) };
        while let Some(name) = map.next_key::<&str>()? {
            if name == *first {
                map.next_value_seed(Search { path: rest, found: &mut *self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

/// The names by which the object can be told from others, however odd the rest is.
fn names(text: &str) -> Option<ObjectMeta> {
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    let meta = value.get("metadata")?;
    let field = |name: &str| meta.get(name).and_then(|value| value.as_str()).map(str::to_owned);
    Some(ObjectMeta {
        name: Some(field("name")?),
        namespace: field("namespace"),
        uid: Some(field("uid")?),
        resource_version: field("resourceVersion"),
        ..ObjectMeta::default()
    })
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

impl<K> fmt::Debug for Decoded<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Object(_) => "Decoded",
            Self::Undecodable { .. } => "Undecodable",
        })
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
    fn one_that_cannot_be_decoded_leaves_the_others_of_its_list_as_they_are() {
        let items = [pod(&json!({ "containers": [] })), pod(&json!({ "containers": "none" }))];
        let text = json!({ "metadata": { "resourceVersion": "9" }, "items": items }).to_string();
        let list: ObjectList<Decoded<Pod>> = serde_json::from_str(&text).unwrap();
        let seen: Vec<_> = list.items.into_iter().map(Decoded::share).collect();
        let [Sighting::Object(object), Sighting::Undecodable(other)] = &seen[..] else {
            panic!("one is a pod, one is not");
        };
        assert_eq!((object.meta().name.as_deref(), &object.meta().managed_fields), (Some("web"), &None));
        assert_eq!(other.identity.subject().to_string(), "Pod default/web (u1)");
        assert_eq!(other.identity.resource_version.as_deref(), Some("7"));
        let told = other.to_string();
        assert!(told.starts_with("it is no Pod as this program knows it: invalid type: string"), "{told}");
    }

    #[test]
    fn the_reason_is_short_and_names_the_place_however_long_what_stands_there_is() {
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
    fn the_managed_fields_are_found_wherever_they_stand_and_nothing_else_is_taken_for_them() {
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
    fn an_event_of_a_watch_is_read_the_same_way() {
        let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, pod(&json!(5)));
        let event: WatchEvent<Decoded<Pod>> = serde_json::from_str(&line).unwrap();
        let WatchEvent::Modified(Decoded::Undecodable { meta, .. }) = event else { panic!("it is known") };
        assert_eq!(meta.uid.as_deref(), Some("u1"));
    }

    #[test]
    fn what_does_not_even_have_a_name_is_an_error_of_the_whole_answer() {
        for text in ["5", r#"{"metadata":{"name":5}}"#, r#"{"metadata":{"name":"web","uid":"u"},"spec":}"#] {
            assert!(serde_json::from_str::<Decoded<Pod>>(text).is_err(), "{text}");
        }
    }
}
