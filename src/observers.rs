//! Who learns what the chains do.

use std::sync::Arc;

use staffetta_handler::{AnyEvent, LogReport, Meter, Report, ResyncPolicy, Unmetered};

/// Supplies what the chain of each handler tells of itself. Asked once for each handler, when the chain is built.
pub trait Observers {
    /// Where the failures of `handler` go, the passing ones too. What failed for good is to be pushed again by `resync`.
    fn report(&self, handler: &str, resync: ResyncPolicy) -> Arc<dyn Report<AnyEvent>> {
        Arc::new(LogReport::new(handler).resync(resync))
    }

    /// What counts the events of `handler`.
    fn meter(&self, handler: &str) -> Arc<dyn Meter> {
        let _ = handler;
        Arc::new(Unmetered)
    }
}

/// Failures go to the log alone, and nothing is counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOnly;

impl Observers for LogOnly {}
