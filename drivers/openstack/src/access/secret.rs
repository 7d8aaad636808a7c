//! What nobody may see.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A password or the like: the text itself, or the file that holds it. It is never shown, by `Debug` either.
#[derive(Clone)]
pub struct Secret(Kept);

#[derive(Clone)]
enum Kept {
    Text(SecretString),
    File(PathBuf),
}

impl Secret {
    /// The secret that `path` holds: its first line. It is read anew at each use, so that it can be changed.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self(Kept::File(path.into()))
    }

    /// The text, for the one who sends it.
    pub(crate) fn reveal(&self) -> Result<Cow<'_, str>, io::Error> {
        match &self.0 {
            Kept::Text(text) => Ok(text.expose_secret().into()),
            Kept::File(path) => {
                let text = SecretString::from(fs::read_to_string(path)?);
                Ok(text.expose_secret().lines().next().unwrap_or_default().to_owned().into())
            }
        }
    }

    /// The file that holds it, if one does.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.0 {
            Kept::Text(_) => None,
            Kept::File(path) => Some(path),
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(Kept::Text(text.into()))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(Kept::Text(text.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kept::Text(_) => f.write_str("Secret(..)"),
            Kept::File(path) => f.debug_tuple("Secret").field(path).finish(),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Says that there is one, and not which: what is written down again is never a secret.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(secret)")
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }

    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let secret: Secret = serde_json::from_value("open sesame".into()).unwrap();
        let shown = format!("{secret:?} {}", serde_json::to_string(&secret).unwrap());
        assert_eq!(shown, r#"Secret(..) "(secret)""#);
        assert_eq!(secret.reveal().unwrap(), "open sesame");
    }

    #[test]
    fn a_secret_in_a_file_is_its_first_line_and_read_at_each_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let secret = Secret::in_file(&path);
        assert_eq!(secret.reveal().unwrap_err().kind(), io::ErrorKind::NotFound);
        for text in ["first\n", "second"] {
            fs::write(&path, text).unwrap();
            assert_eq!(secret.reveal().unwrap(), text.trim());
        }
        assert_eq!(secret.file(), Some(&*path));
    }
}
