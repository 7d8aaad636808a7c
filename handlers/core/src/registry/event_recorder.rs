//! Kubernetes Events that a handler records without a failure of the event at hand.

use std::sync::Arc;

use tracing::info;

use crate::event::Identity;

/// A Kubernetes Event to be created on an object. A failure of the event at hand is reported by the chain instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// The handler that records it.
    pub handler: &'static str,
    /// The object.
    pub regarding: Identity,
    /// Set if the Event is a warning, on which somebody should act.
    pub warning: bool,
    /// The reason in one word of CamelCase, at most 128 characters.
    pub reason: &'static str,
    /// The same in a sentence without secrets.
    pub text: String,
}

/// Creates Kubernetes Events. Never blocks.
pub trait EventRecorder: Send + Sync + 'static {
    /// Records `note`.
    fn record(&self, note: EventNote);
}

/// The event recorder of a handler; clones share it. The default one writes to the log only.
#[derive(Clone)]
pub struct Recorder(Destination);

#[derive(Clone)]
enum Destination {
    Nothing,
    Log,
    LogAndObject(Arc<dyn EventRecorder>),
}

impl Recorder {
    /// Records in the log and with `recorder`.
    pub fn new(recorder: impl EventRecorder) -> Self {
        Self(Destination::LogAndObject(Arc::new(recorder)))
    }

    /// Records nothing, for a dry run.
    pub fn silent() -> Self {
        Self(Destination::Nothing)
    }

    /// Records `note`.
    pub fn record(&self, note: EventNote) {
        if let Destination::Nothing = self.0 {
            return;
        }
        let object_ref = note.regarding.object_ref();
        info!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            handler = note.handler, reason = note.reason, note = note.text, "an event was recorded on an object");
        if let Destination::LogAndObject(recorder) = &self.0 {
            recorder.record(note);
        }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self(Destination::Log)
    }
}
