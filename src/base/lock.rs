//! A function that locks a mutex and ignores poisoning, so that a panic in one task does not become a panic in every later user of the
//! mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if a former holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
