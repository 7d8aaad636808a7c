//! The ids by which one request is told from all others, of all processes.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// Gives every request an id of its own: `<a random number of this client>-<the number of the request>`.
#[derive(Debug)]
pub(super) struct RequestIds {
    client: u64,
    given: AtomicU64,
}

impl RequestIds {
    /// Those of a new client. The randomness is the one that the standard library gives its hash maps.
    pub(super) fn new() -> Self {
        Self { client: RandomState::new().hash_one(std::process::id()), given: AtomicU64::new(0) }
    }

    /// The next one.
    pub(super) fn next(&self) -> String {
        let number = self.given.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{:016x}-{number}", self.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_id_is_given_twice() {
        let (one, other) = (RequestIds::new(), RequestIds::new());
        let (first, second) = (one.next(), one.next());
        assert!(first.ends_with("-1") && second.ends_with("-2"), "{first} {second}");
        assert_ne!(first, other.next());
    }
}
