//! The fence that keeps a process that is not the leader from sending requests to external systems.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::sync::watch;

/// A guard that lets drivers send requests only while this process holds the leader Lease, whatever sends them: a
/// handler, garbage collection, a pool or a task of the driver. It also knows which requests are in flight, so that a process hands its
/// leadership over only when they have ended. Clones share that. The default value lets every request pass.
#[derive(Clone)]
pub struct Fence(Arc<FenceState>);

/// The state that the clones of a fence share.
struct FenceState {
    is_leader: Box<dyn Fn() -> bool + Send + Sync>,
    /// `true` once [`Fence::close`] was called.
    is_closed: AtomicBool,
    /// The number of requests in flight.
    in_flight: watch::Sender<usize>,
}

/// A request in flight. Dropping it records its end.
struct InFlight<'f>(&'f FenceState);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.send_modify(|count| *count -= 1);
    }
}

impl Fence {
    /// The error message of a request that a fence stopped. The request may have taken effect, if the leadership ended after it was
    /// sent.
    pub const NOT_LEADER_MESSAGE: &str = "refused: this process does not hold the leader lease";

    /// Creates a fence. `is_leader` returns `true` while requests may be sent.
    pub fn new(is_leader: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let (is_leader, is_closed) = (Box::new(is_leader), AtomicBool::default());
        Self(Arc::new(FenceState { is_leader, is_closed, in_flight: watch::Sender::new(0) }))
    }

    /// Runs `request`, and checks the leadership before each poll of the future, so that a request that still
    /// waits for its connection when the leadership ends is not sent. Returns `None` if the leadership has
    /// ended, or if the fence was closed before.
    pub async fn run<R: Future>(&self, request: R) -> Option<R::Output> {
        let mut request = pin!(request);
        self.0.in_flight.send_modify(|count| *count += 1);
        let _in_flight = InFlight(&self.0);
        if self.0.is_closed.load(Ordering::SeqCst) {
            return None;
        }
        poll_fn(|context| {
            let is_leader = (self.0.is_leader)();
            if is_leader { request.as_mut().poll(context).map(Some) } else { Poll::Ready(None) }
        })
        .await
    }

    /// Lets no request begin any more, and waits until those in flight have ended, whatever sent them.
    pub async fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        // It fails only once the sender is dropped, which `self` holds.
        let _ = self.0.in_flight.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new(|| true)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&(self.0.is_leader)()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_when_the_leadership_ends_is_not_sent() {
        let leads = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&leads);
        let fence = Fence::new(move || asked.load(Ordering::Relaxed));
        let sent = AtomicBool::new(false);
        let request = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            sent.store(true, Ordering::Relaxed);
        };
        let end = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            leads.store(false, Ordering::Relaxed);
        };
        assert_eq!(tokio::join!(fence.run(request), end).0, None);
        assert!(!sent.load(Ordering::Relaxed));
        assert_eq!(fence.run(async { 7 }).await, None);
        assert_eq!(Fence::default().run(async { 7 }).await, Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fence_is_closed_when_detached_requests_have_ended_and_lets_no_other_begin() {
        let fence = Fence::default();
        let (detached, began) = (fence.clone(), tokio::time::Instant::now());
        tokio::spawn(async move { detached.run(tokio::time::sleep(Duration::from_secs(7))).await });
        let cancelled = tokio::time::timeout(Duration::from_secs(1), fence.run(std::future::pending::<()>()));
        assert!(cancelled.await.is_err());
        let late = fence.clone();
        let late = async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            late.run(async { 7 }).await
        };
        let ((), late) = tokio::join!(fence.close(), late);
        assert_eq!((began.elapsed(), late), (Duration::from_secs(7), None));
    }
}
