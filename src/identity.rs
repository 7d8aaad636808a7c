//! By which name this process is known to others.

use std::hash::{BuildHasher, Hasher, RandomState};

/// The name of the machine (in a pod: of the pod) and a random number: two processes never have the same, nor does one
/// that was started anew. Each call makes another one.
pub(crate) fn identity() -> String {
    let machine = rustix::system::uname();
    format!("{}_{:016x}", machine.nodename().to_string_lossy(), random())
}

/// A number that nobody can guess: the standard library seeds its hashers by the operating system.
pub(crate) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_identity_is_another_one_and_begins_with_the_name_of_the_machine() {
        let (one, other) = (identity(), identity());
        assert_ne!(one, other);
        let (machine, number) = one.rsplit_once('_').unwrap();
        assert!(!machine.is_empty() && number.len() == 16, "{one}");
    }
}
