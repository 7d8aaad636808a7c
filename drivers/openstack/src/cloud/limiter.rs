//! The calls of one service that are in flight, shared by all who make them.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::window::Window;

/// Lets so many calls through at a time as the service bears, in the order in which they come.
#[derive(Debug)]
pub(super) struct Limiter {
    permits: Arc<Semaphore>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    window: Window,
    /// Permits that are still out, and of which so many are not given out again.
    surplus: usize,
}

/// A call may be in flight while this exists.
#[derive(Debug)]
pub(super) struct Permit {
    held: Option<OwnedSemaphorePermit>,
    permits: Arc<Semaphore>,
    state: Arc<Mutex<State>>,
}

impl Limiter {
    pub(super) fn new(max: usize) -> Self {
        let window = Window::new(max);
        let permits = Arc::new(Semaphore::new(window.size()));
        Self { permits, state: Arc::new(Mutex::new(State { window, surplus: 0 })) }
    }

    /// Waits for its turn.
    pub(super) async fn permit(&self) -> Permit {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        Permit {
            held: Some(permit.expect("the semaphore is never closed")),
            permits: Arc::clone(&self.permits),
            state: Arc::clone(&self.state),
        }
    }
}

impl Permit {
    /// The call was answered: with too much work, or as it should be.
    pub(super) fn answered(&self, throttled: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = state.window.size();
        if throttled {
            state.window.throttled(Instant::now());
        } else {
            state.window.answered();
        }
        let after = state.window.size();
        let shrunk = before.saturating_sub(after);
        state.surplus += shrunk - self.permits.forget_permits(shrunk);
        let grown = after.saturating_sub(before);
        let kept = grown.min(state.surplus);
        state.surplus -= kept;
        self.permits.add_permits(grown - kept);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.surplus > 0 {
            state.surplus -= 1;
            self.held.take().into_iter().for_each(OwnedSemaphorePermit::forget);
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
