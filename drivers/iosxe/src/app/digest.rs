//! Short digests of texts, for names and labels with a limited length.

use ring::digest::{SHA256, digest as hash};

/// Returns the first `digits` hexadecimal digits (at most 64) of the SHA-256 digest of `text`.
pub(crate) fn digest(text: &str, digits: usize) -> String {
    let bytes = hash(&SHA256, text.as_bytes());
    let nibbles = bytes.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.take(digits).filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}
