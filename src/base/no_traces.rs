//! In place of `traces` in a program without that feature: there are no traces.

use std::convert::Infallible;

use staffetta_handler::{Action, AnyEvent, Context};
use tokio::runtime::Handle;
use tracing_subscriber::layer::Identity;

use crate::base::config::TraceOptions;

/// The trace of one event, of which there is none.
#[derive(Clone)]
pub(crate) enum EventTrace {}

impl EventTrace {
    pub(crate) async fn record<T>(&self, _attempt: impl Future<Output = T>) -> T {
        match *self {}
    }

    pub(crate) fn end_if_failed(&self, _action: &Action) -> bool {
        match *self {}
    }
}

/// The traces of one handler.
pub(crate) struct Traces;

impl Traces {
    pub(crate) fn new(_handler: &str, _tracer: Option<Infallible>) -> Self {
        Self
    }

    #[expect(clippy::unused_self, reason = "as in the module that it replaces")]
    pub(crate) fn start(&self, _event: &AnyEvent, _context: &Context<'_>) -> Option<EventTrace> {
        None
    }
}

#[expect(clippy::unnecessary_wraps, reason = "as in the module that it replaces")]
pub(crate) fn start(_options: &TraceOptions, _runtime: &Handle) -> Result<Option<Identity>, Infallible> {
    Ok(None)
}

pub(crate) fn tracer() -> Option<Infallible> {
    None
}

pub(crate) fn shut_down() {}
