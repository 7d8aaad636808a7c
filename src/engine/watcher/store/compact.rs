//! A compact form of a UID, which saves memory: a number where possible, otherwise the text.

use std::fmt;

/// The UID of an object: a number if it is a UUID, otherwise the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CompactUid {
    /// A UUID in the form that the API server writes: RFC 9562, in lower case.
    Uuid(u128),
    /// Any other text.
    Text(Box<str>),
}

impl From<&str> for CompactUid {
    fn from(text: &str) -> Self {
        match u128::from_str_radix(&text.replace('-', ""), 16).map(Self::Uuid) {
            Ok(uuid) if uuid.to_string() == text => uuid,
            _ => Self::Text(text.into()),
        }
    }
}

impl fmt::Display for CompactUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Uuid(uuid) => {
                let digits = format!("{uuid:032x}");
                let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
                f.write_str(&parts.join("-"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_uid_survives_the_compact_form(uuid: u128, text in "[0-9a-fA-F+-]{0,37}") {
            let written = CompactUid::Uuid(uuid).to_string();
            prop_assert_eq!(CompactUid::from(written.as_str()), CompactUid::Uuid(uuid));
            prop_assert_eq!(CompactUid::from(text.as_str()).to_string(), text);
        }
    }

    #[test]
    fn a_uid_that_is_no_lower_case_uuid_is_kept_as_text() {
        for text in
            ["", "u1", "889E8FB0-0000-4000-8000-000000000001", "889e8fb00000-4000-8000-0000-000000000001"]
        {
            assert_eq!(CompactUid::from(text), CompactUid::Text(text.into()));
        }
        let server = "889e8fb0-0000-4000-8000-00000000000f";
        assert!(
            matches!(CompactUid::from(server), CompactUid::Uuid(_))
                && CompactUid::from(server).to_string() == server
        );
    }
}
