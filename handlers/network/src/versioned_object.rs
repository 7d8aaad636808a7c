//! The envelope that OpenStack's library oslo.versionedobjects puts around an object and every
//! object inside it: a JSON object with the keys `versioned_object.name`,
//! `versioned_object.namespace`, `versioned_object.version` and `versioned_object.data`.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// A class of the library oslo.versionedobjects. Its objects are serialized in an envelope that names
/// the class.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use staffetta_network::versioned_object::{Versioned, VersionedObject, to_text};
///
/// #[derive(Serialize, Deserialize)]
/// struct FixedIp {
///     address: String,
/// }
///
/// impl VersionedObject for FixedIp {
///     const NAMESPACE: &'static str = "os_vif";
///     const NAME: &'static str = "FixedIP";
///     const VERSION: &'static str = "1.0";
/// }
///
/// let text = to_text(&Versioned(FixedIp { address: "10.0.0.7".into() }));
/// assert!(text.starts_with(r#"{"versioned_object.data":{"address":"10.0.0.7"},"versioned_object.name":"FixedIP""#));
/// let Versioned(read) = serde_json::from_str::<Versioned<FixedIp>>(&text).unwrap();
/// assert_eq!(read.address, "10.0.0.7");
/// ```
pub trait VersionedObject: Serialize + DeserializeOwned {
    /// The project that defines the class, such as `os_vif` or `kuryr_kubernetes`.
    const NAMESPACE: &'static str;
    /// The name of the class in its project, such as `FixedIP`.
    const NAME: &'static str;
    /// The version that is written, such as `1.0`. When an object is read, any version with the
    /// same major number is accepted.
    const VERSION: &'static str;
}

/// Implements [`VersionedObject`] for several types, whose classes have the same namespace. Each
/// type is followed by the name and the version of its class.
macro_rules! versioned_objects {
    ($namespace:literal: $($type:ty, $name:literal, $version:literal;)+) => {$(
        impl $crate::versioned_object::VersionedObject for $type {
            const NAMESPACE: &'static str = $namespace;
            const NAME: &'static str = $name;
            const VERSION: &'static str = $version;
        }
    )+};
}
pub(crate) use versioned_objects;

/// A wrapper that serializes an object of a class of oslo.versionedobjects in its envelope.
/// Deserialization removes the envelope, and fails if it names another class or namespace than `T`
/// has, or a version with another major number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versioned<T>(pub T);

/// The JSON envelope in which oslo.versionedobjects serializes an object, with texts of the type `S`.
/// When an envelope is read, its key `versioned_object.changes` is ignored: a list of changed fields,
/// which some programs write.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope<T, S = String> {
    /// The object in the envelope. Objects inside it have envelopes too.
    #[serde(rename = "versioned_object.data")]
    pub(crate) data: T,
    /// The name of the object's class, such as `FixedIP`.
    #[serde(rename = "versioned_object.name")]
    pub(crate) name: S,
    /// The project that defines the class, such as `os_vif`.
    #[serde(rename = "versioned_object.namespace")]
    pub(crate) namespace: S,
    /// The version of the object's class, such as `1.0`.
    #[serde(rename = "versioned_object.version")]
    pub(crate) version: S,
}

impl<T> Envelope<T> {
    /// Checks that the envelope has this `namespace` and `class`, and that its version has the same major
    /// number as `version`. A `class` that ends in `*` stands for all classes whose names begin so.
    pub(crate) fn check<E: Error>(&self, namespace: &str, class: &str, version: &str) -> Result<(), E> {
        let Self { name, namespace: found, version: found_version, .. } = self;
        let major = |version: &str| version.split('.').next().map(str::to_owned);
        let fits = class.strip_suffix('*').map_or(name == class, |prefix| name.starts_with(prefix));
        if fits && found == namespace && major(found_version) == major(version) {
            return Ok(());
        }
        Err(E::custom(format_args!(
            "found the object {name} {found_version} of {found}, expected {class} {version} of {namespace}"
        )))
    }
}

impl<T: VersionedObject> Serialize for Versioned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (name, namespace, version) = (T::NAME, T::NAMESPACE, T::VERSION);
        Envelope { data: &self.0, name, namespace, version }.serialize(serializer)
    }
}

impl<'de, T: VersionedObject> Deserialize<'de> for Versioned<T> {
    /// Removes the envelope of oslo.versionedobjects and parses the object in it. Returns an error if the
    /// envelope names another class or namespace than `T` has, or a version with another major number. An
    /// error about the content names the class.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let envelope = Envelope::<Value>::deserialize(deserializer)?;
        envelope.check(T::NAMESPACE, T::NAME, T::VERSION)?;
        let content = serde_json::from_value(envelope.data);
        content.map(Self).map_err(|error| D::Error::custom(format_args!("{}: {error}", envelope.name)))
    }
}

/// Formats `object` as the value of an annotation: JSON in one line with sorted keys, so that equal
/// objects give equal texts. Panics if `object` has no JSON form.
pub fn to_text(object: &impl Serialize) -> String {
    to_text_of(serde_json::to_value(object).expect("keys are strings and no number is without a JSON form"))
}

/// Formats `value` as the value of an annotation: JSON in one line with sorted keys.
pub(crate) fn to_text_of(mut value: Value) -> String {
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        zulu: u8,
        alpha: u8,
    }

    impl VersionedObject for Sample {
        const NAMESPACE: &'static str = "os_vif";
        const NAME: &'static str = "Sample";
        const VERSION: &'static str = "1.4";
    }

    fn read(name: &str, namespace: &str, version: &str) -> Result<Versioned<Sample>, serde_json::Error> {
        serde_json::from_value(serde_json::json!({
            "versioned_object.name": name,
            "versioned_object.namespace": namespace,
            "versioned_object.version": version,
            "versioned_object.changes": ["alpha"],
            "versioned_object.data": { "zulu": 1, "alpha": 2, "unknown": 3 },
        }))
    }

    #[test]
    fn keys_are_sorted_at_every_level() {
        let expected = r#"{"versioned_object.data":{"alpha":2,"zulu":1},"versioned_object.name":"Sample","versioned_object.namespace":"os_vif","versioned_object.version":"1.4"}"#;
        assert_eq!(to_text(&Versioned(Sample { zulu: 1, alpha: 2 })), expected);
    }

    #[test]
    fn older_and_newer_minor_versions_are_read_and_changes_are_ignored() {
        for version in ["1.0", "1.4", "1.17"] {
            assert_eq!(read("Sample", "os_vif", version).unwrap(), Versioned(Sample { zulu: 1, alpha: 2 }));
        }
    }

    #[test]
    fn another_class_namespace_or_major_version_is_refused_by_name() {
        for (name, namespace, version) in
            [("Other", "os_vif", "1.4"), ("Sample", "nova", "1.4"), ("Sample", "os_vif", "2.0")]
        {
            let error = read(name, namespace, version).unwrap_err().to_string();
            assert!(error.contains(&format!("found the object {name} {version} of {namespace}")), "{error}");
            assert!(error.contains("expected Sample 1.4 of os_vif"), "{error}");
        }
    }

    #[test]
    fn an_error_inside_names_the_class() {
        let broken = r#"{"versioned_object.name":"Sample","versioned_object.namespace":"os_vif","versioned_object.version":"1.4","versioned_object.data":{"zulu":1}}"#;
        let error = serde_json::from_str::<Versioned<Sample>>(broken).unwrap_err().to_string();
        assert!(error.starts_with("Sample: missing field `alpha`"), "{error}");
    }
}
