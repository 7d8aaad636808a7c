//! Names that are derived from the properties of the named object, so that an outdated cache cannot create an object twice.

use std::hash::{Hash, Hasher};

/// Without vowels and what looks like another, as in Kubernetes, so that no words appear by chance.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// A suffix of `length` letters for `thing`, the same each time.
pub(crate) fn suffix(thing: impl Hash, length: usize) -> String {
    let mut digest = std::hash::DefaultHasher::new();
    thing.hash(&mut digest);
    let mut rest = digest.finish();
    let base = LETTERS.len() as u64;
    let letter = || {
        let index = usize::try_from(rest % base).expect("there are few letters");
        rest /= base;
        char::from(LETTERS[index])
    };
    std::iter::repeat_with(letter).take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_is_the_same_each_time_and_another_for_another_thing() {
        assert_eq!(suffix(("a", 1), 5), suffix(("a", 1), 5));
        assert_ne!(suffix(("a", 1), 5), suffix(("a", 2), 5));
        assert_eq!(suffix("a", 10).len(), 10);
    }
}
