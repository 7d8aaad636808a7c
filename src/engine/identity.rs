//! The identity of this process among the replicas of the controller.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The maximum length of the host name in the identity, in characters.
const MAX_HOST: usize = 63;

/// The identity of this process (`holderIdentity`) in the Leases of handlers that run in every replica and not only in the leader.
#[derive(Clone, Debug)]
pub(crate) struct ReplicaIdentity(pub(crate) String);

/// Returns a new identity: the name of the pod from the variable `POD_NAME`, without it the host name, then `_`, and a random number of 16
/// hexadecimal digits, so that a restarted process gets another identity. It has at most 80 characters, all of them in `A-Z a-z 0-9 . _ -`.
/// The host name of a pod is its name too, unless the pod uses the network of its node.
pub(crate) fn identity() -> String {
    let pod = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    let host = pod.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    format_identity(&host, random())
}

/// Returns an unpredictable number, from the seed that the standard library takes from the operating system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Returns the identity `HOST_NUMBER`, with the number in 16 hexadecimal digits. In the host name, characters other than ASCII letters,
/// digits, `.` and `-` become `-`, and those after the first [`MAX_HOST`] are dropped; an empty host name becomes `localhost`.
fn format_identity(host: &str, number: u64) -> String {
    let printable = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
    let host: String = host.chars().take(MAX_HOST).map(printable).collect();
    let host = if host.is_empty() { "localhost" } else { &host };
    format!("{host}_{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_is_unique_and_begins_with_the_host_name() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        assert_eq!(one.rsplit_once('_').unwrap().0, other.rsplit_once('_').unwrap().0);
    }

    #[test]
    fn the_identity_is_short_and_printable_for_any_host_name() {
        for (host, shown) in [("web-1.example", "web-1.example"), ("wéb_1\n", "w-b-1-"), ("", "localhost")] {
            assert_eq!(format_identity(host, 0xabc), format!("{shown}_0000000000000abc"));
        }
        assert_eq!(format_identity(&"x".repeat(300), u64::MAX).len(), 80);
    }
}
