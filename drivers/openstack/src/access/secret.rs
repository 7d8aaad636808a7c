//! Secrets that are never logged or serialized.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The maximum size of a file with a secret, in bytes; a larger one is not read.
const MAX_FILE: u64 = 64 * 1024;

/// A password or a similar secret: its text, or the file that contains it. `Debug` and `Serialize` do not show the text.
#[derive(Clone)]
pub struct Secret(SecretSource);

/// The text of a secret, or the file that contains it.
#[derive(Clone)]
enum SecretSource {
    /// The text of the secret, from the options or the environment.
    Text(SecretString),
    /// The path of the file whose first line is the secret.
    File(PathBuf),
}

impl Secret {
    /// Creates a secret that is the first line of the file `path`. The file is read at each use. If it has more than 64 KiB, that use
    /// fails.
    pub fn in_file(path: impl Into<PathBuf>) -> Self {
        Self(SecretSource::File(path.into()))
    }

    /// Returns the text of the secret. Reading a file may block. The error is that of the file.
    pub(crate) fn reveal(&self) -> Result<Cow<'_, str>, io::Error> {
        match &self.0 {
            SecretSource::Text(text) => Ok(text.expose_secret().into()),
            SecretSource::File(path) => {
                let mut text = String::new();
                fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
                let text = SecretString::from(text);
                if text.expose_secret().len() as u64 > MAX_FILE {
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 64 KiB"));
                }
                Ok(text.expose_secret().lines().next().unwrap_or_default().to_owned().into())
            }
        }
    }

    /// Returns the file that contains the secret, or `None` if its text is in the options.
    pub(crate) fn file(&self) -> Option<&Path> {
        match &self.0 {
            SecretSource::Text(_) => None,
            SecretSource::File(path) => Some(path),
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(SecretSource::Text(text.into()))
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(SecretSource::Text(text.into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            SecretSource::Text(_) => f.write_str("Secret(..)"),
            SecretSource::File(path) => f.debug_tuple("Secret").field(path).finish(),
        }
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// Writes a placeholder instead of the secret.
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
        let largest = usize::try_from(MAX_FILE).unwrap();
        fs::write(file.path(), "a".repeat(largest)).unwrap();
        assert_eq!(secret.reveal().unwrap().len(), largest);
        fs::write(file.path(), "a".repeat(largest + 1)).unwrap();
        let error = secret.reveal().unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it has more than 64 KiB")
        );
        assert!(Secret::in_file("/dev/zero").reveal().is_err(), "it has no end");
    }
}
