//! Kubernetes Events for conditions that are not failures, recorded once per object until the
//! condition changes.

use dashmap::DashMap;
use staffetta_handler::{EventNote, Identity, Recorder};

/// Records Events of one handler, without repeating a condition that persists.
pub(crate) struct Notices {
    handler: &'static str,
    recorder: Recorder,
    /// The text of each object's persistent condition, by UID.
    conditions: DashMap<String, String>,
}

impl Notices {
    /// Records the Events of `handler` through `recorder`.
    pub(crate) fn new(handler: &'static str, recorder: Recorder) -> Self {
        Self { handler, recorder, conditions: DashMap::new() }
    }

    /// Records a warning on `regarding`.
    pub(crate) fn warn(&self, regarding: Identity, reason: &'static str, text: String) {
        self.recorder.record(EventNote { handler: self.handler, regarding, warning: true, reason, text });
    }

    /// Records a warning on `regarding` if its condition became `text`; `None` ends the condition.
    pub(crate) fn set_condition(&self, regarding: Identity, reason: &'static str, text: Option<String>) {
        let Some(text) = text else { return self.forget(&regarding.uid) };
        let previous = self.conditions.insert(regarding.uid.clone(), text.clone());
        if previous.as_ref() != Some(&text) {
            self.warn(regarding, reason, text);
        }
    }

    /// Drops the condition of an object that was deleted or is no longer handled.
    pub(crate) fn forget(&self, uid: &str) {
        self.conditions.remove(uid);
    }
}
