//! Checks and conversions of ids and JSON fields that are the same for all services.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Returns `true` if `id` has the form of a resource id: 1 to 36 hexadecimal digits and hyphens. An id from
/// an annotation is checked with this function before it becomes part of a URL. Otherwise a user could insert
/// another path into that URL.
pub(crate) fn is_well_formed(id: &str) -> bool {
    !id.is_empty() && id.len() <= 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// The longest name or description that every release of Neutron and Octavia accepts, in characters.
const MAX_LENGTH: usize = 255;

/// Returns `text` as the name or description of a resource, truncated to the length that Neutron and Octavia accept.
pub(crate) fn name(text: &str) -> String {
    text.chars().take(MAX_LENGTH).collect()
}

/// Deserializes a field of a JSON object; `null` becomes the default value of its type.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Removes the members of a JSON object whose value is null, because OpenStack would take a null as a
/// setting.
pub(crate) fn without_nulls(mut object: Value) -> Value {
    if let Value::Object(members) = &mut object {
        members.retain(|_, value| !value.is_null());
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_id_never_gets_into_a_path() {
        assert!(is_well_formed("889e8fb0-3c6e-4c8e-9d3e-2f1a0b5c7d11"));
        for text in
            ["", "..", "../networks/889e8fb0", "889e8fb0?x=1", "889e8fb0/tags", "889e8fb0%2f..", "port 7"]
        {
            assert!(!is_well_formed(text), "{text}");
        }
        assert!(!is_well_formed(&"a".repeat(37)));
    }
}
