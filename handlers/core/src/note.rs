//! What a handler tells a person who looks at an object, where nothing went wrong with the event in hand.

use std::sync::Arc;

use tracing::info;

use crate::object::Identity;

/// Something worth telling at an object, as a Kubernetes Event. A failure of the event in hand is told by the chain, and is
/// never a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The handler that tells it.
    pub handler: &'static str,
    /// The object.
    pub regarding: Identity,
    /// Whether somebody ought to do something.
    pub warning: bool,
    /// What happened, in one word of CamelCase, at most 128 characters.
    pub reason: &'static str,
    /// The same in a sentence, which holds no secret.
    pub text: String,
}

/// Takes notes in. Never waits.
pub trait Notebook: Send + Sync + 'static {
    /// Tells `note`.
    fn tell(&self, note: Note);
}

/// Where a handler tells its notes; a copy is a reference. By default they go to the log alone.
#[derive(Clone)]
pub struct Notes(Option<Arc<dyn Notebook>>);

impl Notes {
    /// Tells all notes to `notebook`.
    pub fn new(notebook: impl Notebook) -> Self {
        Self(Some(Arc::new(notebook)))
    }

    /// Tells nobody anything, as a dry run does: nothing happens in it.
    pub fn silent() -> Self {
        Self(None)
    }

    /// Tells `note`: in the log, and at the object.
    pub fn tell(&self, note: Note) {
        let Some(notebook) = &self.0 else { return };
        let subject = note.regarding.subject();
        info!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
            handler = note.handler, reason = note.reason, note = note.text, "something happened to an object");
        notebook.tell(note);
    }
}

impl Default for Notes {
    fn default() -> Self {
        Self::new(LogAlone)
    }
}

/// Writes nothing down.
struct LogAlone;

impl Notebook for LogAlone {
    fn tell(&self, _: Note) {}
}
