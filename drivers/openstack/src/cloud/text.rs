//! What stands in paths and answers of every service.

use serde::{Deserialize, Deserializer};

/// Whether a text may be an id. What stands in a path or a list must be one, wherever it comes from.
pub(crate) fn well_formed(id: &str) -> bool {
    !id.is_empty() && id.len() <= 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// Reads a field of an answer in which `null` is as good as nothing.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_id_never_gets_into_a_path() {
        assert!(well_formed("889e8fb0-3c6e-4c8e-9d3e-2f1a0b5c7d11"));
        for text in
            ["", "..", "../networks/889e8fb0", "889e8fb0?x=1", "889e8fb0/tags", "889e8fb0%2f..", "port 7"]
        {
            assert!(!well_formed(text), "{text}");
        }
        assert!(!well_formed(&"a".repeat(37)));
    }
}
