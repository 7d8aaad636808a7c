//! Limits the number of calls of one service that are in flight.

use std::sync::Mutex;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::window::ConcurrencyWindow;
use crate::lock::lock;

/// Limits the number of calls in flight to the size of a [`ConcurrencyWindow`]. Waiting calls are admitted in
/// order of arrival.
#[derive(Debug)]
pub(super) struct Limiter {
    permits: Semaphore,
    /// The window, and the number of permits in use that are to be dropped instead of returned, since the window has shrunk.
    state: Mutex<(ConcurrencyWindow, usize)>,
}

/// The permission for one call to be in flight, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    held: Option<SemaphorePermit<'a>>,
    limiter: &'a Limiter,
}

impl Limiter {
    /// Creates a limiter that admits `max` calls, at least one, until a response is throttled.
    pub(super) fn new(max: usize) -> Self {
        let window = ConcurrencyWindow::new(max);
        Self { permits: Semaphore::new(window.size()), state: Mutex::new((window, 0)) }
    }

    /// Waits until a call may be sent, and returns its permit.
    pub(super) async fn permit(&self) -> Permit<'_> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        Permit { held: Some(permit), limiter: self }
    }
}

impl Permit<'_> {
    /// Adapts the limit to the response of the call. `throttled` means that the service asked for fewer requests.
    pub(super) fn answered(&self, throttled: bool) {
        let (window, surplus) = &mut *lock(&self.limiter.state);
        let before = window.size();
        if throttled {
            window.throttled(Instant::now());
        } else {
            window.answered();
        }
        let shrunk = before.saturating_sub(window.size());
        *surplus += shrunk - self.limiter.permits.forget_permits(shrunk);
        let grown = window.size().saturating_sub(before);
        let kept = grown.min(*surplus);
        *surplus -= kept;
        self.limiter.permits.add_permits(grown - kept);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let (_, surplus) = &mut *lock(&self.limiter.state);
        if *surplus > 0 {
            *surplus -= 1;
            self.held.take().into_iter().for_each(SemaphorePermit::forget);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

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
