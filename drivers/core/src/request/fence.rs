//! The fence that keeps a process that is not the leader from sending requests to external systems.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// A guard that lets drivers send requests only while this process holds the leader Lease, whatever sends them: a
/// handler, garbage collection, a pool or a task of the driver. The default value lets every request pass.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> bool + Send + Sync>);

impl Fence {
    /// The error message of a request that a fence stopped. The request may have taken effect, if the leadership ended after it was
    /// sent.
    pub const NOT_LEADER_MESSAGE: &str = "refused: this process does not hold the leader lease";

    /// Creates a fence. `is_leader` returns `true` while requests may be sent.
    pub fn new(is_leader: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(is_leader))
    }

    /// Runs `request`, and checks the leadership before each poll of the future, so that a request that still
    /// waits for its connection when the leadership ends is not sent. Returns `None` if the leadership has
    /// ended.
    pub async fn run<R: Future>(&self, request: R) -> Option<R::Output> {
        let mut request = pin!(request);
        poll_fn(|context| {
            let is_leader = (self.0)();
            if is_leader { request.as_mut().poll(context).map(Some) } else { Poll::Ready(None) }
        })
        .await
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new(|| true)
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&(self.0)()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
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
}
