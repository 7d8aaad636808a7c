//! A lock function that ignores poisoning, and a guard that clears a value under a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Ignores poisoning: every critical section is a single change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A guard that sets a value to `None` when it is dropped.
pub(crate) struct ClearOnDrop<'a, T>(pub(crate) &'a Mutex<Option<T>>);

impl<T> Drop for ClearOnDrop<'_, T> {
    fn drop(&mut self) {
        *lock(self.0) = None;
    }
}
