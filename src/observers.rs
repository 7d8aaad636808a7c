//! The receivers of the failures and measurements of the chains.

use std::sync::Arc;

use staffetta_handler::{AnyEvent, BackoffPolicy, LogReport, NoMetrics, QueueMetrics, Report, Undecodable};
use tracing::error;

/// Supplies the report and the metrics of each handler. Called once for each handler when its chain is built.
pub trait Observers {
    /// The report of the failures of `handler`, transient ones included. It queues failed events again according to `resync`.
    fn report(&self, handler: &str, resync: BackoffPolicy) -> Arc<dyn Report<AnyEvent>> {
        Arc::new(LogReport::new(handler, resync))
    }

    /// The callback for objects that cannot be decoded, called once for each state of one.
    fn undecodable(&self) -> OnUndecodable {
        Box::new(log_undecodable)
    }

    /// The queue metrics of `handler`.
    fn meter(&self, handler: &str) -> Arc<dyn QueueMetrics> {
        let _ = handler;
        Arc::new(NoMetrics)
    }
}

/// A callback for an object that cannot be decoded. The watch calls it, so it must not block.
pub type OnUndecodable = Box<dyn Fn(&Undecodable) + Send + Sync>;

/// Logs an object that cannot be decoded.
pub(crate) fn log_undecodable(object: &Undecodable) {
    let object_ref = object.identity.object_ref();
    error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
        error = object.error, "an object cannot be decoded and is ignored");
}

/// Logs failures and measures nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOnly;

impl Observers for LogOnly {}
