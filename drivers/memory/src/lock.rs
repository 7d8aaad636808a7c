//! The mutex of the simulated cloud.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. A panic of an earlier holder is ignored: the state of a simulation is never half-changed for long.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
