//! The boot clock, and a fence that stops work if the process was suspended.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use staffetta_driver::Fence;

/// The default of `send_limit`, the time within which a change of a module is sent or given up.
pub(crate) const SEND_LIMIT: Duration = Duration::from_secs(5);

/// Returns the time since the start of the computer, on the clock by which Leases are measured. It goes on while the process is stopped
/// and while the computer is suspended.
pub(crate) fn boot_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).expect("the boot clock starts at 0")
}

/// Returns a fence that stops the future that it runs once more than `limit` has passed between two polls, by the time of `clock`. That
/// happens when the process was suspended.
pub(crate) fn suspension_fence(
    limit: Duration,
    clock: impl Fn() -> Duration + Send + Sync + 'static,
) -> Fence {
    let polled = parking_lot::Mutex::new(clock());
    Fence::new(move || {
        let now = clock();
        let before = std::mem::replace(&mut *polled.lock(), now);
        now.saturating_sub(before) <= limit
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn nothing_goes_on_after_a_suspension_and_polls_in_time_do_not_count() {
        let time = Arc::new(AtomicU64::new(100));
        let clock = Arc::clone(&time);
        let fence =
            suspension_fence(SEND_LIMIT, move || Duration::from_millis(clock.load(Ordering::Relaxed)));
        for _ in 0..3 {
            time.fetch_add(5_000, Ordering::Relaxed);
            assert_eq!(fence.run(async { "sent" }).await, Some("sent"));
        }
        let queued = async {
            time.fetch_add(5_001, Ordering::Relaxed);
            tokio::task::yield_now().await;
            "sent"
        };
        assert_eq!(fence.run(queued).await, None);
    }
}
