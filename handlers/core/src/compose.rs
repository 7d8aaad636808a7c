//! Wrappers in reading order.

use std::sync::Arc;
use std::time::Duration;

use crate::handler::EventHandler;
use crate::limit::Limit;
use crate::log_exceptions::LogExceptions;
use crate::message::Message;
use crate::report::Report;
use crate::retry::{Retry, RetryPolicy};
use crate::timeout::Timeout;

/// Puts wrappers around a handler, the innermost first:
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use staffetta_handler::{AnyEvent, Compose, EventHandler, HandlerError, LogReport, RetryPolicy, Turn};
///
/// struct Greet;
/// impl EventHandler<AnyEvent> for Greet {
///     async fn handle(&self, event: &AnyEvent, _: &Turn<'_>) -> Result<(), HandlerError> {
///         println!("{event:?}");
///         Ok(())
///     }
/// }
///
/// let chain = Greet
///     .timeout(Duration::from_secs(60))
///     .limit(8)
///     .retry(RetryPolicy::default())
///     .log_exceptions(Arc::new(LogReport::new("greet")));
/// # let _ = chain;
/// ```
pub trait Compose<E: Message>: EventHandler<E> + Sized {
    /// Ends an invocation that takes longer than `limit`.
    fn timeout(self, limit: Duration) -> Timeout<Self> {
        Timeout::new(self, limit)
    }

    /// Lets at most `permits` invocations run at a time.
    fn limit(self, permits: usize) -> Limit<Self, E> {
        Limit::new(self, permits)
    }

    /// Repeats an invocation while it fails with a transient error.
    fn retry(self, policy: RetryPolicy) -> Retry<Self, E> {
        Retry::new(self, policy)
    }

    /// Ends every failure, a panic too, by handing it to `report`.
    fn log_exceptions(self, report: Arc<dyn Report<E>>) -> LogExceptions<Self, E> {
        LogExceptions::new(self, report)
    }
}

impl<E: Message, H: EventHandler<E>> Compose<E> for H {}
