//! Warning Events of the handlers for conditions that are not failures. An Event about a lasting condition
//! is recorded once per object, until the condition changes.

use dashmap::DashMap;
use staffetta_handler::{EventNote, Identity, Recorder};

/// The recorder of the warning Events of one handler. An Event about a lasting condition of an object is
/// recorded once, and again only when the text of the condition changes.
pub(crate) struct Notices {
    handler: &'static str,
    recorder: Recorder,
    /// The text of each object's lasting condition, by the UID of the object.
    conditions: DashMap<String, String>,
}

impl Notices {
    /// Creates the recorder of the warning Events of the handler named `handler`, at first without any
    /// condition. The Events go to `recorder`.
    pub(crate) fn new(handler: &'static str, recorder: Recorder) -> Self {
        Self { handler, recorder, conditions: DashMap::new() }
    }

    /// Records a warning Event on the object `regarding`.
    pub(crate) fn warn(&self, regarding: Identity, reason: &'static str, text: String) {
        self.recorder.record(EventNote { handler: self.handler, regarding, warning: true, reason, text });
    }

    /// Sets the lasting condition of the object `regarding`, and records a warning Event if the
    /// text of the condition changed. `None` ends the condition without an Event.
    pub(crate) fn set_condition(&self, regarding: Identity, reason: &'static str, text: Option<String>) {
        let Some(text) = text else { return self.forget(&regarding.uid) };
        let previous = self.conditions.insert(regarding.uid.clone(), text.clone());
        if previous.as_ref() != Some(&text) {
            self.warn(regarding, reason, text);
        }
    }

    /// Drops the condition of an object that was deleted or is no longer handled, by its UID.
    pub(crate) fn forget(&self, uid: &str) {
        self.conditions.remove(uid);
    }
}
