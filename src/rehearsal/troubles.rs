//! What could not be read or planned, beside the failures of single objects.

use std::sync::Mutex;

use crate::lock::lock;

/// What could not be read or planned, a sentence each.
#[derive(Default)]
pub(super) struct Troubles(Mutex<Vec<String>>);

impl Troubles {
    /// Adds one, unless it was told before.
    pub(super) fn add(&self, trouble: String) {
        let mut troubles = lock(&self.0);
        if !troubles.contains(&trouble) {
            troubles.push(trouble);
        }
    }

    /// Takes them all out.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0))
    }
}
