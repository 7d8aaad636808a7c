//! A guard that clears a value under a lock.

use parking_lot::Mutex;

/// A guard that sets a value to `None` when it is dropped.
pub(crate) struct ClearOnDrop<'a, T>(pub(crate) &'a Mutex<Option<T>>);

impl<T> Drop for ClearOnDrop<'_, T> {
    fn drop(&mut self) {
        *self.0.lock() = None;
    }
}
