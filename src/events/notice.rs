//! What is told: one occurrence, before it is counted together with others.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use staffetta_handler::Identity;

/// How an Event names the object that it is about.
pub(crate) fn reference(identity: &Identity) -> ObjectReference {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ObjectReference {
        api_version: some(&identity.api_version),
        kind: some(&identity.kind),
        namespace: identity.namespace.clone(),
        name: some(&identity.name),
        uid: some(&identity.uid),
        resource_version: identity.resource_version.clone(),
        field_path: None,
    }
}

/// The longest note that the server takes, in bytes.
const NOTE: usize = 1024;

/// The longest reason and action that the server takes, in bytes.
const WORD: usize = 128;

/// Where Events about objects without a namespace are kept.
pub(crate) const CLUSTER_WIDE: &str = "default";

/// Something that happened to an object, for the person who looks at the object.
#[derive(Clone, Debug)]
pub(crate) struct Notice {
    /// The object.
    pub(crate) regarding: ObjectReference,
    /// Whether somebody ought to do something.
    pub(crate) weight: Weight,
    /// What happened, in one word of CamelCase.
    pub(crate) reason: &'static str,
    /// The handler to which it happened.
    pub(crate) action: Arc<str>,
    /// The same in a sentence, at most 1,024 bytes.
    pub(crate) note: String,
    /// When it happened.
    pub(crate) at: Timestamp,
}

/// The `type` of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// All is well.
    Normal,
    /// Something is not as it ought to be.
    Warning,
}

impl Weight {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Normal => "Normal",
            Self::Warning => "Warning",
        }
    }
}

impl Notice {
    /// The namespace of the Event.
    pub(crate) fn kept_in(&self) -> &str {
        self.regarding.namespace.as_deref().unwrap_or(CLUSTER_WIDE)
    }

    /// Happened now: `what`, and `then`, which is shown whole however long `what` is.
    pub(crate) fn new(
        regarding: ObjectReference,
        weight: Weight,
        reason: &'static str,
        action: &Arc<str>,
        (what, then): (&str, &str),
    ) -> Self {
        let reason = if reason.is_empty() { "HandlingFailed" } else { cut(reason, WORD) };
        let action = if action.len() > WORD { cut(action, WORD).into() } else { Arc::clone(action) };
        Self { regarding, weight, reason, action, note: note(what, then), at: Timestamp::now() }
    }
}

/// Both parts, the first of them shortened until they fit.
fn note(what: &str, then: &str) -> String {
    let then = cut(then, NOTE);
    if what.len() + then.len() <= NOTE {
        return format!("{what}{then}");
    }
    let room = (NOTE - then.len()).saturating_sub('…'.len_utf8());
    let note = format!("{}…{then}", cut(what, room));
    if note.len() > NOTE { then.to_owned() } else { note }
}

/// At most the first `bytes` of a text; no character is divided.
fn cut(text: &str, bytes: usize) -> &str {
    let mut end = bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_fits_divides_no_character_and_keeps_its_end() {
        assert_eq!(note("no port", "; again in 5 s"), "no port; again in 5 s");
        for what in ["x".repeat(5000), "ü".repeat(5000), "x".repeat(NOTE), "x".repeat(NOTE - 13)] {
            let note = note(&what, "; again in 5 s");
            assert!(note.len() <= NOTE && note.len() >= NOTE - 2, "{}", note.len());
            assert!(note.ends_with("…; again in 5 s"), "{note}");
        }
        assert_eq!(note("x", &"y".repeat(5000)), "y".repeat(NOTE));
    }

    #[test]
    fn what_an_author_named_badly_is_told_all_the_same() {
        let long: Arc<str> = "handler".repeat(100).into();
        let notice = Notice::new(ObjectReference::default(), Weight::Normal, "", &long, ("", ""));
        assert_eq!((notice.reason, notice.action.len()), ("HandlingFailed", WORD));
    }
}
