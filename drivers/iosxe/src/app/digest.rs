//! Short names for long things.

use ring::digest::{SHA256, digest as hash};

/// The first `digits` hexadecimal digits of the SHA-256 of `text`, 64 at most.
pub(crate) fn digest(text: &str, digits: usize) -> String {
    let bytes = hash(&SHA256, text.as_bytes());
    let hex: String = bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    hex.chars().take(digits).collect()
}
