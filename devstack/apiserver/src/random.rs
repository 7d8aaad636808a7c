//! Random names and UIDs, derived from the random seed of the standard library's hash maps.

use std::hash::{BuildHasher, RandomState};

/// The letters a real server makes names of: no vowels, so that no words come out.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

fn number() -> u64 {
    RandomState::new().hash_one(0)
}

/// The five letters that end a name made by `generateName`.
pub(crate) fn suffix() -> String {
    let mut number = number();
    let letters = LETTERS.len() as u64;
    (0..5)
        .map(|_| {
            let letter = LETTERS[usize::try_from(number % letters).unwrap_or_default()];
            number /= letters;
            char::from(letter)
        })
        .collect()
}

/// A UUID of version 4 (RFC 9562, section 5.4).
pub(crate) fn uid() -> String {
    let (high, low) = (number(), number());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        high >> 32,
        (high >> 16) & 0xffff,
        high & 0xfff,
        (low >> 48) & 0x3fff | 0x8000,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_have_the_form_of_version_four_and_differ() {
        let uid = uid();
        assert_eq!(uid.len(), 36, "{uid}");
        assert_eq!(uid.as_bytes()[14], b'4', "{uid}");
        assert!(matches!(uid.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{uid}");
        assert_ne!(uid, super::uid());
    }

    #[test]
    fn a_suffix_has_five_letters() {
        assert_eq!(suffix().len(), 5);
    }
}
