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
    /// `true` for an Event of type `Warning`, which requires an action of a user; `false` for one of type `Normal`.
    pub warning: bool,
    /// The `reason` of the Event: one CamelCase word of at most 128 characters.
    pub reason: &'static str,
    /// The `note` of the Event: a sentence without secrets.
    pub text: String,
}

/// The recorder of Kubernetes Events that handlers create on their own initiative. Clones share the same destination.
#[derive(Clone)]
pub struct Recorder(Arc<dyn Fn(EventNote) + Send + Sync>);

impl Default for Recorder {
    /// Makes a recorder that writes to the log only.
    fn default() -> Self {
        Self::new(|_| {})
    }
}

impl Recorder {
    /// Makes a recorder that writes to the log and passes each Event to `create`, which creates it later, in the background. `create` must
    /// not block.
    pub fn new(create: impl Fn(EventNote) + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |note| {
            let object_ref = note.regarding.object_ref();
            info!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
                handler = note.handler, reason = note.reason, note = note.text, "an event was recorded on an object");
            create(note);
        }))
    }

    /// Makes a recorder that discards everything, for a dry run.
    pub fn silent() -> Self {
        Self(Arc::new(|_| {}))
    }

    /// Writes the Event to the log and passes it to the function that creates it, if there is one. A [silent](Self::silent) recorder does
    /// neither.
    pub fn record(&self, note: EventNote) {
        (self.0)(note);
    }
}
