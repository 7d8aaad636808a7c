//! Parsing of JSON annotations, and the error for a malformed annotation.

use serde::de::DeserializeOwned;

/// The reason of the Event for an annotation that somebody removed or spoilt, and that was written again.
pub(crate) const RESTORED: &str = "AnnotationRestored";

/// The number of characters of a malformed annotation that its error quotes.
const QUOTED: usize = 60;

/// The error for an annotation whose value is not the JSON that staffetta and Kuryr write.
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

/// Parses `text`, the JSON value of the annotation `key`. Returns an error that quotes the first 60
/// characters of `text` if `text` is not valid JSON or does not have the form of `T`.
pub fn read<T: DeserializeOwned>(key: &'static str, text: &str) -> Result<T, AnnotationError> {
    serde_json::from_str(text).map_err(|source| AnnotationError {
        key,
        found: text.chars().take(QUOTED).collect(),
        source,
    })
}
