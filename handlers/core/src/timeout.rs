//! Bounds how long an invocation takes.

use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;

use crate::clock::after;
use crate::failure::{Failure, HandlerError};
use crate::handler::EventHandler;
use crate::log_exceptions::Panicked;
use crate::message::Message;
use crate::turn::Turn;

/// Ends an invocation that takes too long with a [`TimedOut`], which is transient, and tells the queue how long each one was
/// at work.
///
/// It belongs inside [`Limit`](crate::Limit), so that waiting for a permit is not work.
pub struct Timeout<H> {
    inner: H,
    limit: Duration,
}

impl<H> Timeout<H> {
    /// Gives each invocation of `inner` at most `limit`.
    pub fn new(inner: H, limit: Duration) -> Self {
        Self { inner, limit }
    }
}

/// The handler, or the driver that it called, took too long and was interrupted.
#[derive(Debug, thiserror::Error)]
#[error("no answer within {} s", limit.as_secs_f64())]
pub struct TimedOut {
    limit: Duration,
}

impl TimedOut {
    /// How long it took.
    pub fn limit(&self) -> Duration {
        self.limit
    }
}

impl Failure for TimedOut {
    fn transient(&self) -> bool {
        true
    }

    fn reason(&self) -> &'static str {
        "TimedOut"
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Timeout<H> {
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        let work = turn.work();
        let mut invocation = pin!(self.inner.handle(event, turn));
        // Most invocations end at once, and need no timer.
        if let Poll::Ready(result) = poll_fn(|context| Poll::Ready(invocation.as_mut().poll(context))).await {
            return result;
        }
        match tokio::time::timeout_at(after(work.began, self.limit), invocation).await {
            Ok(result) => result,
            Err(_) => Err(TimedOut { limit: self.limit }.into()),
        }
    }
}

/// Gives `work` at most `limit`, and makes its panic an error: for what is done outside of a chain.
pub async fn bounded<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, HandlerError>> + Send,
) -> Result<T, HandlerError> {
    match tokio::time::timeout(limit, AssertUnwindSafe(work).catch_unwind()).await {
        Ok(Ok(result)) => result,
        Ok(Err(payload)) => Err(Panicked::new(&*payload).into()),
        Err(_) => Err(TimedOut { limit }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::Compose;
    use crate::testing::TestMessage;

    struct Hang;

    impl EventHandler<TestMessage> for Hang {
        async fn handle(&self, _: &TestMessage, _: &Turn<'_>) -> Result<(), HandlerError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_outside_of_a_chain_neither_hangs_nor_panics() {
        let limit = Duration::from_secs(30);
        let hangs = bounded::<()>(limit, std::future::pending()).await;
        assert_eq!(hangs.expect_err("it hangs").to_string(), "no answer within 30 s");
        let panics = bounded::<()>(limit, async { panic!("out of cheese") }).await;
        assert_eq!(panics.expect_err("it panics").to_string(), "the handler panicked: out of cheese");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_hangs_is_interrupted_and_may_be_tried_again() {
        let timeout = Hang.timeout(Duration::from_secs(30));
        let error = timeout.handle(&TestMessage::added("a"), &Turn::alone()).await.expect_err("it hangs");
        assert_eq!(error.to_string(), "no answer within 30 s");
        assert!(error.transient());
    }
}
