//! The envelope in which OpenStack's library oslo.versionedobjects puts an object, and every object inside of it.

use std::borrow::Cow;

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// A class of objects that travel in envelopes.
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
    /// The project that defines the class.
    const NAMESPACE: &'static str;
    /// The class.
    const NAME: &'static str;
    /// The version that is written. Any version with the same first number is read.
    const VERSION: &'static str;
}

/// An object that is read from and written to its envelope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versioned<T>(pub T);

/// The envelope itself, its keys sorted. The list of changed fields that some writers add is of no use to a reader.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Envelope<'a, T> {
    #[serde(rename = "versioned_object.data")]
    pub(crate) data: T,
    #[serde(rename = "versioned_object.name")]
    pub(crate) name: Cow<'a, str>,
    #[serde(rename = "versioned_object.namespace")]
    pub(crate) namespace: Cow<'a, str>,
    #[serde(rename = "versioned_object.version")]
    pub(crate) version: Cow<'a, str>,
}

/// An envelope that is not opened yet: what is in it is read once it is known to be of the right class.
pub(crate) type Sealed = Envelope<'static, Box<RawValue>>;

impl<T> Envelope<'_, T> {
    /// Whether a reader of `written` understands this version: the first numbers are the same.
    pub(crate) fn is_version(&self, written: &str) -> bool {
        let first = |version: &str| version.split('.').next().map(str::to_owned);
        first(&self.version) == first(written)
    }

    /// What was found, in words.
    pub(crate) fn description(&self) -> String {
        format!("{} {} of {}", self.name, self.version, self.namespace)
    }
}

impl Sealed {
    /// Reads what is in it. An error names the class around it.
    pub(crate) fn open<T: DeserializeOwned, E: Error>(&self) -> Result<T, E> {
        serde_json::from_str(self.data.get()).map_err(|error| self.wrong(reason(&error)))
    }

    /// What is in it is wrong.
    pub(crate) fn wrong<E: Error>(&self, reason: impl std::fmt::Display) -> E {
        E::custom(format_args!("{}: {reason}", self.name))
    }
}

/// What is wrong, without the place, which counts from the beginning of an envelope's content.
pub(crate) fn reason(error: &serde_json::Error) -> String {
    let words = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    words.strip_suffix(&place).unwrap_or(&words).to_owned()
}

impl<T: VersionedObject> Versioned<T> {
    /// The object in an envelope, which must be of its class.
    pub(crate) fn unseal<E: Error>(envelope: &Sealed) -> Result<Self, E> {
        if envelope.name != T::NAME || envelope.namespace != T::NAMESPACE || !envelope.is_version(T::VERSION)
        {
            return Err(E::custom(format_args!(
                "found the object {}, expected {} {} of {}",
                envelope.description(),
                T::NAME,
                T::VERSION,
                T::NAMESPACE
            )));
        }
        envelope.open().map(Self)
    }
}

impl<T: VersionedObject> Serialize for Versioned<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Envelope {
            data: &self.0,
            name: T::NAME.into(),
            namespace: T::NAMESPACE.into(),
            version: T::VERSION.into(),
        }
        .serialize(serializer)
    }
}

impl<'de, T: VersionedObject> Deserialize<'de> for Versioned<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::unseal(&Sealed::deserialize(deserializer)?)
    }
}

/// The text of an annotation: JSON in one line, its keys sorted, so that the same object always gives the same text.
pub fn to_text(object: &impl Serialize) -> String {
    let mut value =
        serde_json::to_value(object).expect("keys are strings and no number is without a JSON form");
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Inner {
        zulu: u8,
        alpha: u8,
    }

    impl VersionedObject for Inner {
        const NAMESPACE: &'static str = "os_vif";
        const NAME: &'static str = "Inner";
        const VERSION: &'static str = "1.4";
    }

    fn read(name: &str, namespace: &str, version: &str) -> Result<Versioned<Inner>, serde_json::Error> {
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
        let expected = r#"{"versioned_object.data":{"alpha":2,"zulu":1},"versioned_object.name":"Inner","versioned_object.namespace":"os_vif","versioned_object.version":"1.4"}"#;
        assert_eq!(to_text(&Versioned(Inner { zulu: 1, alpha: 2 })), expected);
    }

    #[test]
    fn older_and_newer_minor_versions_are_read_and_changes_are_ignored() {
        for version in ["1.0", "1.4", "1.17"] {
            assert_eq!(read("Inner", "os_vif", version).unwrap(), Versioned(Inner { zulu: 1, alpha: 2 }));
        }
    }

    #[test]
    fn another_class_namespace_or_major_version_is_refused_by_name() {
        for (name, namespace, version) in
            [("Other", "os_vif", "1.4"), ("Inner", "nova", "1.4"), ("Inner", "os_vif", "2.0")]
        {
            let error = read(name, namespace, version).unwrap_err().to_string();
            assert!(error.contains(&format!("found the object {name} {version} of {namespace}")), "{error}");
            assert!(error.contains("expected Inner 1.4 of os_vif"), "{error}");
        }
    }

    #[test]
    fn an_error_inside_names_the_class() {
        let broken = r#"{"versioned_object.name":"Inner","versioned_object.namespace":"os_vif","versioned_object.version":"1.4","versioned_object.data":{"zulu":1}}"#;
        let error = serde_json::from_str::<Versioned<Inner>>(broken).unwrap_err().to_string();
        assert!(error.starts_with("Inner: missing field `alpha`"), "{error}");
    }
}
