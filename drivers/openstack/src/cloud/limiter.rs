//! Limits the number of calls of one service that are in flight.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

/// The time after a decrease of the limit of calls in flight during which it does not decrease again, because the throttled responses
/// belong to calls that were already in flight.
const DECREASE_INTERVAL: Duration = Duration::from_secs(1);

/// Limits the number of calls in flight to a window that changes by additive increase and multiplicative decrease, as in TCP (RFC 5681).
/// Waiting calls are admitted in order of arrival.
#[derive(Debug)]
pub(super) struct Limiter {
    permits: Semaphore,
    max: usize,
    window: Mutex<ConcurrencyWindow>,
}

/// The present limit of calls in flight (`size`), and the state by which it adapts to responses.
#[derive(Debug)]
struct ConcurrencyWindow {
    size: usize,
    /// The number of permits, including those of calls in flight. After a decrease it exceeds the size until enough of these calls end.
    permits: usize,
    /// The number of unthrottled responses since the size last changed.
    unthrottled_count: usize,
    /// The earliest time of the next decrease; `None` before the first.
    next_decrease: Option<Instant>,
}

/// The permission for one call to be in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    held: Option<SemaphorePermit<'a>>,
    limiter: &'a Limiter,
}

impl Limiter {
    /// Creates a limiter that admits `max` simultaneous calls, at least one, until a response is throttled.
    pub(super) fn new(max: usize) -> Self {
        let max = max.max(1);
        let window = ConcurrencyWindow { size: max, permits: max, unthrottled_count: 0, next_decrease: None };
        Self { permits: Semaphore::new(max), max, window: Mutex::new(window) }
    }

    /// Waits until a call may be sent, and returns its permit.
    pub(super) async fn permit(&self) -> Permit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        Permit { held: Some(permit), limiter: self }
    }
}

impl Permit<'_> {
    /// Adapts the limit to the response of the call. `throttled` means that the service asked for fewer requests. The window then halves,
    /// down to one, unless it did so less than a second ago. It grows by one after as many unthrottled responses as its size, up to the
    /// maximum.
    pub(super) fn answered(&self, throttled: bool) {
        let (window, now) = (&mut *self.limiter.window.lock(), Instant::now());
        if !throttled {
            window.unthrottled_count += 1;
            if window.unthrottled_count >= window.size && window.size < self.limiter.max {
                (window.size, window.unthrottled_count) = (window.size + 1, 0);
            }
        } else if window.next_decrease.is_none_or(|next| now >= next) {
            (window.size, window.unthrottled_count) = ((window.size / 2).max(1), 0);
            window.next_decrease = Some(now + DECREASE_INTERVAL);
        }
        let surplus = window.permits.saturating_sub(window.size);
        window.permits -= self.limiter.permits.forget_permits(surplus);
        let missing = window.size.saturating_sub(window.permits);
        self.limiter.permits.add_permits(missing);
        window.permits += missing;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let window = &mut *self.limiter.window.lock();
        if window.permits > window.size {
            window.permits -= 1;
            self.held.take().into_iter().for_each(SemaphorePermit::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_window_halves_when_throttled_and_grows_by_one_after_as_many_responses_as_its_size() {
        let limiter = Limiter::new(16);
        let (call, size) = (limiter.permit().await, || limiter.window.lock().size);
        call.answered(true);
        call.answered(true);
        assert_eq!(size(), 8, "one decrease for all calls that were under way");
        for _ in 0..8 {
            call.answered(false);
        }
        assert_eq!(size(), 9);
        for _ in 0..10 {
            tokio::time::advance(DECREASE_INTERVAL).await;
            call.answered(true);
        }
        assert_eq!(size(), 1);
        for _ in 0..1000 {
            call.answered(false);
        }
        assert_eq!(size(), 16);
    }

    #[tokio::test(start_paused = true)]
    async fn as_many_calls_are_in_flight_as_the_service_bears() {
        let limiter = Limiter::new(4);
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(limiter.permit().await);
        }
        let busy =
            || async { tokio::time::timeout(Duration::from_millis(1), limiter.permit()).await.is_err() };
        assert!(busy().await, "four are in flight");
        held[0].answered(true);
        held.truncate(2);
        assert!(busy().await, "two remain, and so many are allowed now");
        for _ in 0..2 {
            held[0].answered(false);
        }
        held.push(limiter.permit().await);
        assert!(busy().await, "three are allowed again");
        held.clear();
        let free = [limiter.permit().await, limiter.permit().await, limiter.permit().await];
        assert!(busy().await, "no permit is lost or won");
        drop(free);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_permits_are_taken_back_too() {
        let limiter = Limiter::new(4);
        limiter.permit().await.answered(true);
        let _held = [limiter.permit().await, limiter.permit().await];
        let third = tokio::time::timeout(Duration::from_millis(1), limiter.permit()).await;
        assert!(third.is_err());
    }
}
