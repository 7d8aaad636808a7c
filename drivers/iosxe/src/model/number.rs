//! Numbers as devices write them: RFC 7951 wants numbers of 64 bits as strings, and not every device does so.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A number, or a string that is one. Anything else is no number, and no reason to refuse the whole answer.
pub(super) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_read_in_both_forms_and_what_is_none_is_absent() {
        let read = |json: &str| lenient(&mut serde_json::Deserializer::from_str(json)).unwrap();
        assert_eq!(
            (read("7"), read("\"7\""), read("\" 18446744073709551615\"")),
            (Some(7), Some(7), Some(u64::MAX))
        );
        for none in ["\"18446744073709551616\"", "-1", "1.5", "\"\"", "null", "{}", "\"0.00 %\""] {
            assert_eq!(read(none), None, "{none}");
        }
    }
}
