//! Bounds the time of one invocation.

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;

use super::EventHandler;
use super::action::Action;
use super::context::Context;
use crate::backoff::deadline;
use crate::event::Message;
use crate::failure::{HandlerError, TimedOut, panic_as_error};

/// A wrapper that interrupts an invocation of its handler at a time limit, and records the time of each invocation. The error is
/// [`TimedOut`], which is transient. A panic becomes the error [`Panicked`](crate::Panicked), which is not.
///
/// Put this wrapper inside [`Limit`](crate::Limit), so that the time until a permit is free does not count.
pub struct Timeout<H> {
    /// The wrapper or handler whose invocations are timed.
    pub(super) inner: H,
    /// The maximum time of an invocation.
    pub(super) limit: Duration,
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Timeout<H> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<Action, HandlerError> {
        let invocation = Invocation { began: context.invoked(), context };
        let mut work = pin!(panic_as_error(self.inner.handle(event, context)));
        // Most invocations end at the first poll and need no timer.
        if let Some(result) = work.as_mut().now_or_never() {
            return result;
        }
        if let Some(queue) = context.queue {
            queue.running(invocation.began);
        }
        let result = tokio::time::timeout_at(deadline(invocation.began, self.limit), work).await;
        result.unwrap_or_else(|_| Err(TimedOut { limit: self.limit }.into()))
    }
}

/// A timer of one invocation. It adds the time to the metrics when it is dropped.
struct Invocation<'c> {
    began: Instant,
    context: &'c Context<'c>,
}

impl Drop for Invocation<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.context.queue {
            queue.metrics().worked(self.began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_message::TestMessage;

    struct Hang;

    impl EventHandler<TestMessage> for Hang {
        async fn handle(&self, _: &TestMessage, _: &Context<'_>) -> Result<Action, HandlerError> {
            std::future::pending().await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_hangs_is_interrupted_with_a_transient_error() {
        let timeout = Hang.timeout(Duration::from_secs(30));
        let error =
            timeout.handle(&TestMessage::added("a"), &Context::detached()).await.expect_err("it hangs");
        assert_eq!(error.to_string(), "no answer within 30 s");
        assert!(error.transient());
    }
}
