//! Kubernetes Events that a handler creates on its own initiative, and not because an invocation failed.

use std::sync::Arc;

use tracing::info;

use crate::event::Identity;

/// A Kubernetes Event that a handler wants to create on an object. It is not meant for failures of an invocation, because the chain
/// reports those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// The name of the handler.
    pub handler: &'static str,
    /// The object on which the Event is created.
    pub regarding: Identity,
    /// `true` for an Event of type `Warning`, which requires an action of a user.
    pub warning: bool,
    /// The `reason` of the Event: one CamelCase word of at most 128 characters.
    pub reason: &'static str,
    /// The `note` of the Event: a sentence without secrets.
    pub text: String,
}

/// Creates Kubernetes Events. The calls never block.
pub trait EventRecorder: Send + Sync + 'static {
    /// Creates the Event later, in the background.
    fn record(&self, note: EventNote);
}

/// The event recorder of a handler. Clones share the same destination. The default recorder writes to the log only.
#[derive(Clone, Default)]
pub struct Recorder {
    silent: bool,
    recorder: Option<Arc<dyn EventRecorder>>,
}

impl Recorder {
    /// Makes a recorder that writes to the log and passes each Event to `recorder`.
    pub fn new(recorder: impl EventRecorder) -> Self {
        Self { silent: false, recorder: Some(Arc::new(recorder)) }
    }

    /// Makes a recorder that discards everything, for a dry run.
    pub fn silent() -> Self {
        Self { silent: true, recorder: None }
    }

    /// Writes the Event to the log, and creates it if the recorder can.
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
