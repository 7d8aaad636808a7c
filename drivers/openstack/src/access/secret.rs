//! Secrets that are never logged or serialized.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::{fs, io};

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, Serializer};

/// The maximum size of a file with a secret, in bytes; a larger one is not read.
const MAX_FILE: u64 = 64 * 1024;

/// A password or a similar secret: its text, or the file that contains it. `Debug` and `Serialize` do not show the text.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "String")]
pub enum Secret {
    /// The text of the secret, from the options or the environment.
    Text(SecretString),
    /// The path of the file whose first line is the secret. The file is read at each use. If it has more than 64 KiB, that use fails.
    File(PathBuf),
}

impl Secret {
    /// Returns the text of the secret: that of the options, or the first line of its file. Reading a file may block. Fails if the file
    /// cannot be read or has more than 64 KiB.
    pub(crate) fn reveal(&self) -> io::Result<String> {
        match self {
            Self::Text(text) => Ok(text.expose_secret().to_owned()),
            Self::File(path) => {
                let mut text = String::new();
                fs::File::open(path)?.take(MAX_FILE + 1).read_to_string(&mut text)?;
                let text = SecretString::from(text);
                if text.expose_secret().len() as u64 > MAX_FILE {
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 64 KiB"));
                }
                Ok(text.expose_secret().lines().next().unwrap_or_default().to_owned())
            }
        }
    }

    /// Returns the file that contains the secret, or `None` if its text is in the options.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Text(_) => None,
            Self::File(path) => Some(path),
        }
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

/// Writes a placeholder instead of the secret.
impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_shown() {
        let secret: Secret = serde_json::from_value("open sesame".into()).unwrap();
        assert!(!format!("{secret:?}").contains("sesame"));
        assert_eq!(serde_json::to_string(&secret).unwrap(), r#""(secret)""#);
        assert_eq!(secret.reveal().unwrap(), "open sesame");
    }

    #[test]
    fn a_secret_in_a_file_is_its_first_line_and_read_at_each_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let secret = Secret::File(path.clone());
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
        let secret = Secret::File(file.path().into());
        let largest = usize::try_from(MAX_FILE).unwrap();
        fs::write(file.path(), "a".repeat(largest)).unwrap();
        assert_eq!(secret.reveal().unwrap().len(), largest);
        fs::write(file.path(), "a".repeat(largest + 1)).unwrap();
        let error = secret.reveal().unwrap_err();
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it has more than 64 KiB")
        );
        assert!(Secret::File("/dev/zero".into()).reveal().is_err(), "it has no end");
    }
}
