//! The names of the nodes that represent devices.

use crate::node::is_subdomain;

/// The maximum length of a node name in characters: that of a label value, because the name is also the value of the
/// label `kubernetes.io/hostname`.
const LONGEST: usize = 63;

/// Returns the default name of the node of the device at `address`: `cisco-vk-` and the address in lower case, as Cisco's provider forms
/// it, at most 63 characters. Characters other than letters and digits are replaced by `-`. Without any letter or digit, the name is
/// `cisco-virtual-kubelet`.
pub fn node_name(address: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9') => letter,
        _ => '-',
    };
    let address: String = address.chars().map(letter).collect();
    let mut name = if address.trim_matches('-').is_empty() {
        "cisco-virtual-kubelet".to_owned()
    } else {
        format!("cisco-vk-{}", address.trim_matches('-'))
    };
    name.truncate(LONGEST);
    name.trim_end_matches('-').to_owned()
}

/// Returns `true` if `name` is a valid name of the node of a device: an RFC 1123 subdomain of at most 63 characters.
pub(super) fn is_name(name: &str) -> bool {
    name.len() <= LONGEST && is_subdomain(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_becomes_a_name_that_a_node_may_have() {
        for (address, expected) in [
            ("192.0.2.1", "cisco-vk-192-0-2-1"),
            ("2001:DB8::1", "cisco-vk-2001-db8--1"),
            ("Router/1 East", "cisco-vk-router-1-east"),
            ("::", "cisco-virtual-kubelet"),
            ("", "cisco-virtual-kubelet"),
        ] {
            assert_eq!(node_name(address), expected);
            assert!(is_name(&node_name(address)), "{address}");
        }
        let long = node_name(&format!("{}.example.com", "x".repeat(80)));
        assert!(is_name(&long) && long.len() == LONGEST);
    }

    #[test]
    fn what_no_node_may_be_called_is_no_name() {
        for name in ["", "Router", "a_b", "-a", "a-", "a..b", ".a", &"x".repeat(64)] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_name("r1.example.com"));
    }
}
