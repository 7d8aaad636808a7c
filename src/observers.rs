//! Who learns what the chains do.

use std::sync::Arc;

use staffetta_handler::{AnyEvent, LogReport, Meter, Report, ResyncPolicy, Undecodable, Unmetered};
use tracing::error;

/// Supplies what the chain of each handler tells of itself. Asked once for each handler, when the chain is built.
pub trait Observers {
    /// Where the failures of `handler` go, the passing ones too. What failed for good is to be pushed again by `resync`.
    fn report(&self, handler: &str, resync: ResyncPolicy) -> Arc<dyn Report<AnyEvent>> {
        Arc::new(LogReport::new(handler).resync(resync))
    }

    /// Who learns of objects that no handler gets to see, once for each state of one.
    fn undecodable(&self) -> OnUndecodable {
        Box::new(log_undecodable)
    }

    /// What counts the events of `handler`.
    fn meter(&self, handler: &str) -> Arc<dyn Meter> {
        let _ = handler;
        Arc::new(Unmetered)
    }
}

/// Learns of an object that cannot be decoded. It is called from within the watch, so it must never wait.
pub type OnUndecodable = Box<dyn Fn(&Undecodable) + Send + Sync>;

/// Writes one line for an object that cannot be decoded.
pub(crate) fn log_undecodable(object: &Undecodable) {
    let subject = object.identity.subject();
    error!(kind = %subject.kind, namespace = subject.namespace, name = subject.name, uid = subject.uid,
        error = object.error, "an object cannot be decoded and is left alone");
}

/// Failures go to the log alone, and nothing is counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOnly;

impl Observers for LogOnly {}
