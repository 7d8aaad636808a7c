//! Parsing of annotations, and the error for a malformed one.

use serde::de::DeserializeOwned;

/// The number of characters of a malformed annotation that its error quotes.
const QUOTED: usize = 60;

/// An annotation is not in the format that this program and Kuryr write. It is never overwritten,
/// because it may still be needed.
#[derive(Debug, thiserror::Error)]
#[error(
    "the annotation {key} begins with `{found}` and is not in the format that staffetta and Kuryr write; \
     correct it, or remove it to have it written again"
)]
pub struct AnnotationError {
    key: &'static str,
    found: String,
    #[source]
    source: serde_json::Error,
}

/// Parses `text`, the value of the annotation `key`.
pub fn read<T: DeserializeOwned>(key: &'static str, text: &str) -> Result<T, AnnotationError> {
    serde_json::from_str(text).map_err(|source| AnnotationError {
        key,
        found: text.chars().take(QUOTED).collect(),
        source,
    })
}
