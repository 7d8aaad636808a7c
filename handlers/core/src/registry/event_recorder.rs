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
#[derive(Clone, Default)]
pub struct Recorder {
    silent: bool,
    recorder: Option<Arc<dyn EventRecorder>>,
}

impl Recorder {
    /// Records in the log and with `recorder`.
    pub fn new(recorder: impl EventRecorder) -> Self {
        Self { silent: false, recorder: Some(Arc::new(recorder)) }
    }

    /// Records nothing, for a dry run.
    pub fn silent() -> Self {
        Self { silent: true, recorder: None }
    }

    /// Records `note`.
    pub fn record(&self, note: EventNote) {
        if self.silent {
            return;
        }
        let object_ref = note.regarding.object_ref();
        info!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            handler = note.handler, reason = note.reason, note = note.text, "an event was recorded on an object");
        if let Some(recorder) = &self.recorder {
            recorder.record(note);
        }
    }
}
