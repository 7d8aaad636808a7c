//! A recorder that stores the Events of the handler under test.

use std::sync::Arc;

use parking_lot::Mutex;
use staffetta_handler::{EventNote, Recorder};

/// A store of the Events that a handler under test records. Clones share the same Events.
#[derive(Clone, Default)]
pub(crate) struct RecordedEvents(Arc<Mutex<Vec<EventNote>>>);

impl RecordedEvents {
    /// Returns the recorder to pass to the handler under test: it adds the handler's Events to this store.
    pub(crate) fn recorder(&self) -> Recorder {
        let notes = Arc::clone(&self.0);
        Recorder::new(move |note| notes.lock().push(note))
    }

    /// Removes and returns the stored Events.
    pub(crate) fn taken(&self) -> Vec<EventNote> {
        std::mem::take(&mut self.0.lock())
    }

    /// Removes the stored Events and returns their reasons.
    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.taken().into_iter().map(|note| note.reason).collect()
    }
}
