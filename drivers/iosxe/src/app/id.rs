//! The name of an application, which the YANG module restricts to 1 to 40 characters of `[0-9a-zA-Z_]`.

use super::digest::digest;

/// The number of hexadecimal digits for the UID of the pod in the name of an application.
const UID: usize = 32;

/// The number of hexadecimal digits for the container in the name of an application. With them, the name has the maximum of 40 characters.
const CONTAINER: usize = 7;

/// Returns the name of the application of a container: the pod's UID without hyphens, `_`, and a digest of the
/// container's name. A UID that is no UUID is replaced by a digest.
pub(super) fn app_id(uid: &str, container: &str) -> String {
    format!("{}_{}", plain(uid), digest(container, CONTAINER))
}

/// Returns `true` if `id` is the name of an application of the pod with this UID, for any container.
pub(crate) fn is_of(id: &str, uid: &str) -> bool {
    let container = id.strip_prefix(&plain(uid)).and_then(|rest| rest.strip_prefix('_'));
    container.is_some_and(|container| container.len() == CONTAINER)
}

/// Returns the UID without hyphens, or a digest of the same length if it is no UUID.
fn plain(uid: &str) -> String {
    let plain: String = uid.chars().filter(|c| *c != '-').collect();
    let is_uuid = plain.len() == UID && plain.chars().all(|c| c.is_ascii_hexdigit());
    if is_uuid { plain } else { digest(uid, UID) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_is_the_uid_and_seven_digits() {
        let id = app_id("00000000-0000-0000-0000-000000000001", "app");
        assert_eq!(id, format!("00000000000000000000000000000001_{}", digest("app", 7)));
        assert_eq!(app_id("00000000000000000000000000000001", "app"), id);
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_the_module_allows_and_differs_from_its_siblings(
            uid in ".{0,60}", container in "[a-z0-9-]{1,63}", sibling in "[a-z0-9-]{1,63}",
        ) {
            let id = app_id(&uid, &container);
            prop_assert_eq!(id.len(), 40);
            prop_assert!(id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
            prop_assert!(is_of(&id, &uid) && !is_of(&id[..39], &uid) && !is_of(&id, "another"));
            if container != sibling {
                prop_assert_ne!(id, app_id(&uid, &sibling));
            }
        }
    }
}
