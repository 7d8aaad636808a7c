//! What a handler under test tells.

use std::sync::{Arc, Mutex};

use staffetta_handler::{Note, Notebook, Notes};

/// Keeps all notes. A copy is a reference.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<Note>>>);

impl Told {
    /// Where the handler tells.
    pub(crate) fn notes(&self) -> Notes {
        Notes::new(self.clone())
    }

    /// The notes since the last look.
    pub(crate) fn taken(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// Their reasons.
    pub(crate) fn reasons(&self) -> Vec<&'static str> {
        self.taken().into_iter().map(|note| note.reason).collect()
    }
}

impl Notebook for Told {
    fn tell(&self, note: Note) {
        self.0.lock().unwrap().push(note);
    }
}
