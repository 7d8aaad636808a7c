//! The receivers of the failures and measurements of handlers.

use std::sync::Arc;

use opentelemetry_sdk::trace::SdkTracer;
use staffetta_handler::testing::{LogReport, NoMetrics};
use staffetta_handler::{AnyEvent, BackoffPolicy, Context, Panicked, QueueMetrics, Report, Undecodable};
use tracing::error;

/// Supplies the receivers of the failures, metrics and traces of the handlers. The program calls the methods when it builds the chains:
/// `undecodable` once, and each other method once for each handler.
pub trait Observers {
    /// Returns the report that receives all failures of `handler`, including transient ones. The report handles failed objects again
    /// with the delays of `resync`.
    fn report(&self, handler: &str, resync: BackoffPolicy) -> Arc<dyn Report<AnyEvent>> {
        Arc::new(LogReport::new(handler, resync))
    }

    /// Returns the callback for successes of `handler` in which a request changed something; `None` if no callback is needed.
    fn handled(&self, handler: &str) -> Option<OnHandled> {
        let _ = handler;
        None
    }

    /// Returns the callback for objects that cannot be decoded. It is called once for each state (resourceVersion) of such an object.
    fn undecodable(&self) -> OnUndecodable {
        Box::new(log_undecodable)
    }

    /// Returns the callback for a panic in the code of `handler` that indexes objects as they are watched. The panic is already logged.
    fn index_panicked(&self, handler: &str) -> OnPanic {
        let _ = handler;
        Box::new(|_| {})
    }

    /// Returns the receiver of the queue metrics of `handler`.
    fn meter(&self, handler: &str) -> Arc<dyn QueueMetrics> {
        let _ = handler;
        Arc::new(NoMetrics)
    }

    /// Returns the tracer that makes the traces of all handlers; `None` to make none.
    fn tracer(&self) -> Option<SdkTracer> {
        None
    }
}

/// A callback for an event that was handled successfully. It must not block.
pub type OnHandled = Box<dyn Fn(&AnyEvent, &Context<'_>) + Send + Sync>;

/// A callback for an object that cannot be decoded. The watch calls it, so it must not block.
pub type OnUndecodable = Box<dyn Fn(&Undecodable) + Send + Sync>;

/// A callback for a panic. The watch calls it, so it must not block.
pub type OnPanic = Box<dyn Fn(&Panicked) + Send + Sync>;

/// Logs an object that cannot be decoded.
pub(crate) fn log_undecodable(object: &Undecodable) {
    let object_ref = object.identity.object_ref();
    error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
        error = object.error, "an object cannot be decoded and is ignored");
}

/// Observers that write failures to the log and measure nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOnly;

impl Observers for LogOnly {}
