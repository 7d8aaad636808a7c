//! Bounds how many invocations run at a time.

use tokio::sync::Semaphore;

use crate::failure::HandlerError;
use crate::handler::EventHandler;
use crate::message::Message;
use crate::turn::Turn;

/// Lets at most a set number of invocations run at a time; the others wait in order of arrival.
///
/// It belongs inside [`Retry`](crate::Retry), so that a sleeping retry holds no permit.
pub struct Limit<H> {
    inner: H,
    permits: Semaphore,
}

impl<H> Limit<H> {
    /// Lets `permits` invocations of `inner` run at a time; 0 is taken as 1.
    pub fn new(inner: H, permits: usize) -> Self {
        Self { inner, permits: Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS)) }
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Limit<H> {
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        let _permit = match self.permits.try_acquire() {
            Ok(permit) => permit,
            Err(_) => self.permits.acquire().await.expect("the semaphore is never closed"),
        };
        self.inner.handle(event, turn).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::compose::Compose;
    use crate::testing::TestMessage;

    #[derive(Default)]
    struct Crowd {
        inside: AtomicUsize,
        most: AtomicUsize,
    }

    struct Enter(Arc<Crowd>);

    impl EventHandler<TestMessage> for Enter {
        async fn handle(&self, _: &TestMessage, _: &Turn<'_>) -> Result<(), HandlerError> {
            let inside = self.0.inside.fetch_add(1, Ordering::SeqCst) + 1;
            self.0.most.fetch_max(inside, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.0.inside.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[tokio::test]
    async fn no_more_invocations_run_at_a_time_than_there_are_permits() {
        let crowd = Arc::new(Crowd::default());
        let limit = Enter(Arc::clone(&crowd)).limit(3);
        let (event, turn) = (TestMessage::added("a"), Turn::alone());
        futures_util::future::join_all((0..20).map(|_| limit.handle(&event, &turn))).await;
        assert_eq!(crowd.most.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn no_permit_at_all_is_taken_as_one() {
        let limit = Enter(Arc::default()).limit(0);
        limit.handle(&TestMessage::added("a"), &Turn::alone()).await.expect("it is let in");
    }
}
