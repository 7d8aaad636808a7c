//! The chain that an event passes through, one file for each wrapper. From the outside in, each usable alone:
//!
//! | wrapper | adds |
//! |---|---|
//! | [`Dispatcher`] | passes each message to the handlers registered for it |
//! | [`Async`] | a queue for each ordering key, so that a slow object delays no other; reports its state ([`QueueCounts`], [`QueueEntry`]) and metrics ([`QueueMetrics`]) |
//! | [`LogExceptions`] | passes every failure, a panic too, to a [`Report`] |
//! | [`Retry`] | repeats an invocation that failed with a transient error |
//! | [`Limit`] | bounds the number of concurrent invocations |
//! | [`Timeout`] | bounds the time of one invocation, and measures it |

mod backoff;
mod context;
mod dispatcher;
mod failure;
mod key_queue;
mod limit;
mod log_exceptions;
mod queue_state;
mod queues;
mod report;
mod retry;
mod retry_state;
mod timeout;

pub use backoff::{Backoff, BackoffPolicy};
pub use context::Context;
pub use dispatcher::Dispatcher;
pub use failure::{Failure, HandlerError, Pending, causes};
pub use key_queue::{QueuePolicy, Superseded};
pub use limit::Limit;
pub use log_exceptions::{LogExceptions, Panicked};
pub use queue_state::{NoMetrics, Phase, QueueCounts, QueueEntry, QueueMetrics};
pub use queues::Async;
pub use report::{LogReport, Report};
pub use retry::Retry;
pub use retry_state::LastError;
pub use timeout::{TimedOut, Timeout, bounded};

use std::sync::Arc;
use std::time::Duration;

use crate::event::Message;

/// Handles messages: a handler, or a wrapper around one. The other methods wrap it, the innermost wrapper first:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use staffetta_handler::{AnyEvent, BackoffPolicy, Context, EventHandler, HandlerError, LogReport};
///
/// struct Greet;
/// impl EventHandler<AnyEvent> for Greet {
///     async fn handle(&self, event: &AnyEvent, _: &Context<'_>) -> Result<(), HandlerError> {
///         println!("{event:?}");
///         Ok(())
///     }
/// }
///
/// let chain = Greet
///     .timeout(Duration::from_secs(60))
///     .limit(8)
///     .retry(BackoffPolicy::default())
///     .log_exceptions(Arc::new(LogReport::new("greet", BackoffPolicy::default())));
/// # let _ = chain;
/// ```
pub trait EventHandler<E: Message>: Send + Sync + Sized + 'static {
    /// Handles one message. `context` is the queue's state of this invocation.
    fn handle(
        &self,
        event: &E,
        context: &Context<'_>,
    ) -> impl Future<Output = Result<(), HandlerError>> + Send;

    /// Interrupts an invocation that takes longer than `limit`.
    fn timeout(self, limit: Duration) -> Timeout<Self> {
        Timeout { inner: self, limit }
    }

    /// Runs at most `permits` invocations at a time; 0 counts as 1.
    fn limit(self, permits: usize) -> Limit<Self, E> {
        Limit::new(self, permits)
    }

    /// Repeats an invocation while it fails with a transient error.
    fn retry(self, policy: BackoffPolicy) -> Retry<Self, E> {
        Retry { inner: self, policy, report: None }
    }

    /// Passes every failure, a panic too, to `report`.
    fn log_exceptions(self, report: Arc<dyn Report<E>>) -> LogExceptions<Self, E> {
        LogExceptions { inner: self, report }
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Arc<H> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<(), HandlerError> {
        (**self).handle(event, context).await
    }
}
