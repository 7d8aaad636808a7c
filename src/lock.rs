//! A mutex whose holder panicked holds nothing half-done here: each write under one is a single step.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, whether or not an earlier holder panicked.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
