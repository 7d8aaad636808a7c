//! What nobody may see.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// No secret is longer, in bytes; what a file holds beyond that is not read.
const LARGEST: u64 = 64 * 1024;

/// A password or the like: the text itself, or the file that holds it. It is never shown, by `Debug` either.
#[derive(Clone)]
pub struct Secret(Kept);

#[derive(Clone)]
enum Kept {
    Text(SecretString),
    File(PathBuf),
}

impl Secret {
    /// The secret that `path` holds: its first line. It is read anew at each use, so that it can be changed. A file of more than
    /// 64 KiB is refused then.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self(Kept::File(path.into()))
    }

    /// The text, for the one who sends it. That of a file may be long in coming.
    pub(crate) fn reveal(&self) -> Result<Cow<'_, str>, io::Error> {
        match &self.0 {
            Kept::Text(text) => Ok(text.expose_secret().into()),
            Kept::File(path) => {
                let mut text = String::new();
                fs::File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
                let text = SecretString::from(text);
                if text.expose_secret().len() as u64 > LARGEST {
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it holds more than 64 KiB"));
                }
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

    #[test]
    fn a_file_that_is_too_large_for_a_secret_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let secret = Secret::in_file(file.path());
        let largest = usize::try_from(LARGEST).unwrap();
        fs::write(file.path(), "a".repeat(largest)).unwrap();
        assert_eq!(secret.reveal().unwrap().len(), largest);
        fs::write(file.path(), "a".repeat(largest + 1)).unwrap();
        let error = secret.reveal().unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it holds more than 64 KiB")
        );
        assert!(Secret::in_file("/dev/zero").reveal().is_err(), "it has no end");
    }
}
