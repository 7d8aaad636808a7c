//! A recorder that keeps the Events of the handler under test.

use std::sync::{Arc, Mutex};

use staffetta_handler::{EventNote, EventRecorder, Recorder};

/// Keeps all Events. A copy is a reference.
#[derive(Clone, Default)]
pub(crate) struct RecordedEvents(Arc<Mutex<Vec<EventNote>>>);

impl RecordedEvents {
    /// The recorder for the handler.
    pub(crate) fn recorder(&self) -> Recorder {
        Recorder::new(self.clone())
    }

    /// Takes the Events since the last call.
    pub(crate) fn taken(&self) -> Vec<EventNote> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Takes the reasons of the Events since the last call.
    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.taken().into_iter().map(|note| note.reason).collect()
    }
}

impl EventRecorder for RecordedEvents {
    fn record(&self, note: EventNote) {
        self.0.lock().unwrap().push(note);
    }
}
