//! Who this process is, among its replicas and its predecessors.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// How much of the name of the host is shown, in characters.
const HOST: usize = 63;

/// The name of this process: that of its host, which in a cluster is that of its pod, and a random word. It is made once at
/// start, so a process that is started again is another one. At most 80 characters of `A-Z a-z 0-9 . _ -`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIdentity(Arc<str>);

impl ProcessIdentity {
    /// A name that no other process has.
    pub(crate) fn random() -> Self {
        let host = rustix::system::uname();
        Self::of(&host.nodename().to_string_lossy(), random())
    }

    fn of(host: &str, word: u64) -> Self {
        let printable = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
        let host: String = host.chars().take(HOST).map(printable).collect();
        let host = if host.is_empty() { "localhost" } else { &host };
        Self(format!("{host}_{word:016x}").into())
    }

    /// The name.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number that nobody guesses twice by accident. It keeps no secret.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_one_host_differ() {
        let (one, other) = (ProcessIdentity::random(), ProcessIdentity::random());
        assert_ne!(one, other);
        assert_eq!(one.as_str().rsplit_once('_').unwrap().0, other.as_str().rsplit_once('_').unwrap().0);
    }

    #[test]
    fn whatever_the_host_is_called_the_name_is_short_and_printable() {
        for (host, shown) in [("web-1.example", "web-1.example"), ("wéb_1\n", "w-b-1-"), ("", "localhost")] {
            assert_eq!(ProcessIdentity::of(host, 0xabc).as_str(), format!("{shown}_0000000000000abc"));
        }
        assert_eq!(ProcessIdentity::of(&"x".repeat(300), u64::MAX).as_str().len(), 80);
    }
}
