//! The chain of wrappers through which an event reaches its handler. There is one file for each wrapper. The table lists them from the
//! outermost to the innermost; each of them can also be used alone:
//!
//! | wrapper | adds |
//! |---|---|
//! | [`Dispatcher`] | passes each message to the handlers registered for it |
//! | [`Async`] | a queue for each ordering key, so that a slow object delays no other; applies the [`Action`]s and waits for the next attempts; shows [`QueueEntry`] and [`QueueMetrics`] |
//! | [`LogExceptions`] | reports every failure to a [`Report`] |
//! | [`Retry`] | has an invocation repeated that failed with a transient error |
//! | [`Limit`] | bounds the number of concurrent invocations |
//! | [`Timeout`] | bounds and measures the time of one invocation, and turns a panic into an error |

mod action;
mod context;
mod dispatcher;
mod failures;
mod item;
mod key_queue;
mod limit;
mod log_exceptions;
mod queue_map;
mod queue_state;
mod queues;
mod relation;
mod retry;
mod schedule;
mod timeout;

pub use action::{Action, Why};
pub use context::Context;
pub use dispatcher::Dispatcher;
pub use failures::{Failures, LastError};
pub use limit::Limit;
pub use log_exceptions::{LogExceptions, Report};
pub use queue_state::{Phase, QueueEntry, QueueMetrics};
pub use queues::Async;
pub use retry::Retry;
pub use timeout::Timeout;

use std::sync::Arc;
use std::time::Duration;

use crate::backoff::BackoffPolicy;
use crate::event::{Message, OrderingKey};
use crate::failure::HandlerError;

/// A handler of messages, or a wrapper (middleware) around one. The provided methods add a wrapper; call the one for the innermost wrapper
/// first:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use staffetta_handler::testing::LogReport;
/// use staffetta_handler::{Action, AnyEvent, BackoffPolicy, Context, EventHandler, HandlerError};
///
/// struct Greet;
/// impl EventHandler<AnyEvent> for Greet {
///     async fn handle(&self, event: &AnyEvent, _: &Context<'_>) -> Result<Action, HandlerError> {
///         println!("{event:?}");
///         Ok(Action::done())
///     }
/// }
///
/// let chain = Greet
///     .timeout(Duration::from_secs(60))
///     .limit(8, |_| None)
///     .retry(BackoffPolicy::default())
///     .log_exceptions(Arc::new(LogReport::new("greet")), BackoffPolicy::default());
/// # let _ = chain;
/// ```
pub trait EventHandler<E: Message>: Send + Sync + Sized + 'static {
    /// Handles one message. `context` holds the state of the message in its queue.
    fn handle(
        &self,
        event: &E,
        context: &Context<'_>,
    ) -> impl Future<Output = Result<Action, HandlerError>> + Send;

    /// Adds a wrapper that interrupts an invocation which takes longer than `limit`, with the error [`TimedOut`](crate::TimedOut).
    fn timeout(self, limit: Duration) -> Timeout<Self> {
        Timeout { inner: self, limit }
    }

    /// Adds a wrapper that limits concurrent invocations. The messages for which `group` returns `None` have `permits` permits together,
    /// and those about objects of one namespace at most half of these, but at least one. Each group has `permits` permits of its own.
    /// 0 permits count as 1.
    fn limit(
        self,
        permits: usize,
        group: impl Fn(&E) -> Option<OrderingKey> + Send + Sync + 'static,
    ) -> Limit<Self, E> {
        Limit::new(self, permits, Box::new(group))
    }

    /// Adds a wrapper that has an invocation repeated which fails with a transient error, with the delays and the time limit of `policy`.
    fn retry(self, policy: BackoffPolicy) -> Retry<Self> {
        Retry { inner: self, policy }
    }

    /// Adds a wrapper that reports every failure to `report`, and always returns `Ok`. An object whose retries ended with a failure is
    /// handled again with the delays of `resync`.
    fn log_exceptions(self, report: Arc<dyn Report<E>>, resync: BackoffPolicy) -> LogExceptions<Self, E> {
        LogExceptions { inner: self, report, resync }
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Arc<H> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<Action, HandlerError> {
        (**self).handle(event, context).await
    }
}
