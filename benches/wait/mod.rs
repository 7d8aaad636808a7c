//! Waits for things of which a benchmark is not notified.

#![allow(dead_code, reason = "each benchmark takes what it needs")]

use std::time::{Duration, Instant};

/// The time limit of a wait. It measures nothing: it ends a benchmark that hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(900);

/// Calls `look` until it returns a value, with a pause before each further call.
///
/// # Panics
/// After [`PATIENCE`], with the last reason why there is no value.
pub(crate) async fn until<T>(pause: Duration, mut look: impl AsyncFnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look().await {
            Ok(value) => return value,
            Err(reason) => assert!(Instant::now() < deadline, "{reason} after {PATIENCE:?}"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// `Ok` if `count` is `goal`, otherwise the reason why a wait goes on: `3 of 10 pods have a VIF`.
pub(crate) fn complete(count: usize, goal: usize, what: &str) -> Result<(), String> {
    if count == goal { Ok(()) } else { Err(format!("{count} of {goal} {what}")) }
}
