//! By which name this process is known to others.

use std::hash::{BuildHasher, Hasher, RandomState};

/// How much of the name of the machine is shown, in characters.
const MACHINE: usize = 63;

/// The name of the machine (in a pod: of the pod) and a random number: two processes never have the same, nor does one
/// that was started anew. Each call makes another one. At most 80 characters of `A-Z a-z 0-9 . _ -`.
pub(crate) fn identity() -> String {
    named(&rustix::system::uname().nodename().to_string_lossy(), random())
}

/// A number that nobody can guess: the standard library seeds its hashers by the operating system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

fn named(machine: &str, number: u64) -> String {
    let printable = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '-' };
    let machine: String = machine.chars().take(MACHINE).map(printable).collect();
    let machine = if machine.is_empty() { "localhost" } else { &machine };
    format!("{machine}_{number:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_is_another_one_and_begins_with_the_name_of_the_machine() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        assert_eq!(one.rsplit_once('_').unwrap().0, other.rsplit_once('_').unwrap().0);
    }

    #[test]
    fn whatever_the_machine_is_called_the_identity_is_short_and_printable() {
        for (machine, shown) in [("web-1.example", "web-1.example"), ("wéb_1\n", "w-b-1-"), ("", "localhost")]
        {
            assert_eq!(named(machine, 0xabc), format!("{shown}_0000000000000abc"));
        }
        assert_eq!(named(&"x".repeat(300), u64::MAX).len(), 80);
    }
}
