//! One occurrence that a Kubernetes Event reports, such as a failure, within the length limits of the Events API.

use std::sync::Arc;

use jiff::Timestamp;
use staffetta_handler::Identity;

/// The maximum length of the note of an Event in bytes (validation of `events.k8s.io/v1`).
const MAX_NOTE: usize = 1024;

/// The maximum length of the reason and of the action of an Event in bytes.
const MAX_WORD: usize = 128;

/// The maximum length of the part of an Event name that comes from the object, in bytes. The suffix (a dot and 16 hexadecimal digits)
/// completes it to the 253 bytes that a name may have.
const MAX_OBJECT_NAME: usize = 253 - 17;

/// Something that happened to an object in a handler, and that a Kubernetes Event reports.
#[derive(Clone, Debug)]
pub(crate) struct Occurrence {
    /// The object on which the Event is created.
    pub(crate) regarding: Identity,
    /// The name of the handler, which becomes the `action` of the Event.
    pub(crate) handler: Arc<str>,
    /// `true` for type `Warning`, `false` for `Normal`.
    pub(crate) warning: bool,
    /// The reason in one `CamelCase` word of at most 128 bytes.
    pub(crate) reason: &'static str,
    /// The `note` of the Event: a sentence of at most 1,024 bytes.
    pub(crate) note: String,
    /// The time of the occurrence.
    pub(crate) at: Timestamp,
}

impl Occurrence {
    /// Makes an occurrence at the current time. The note consists of both texts; if they are too long together, the first one is cut.
    pub(crate) fn new(
        regarding: Identity,
        handler: &Arc<str>,
        warning: bool,
        reason: &'static str,
        (text, suffix): (&str, &str),
    ) -> Self {
        let reason = if reason.is_empty() { "HandlingFailed" } else { cut(reason, MAX_WORD) };
        let long = handler.len() > MAX_WORD;
        let handler = if long { cut(handler, MAX_WORD).into() } else { Arc::clone(handler) };
        Self { regarding, handler, warning, reason, note: note(text, suffix), at: Timestamp::now() }
    }

    /// Returns the key of the object for aggregation: its UID, or kind and names if the UID is not known.
    pub(super) fn object(&self) -> Arc<str> {
        let Identity { kind, namespace, name, uid, .. } = &self.regarding;
        if uid.is_empty() { format!("{kind} {namespace:?} {name}").into() } else { uid.as_str().into() }
    }

    /// Returns the namespace of the Event: that of the object, or `default` for a cluster-scoped object.
    pub(super) fn namespace(&self) -> &str {
        self.regarding.namespace.as_deref().unwrap_or("default")
    }
}

/// Joins both texts, and cuts the first one so that the result has at most [`MAX_NOTE`] bytes.
fn note(text: &str, suffix: &str) -> String {
    let suffix = cut(suffix, MAX_NOTE);
    if text.len() + suffix.len() <= MAX_NOTE {
        return format!("{text}{suffix}");
    }
    let room = (MAX_NOTE - suffix.len()).checked_sub('…'.len_utf8());
    room.map_or_else(|| suffix.to_owned(), |room| format!("{}…{suffix}", cut(text, room)))
}

/// Returns at most the first `bytes` bytes of `text`, cut between two characters.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// Returns the name of an Event: the name of the object, and a number. The result is always a DNS subdomain (RFC 1123).
pub(super) fn event_name(object: &str, number: u64) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let labels = object.split('.').map(|label| label.chars().map(plain).collect::<String>());
    let labels: Vec<_> = labels.map(|label| label.trim_matches('-').to_owned()).collect();
    let mut name = labels.into_iter().filter(|label| !label.is_empty()).collect::<Vec<_>>().join(".");
    name.truncate(MAX_OBJECT_NAME);
    let name = name.trim_end_matches(['-', '.']);
    format!("{}.{number:016x}", if name.is_empty() { "staffetta" } else { name })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_note_fits_divides_no_character_and_keeps_its_suffix() {
        assert_eq!(note("no port", "; again in 5 s"), "no port; again in 5 s");
        for text in ["x".repeat(5000), "ü".repeat(5000), "x".repeat(MAX_NOTE), "x".repeat(MAX_NOTE - 13)] {
            let note = note(&text, "; again in 5 s");
            assert!(note.len() <= MAX_NOTE && note.len() >= MAX_NOTE - 2, "{}", note.len());
            assert!(note.ends_with("…; again in 5 s"), "{note}");
        }
        assert_eq!(note("x", &"y".repeat(5000)), "y".repeat(MAX_NOTE));
    }

    #[test]
    fn an_empty_reason_and_a_long_handler_name_are_accepted() {
        let long: Arc<str> = "handler".repeat(100).into();
        let regarding = Identity::of::<Pod>(None, "web".into(), "u".into());
        let occurrence = Occurrence::new(regarding, &long, false, "", ("", ""));
        assert_eq!((occurrence.reason, occurrence.handler.len()), ("HandlingFailed", MAX_WORD));
    }

    #[test]
    fn the_name_of_an_event_begins_with_that_of_the_object() {
        assert_eq!(event_name("web-1.example", 0xabc), "web-1.example.0000000000000abc");
        assert_eq!(event_name("system:node", 0xabe), "system-node.0000000000000abe");
        assert_eq!(event_name(".-.", 0xabf), "staffetta.0000000000000abf");
    }

    proptest! {
        #[test]
        fn the_name_of_an_event_is_a_subdomain_whatever_the_name_of_the_object(object in ".{0,300}", number: u64) {
            let name = event_name(&object, number);
            prop_assert!(name.len() <= 253);
            for label in name.split('.') {
                let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
                prop_assert!(!label.is_empty() && label.bytes().all(inner), "{name}");
                prop_assert!(!label.starts_with('-') && !label.ends_with('-'), "{name}");
            }
        }
    }
}
