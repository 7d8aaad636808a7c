//! Names of Events.

/// How much of the object's name is shown, so that the whole is at most 253 characters.
const OBJECT: usize = 253 - 17;

/// Gives each Event a name of its own: that of the object, and a number that begins at random.
pub(crate) struct Names {
    next: u64,
}

impl Names {
    pub(crate) fn new(first: u64) -> Self {
        Self { next: first }
    }

    /// The next name. It is a DNS subdomain (RFC 1123) whatever the object is called.
    pub(crate) fn next(&mut self, object: &str) -> String {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let object = subdomain(object);
        if object.is_empty() { format!("staffetta.{number:016x}") } else { format!("{object}.{number:016x}") }
    }
}

/// `name` with nothing but lower-case letters, digits, and between them `-` and `.`.
fn subdomain(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let parts = name.split('.').map(|part| part.chars().map(plain).collect::<String>());
    let parts: Vec<_> = parts.map(|part| part.trim_matches('-').to_owned()).collect();
    let kept: Vec<_> = parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect();
    let mut name = kept.join(".");
    name.truncate(OBJECT);
    name.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_name_begins_with_that_of_the_object_and_is_used_once() {
        let mut names = Names::new(0xabc);
        assert_eq!(names.next("web-1.example"), "web-1.example.0000000000000abc");
        assert_eq!(names.next("web-1.example"), "web-1.example.0000000000000abd");
        assert_eq!(names.next("system:node"), "system-node.0000000000000abe");
        assert_eq!(names.next(".-."), "staffetta.0000000000000abf");
    }

    proptest! {
        #[test]
        fn whatever_the_object_is_called_the_name_is_a_subdomain(object in ".{0,300}", number: u64) {
            let name = Names::new(number).next(&object);
            prop_assert!(name.len() <= 253);
            for part in name.split('.') {
                let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                prop_assert!(!part.is_empty() && part.bytes().all(inner), "{name}");
                prop_assert!(!part.starts_with('-') && !part.ends_with('-'), "{name}");
            }
        }
    }
}
