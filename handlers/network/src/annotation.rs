//! An annotation that cannot be read.

use serde::de::DeserializeOwned;

/// How much of the annotation an error shows, in characters.
const SHOWN: usize = 60;

/// An annotation is not of the form that this program and Kuryr write. It is never overwritten: somebody may need it.
#[derive(Debug, thiserror::Error)]
#[error(
    "the annotation {key} begins with `{found}` and is not in the form that staffetta and Kuryr write; \
     correct it, or remove it to have it written anew"
)]
pub struct AnnotationError {
    key: &'static str,
    found: String,
    #[source]
    source: serde_json::Error,
}

impl AnnotationError {
    /// The annotation `key` is `text`, in which `source` was found wrong.
    pub fn new(key: &'static str, text: &str, source: serde_json::Error) -> Self {
        Self { key, found: text.chars().take(SHOWN).collect(), source }
    }
}

/// Reads the annotation `key`.
pub fn read<T: DeserializeOwned>(key: &'static str, text: &str) -> Result<T, AnnotationError> {
    serde_json::from_str(text).map_err(|source| AnnotationError::new(key, text, source))
}
