//! Short names for long things.

use ring::digest::{SHA256, digest as hash};

/// The first `digits` hexadecimal digits of the SHA-256 of `text`, 64 at most.
pub(crate) fn digest(text: &str, digits: usize) -> String {
    let bytes = hash(&SHA256, text.as_bytes());
    let nibbles = bytes.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
    nibbles.take(digits).filter_map(|nibble| char::from_digit(nibble.into(), 16)).collect()
}
