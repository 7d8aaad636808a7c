//! A function that locks a mutex and ignores poisoning: every critical section of this crate is a single
//! write.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`, even if a former holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
