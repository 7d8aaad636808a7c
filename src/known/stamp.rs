//! A UID and a resourceVersion in a few bytes: as they nearly always are, as numbers; as any other text, as that text.

use std::fmt;

/// A UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uid {
    /// A UUID as the API server writes it: RFC 9562, in lower case.
    Uuid(u128),
    Text(Box<str>),
}

/// Where the hyphens of a UUID stand.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        let fits = text.len() == 36
            && text.bytes().enumerate().all(|(place, byte)| match byte {
                b'-' => HYPHENS.contains(&place),
                b'0'..=b'9' | b'a'..=b'f' => !HYPHENS.contains(&place),
                _ => false,
            });
        let digits = fits.then(|| u128::from_str_radix(&text.replace('-', ""), 16).ok()).flatten();
        digits.map_or_else(|| Self::Text(text.into()), Self::Uuid)
    }
}

impl fmt::Display for Uid {
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

/// A resourceVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// None: the state of the object must be delivered again, whatever it is.
    Unknown,
    Number(u64),
    Text(Box<str>),
}

impl From<&str> for Version {
    fn from(text: &str) -> Self {
        match text.parse::<u64>() {
            _ if text.is_empty() => Self::Unknown,
            Ok(number) if number.to_string() == text => Self::Number(number),
            _ => Self::Text(text.into()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => Ok(()),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_uid_and_version_are_read_as_they_were_written(uuid: u128, number: u64, text in "[0-9a-fA-F+-]{0,37}") {
            let written = Uid::Uuid(uuid).to_string();
            prop_assert_eq!(Uid::from(written.as_str()), Uid::Uuid(uuid));
            prop_assert_eq!(Uid::from(text.as_str()).to_string(), text.clone());
            prop_assert_eq!(Version::from(number.to_string().as_str()), Version::Number(number));
            prop_assert_eq!(Version::from(text.as_str()).to_string(), text);
        }
    }

    #[test]
    fn a_uid_that_is_no_uuid_of_the_servers_form_is_kept_as_text() {
        for text in
            ["", "u1", "889E8FB0-0000-4000-8000-000000000001", "889e8fb00000-4000-8000-0000-000000000001"]
        {
            assert_eq!(Uid::from(text), Uid::Text(text.into()));
        }
        let server = "889e8fb0-0000-4000-8000-00000000000f";
        assert!(matches!(Uid::from(server), Uid::Uuid(_)) && Uid::from(server).to_string() == server);
    }
}
