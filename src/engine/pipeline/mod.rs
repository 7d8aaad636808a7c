//! The event pipeline of the program. [`build`] creates it: one dispatcher, and for each handler a chain that `handler_chain::chain`
//! composes.

mod fenced;
pub(crate) mod garbage_collection;
mod handler_chain;
mod recorded;
mod report;
mod scope;
pub(crate) mod sources;

use std::any::TypeId;
use std::sync::Arc;
use std::time::Duration;

use crate::base::config::RelayOptions;
use crate::engine::term::Term;
use crate::engine::watcher::EventSink;
use futures_util::future::join_all;
use staffetta_handler::{
    Action, AnyEvent, Context, Dispatcher, EventHandler, HandlerError, Interest, Kind, Message, Registration,
    Resolved, Undecodable,
};

pub(crate) use handler_chain::MARKS_UNREAD;
pub use handler_chain::{Chain, HandlerChain};
pub(crate) use recorded::Kept;
pub use report::HandlerReports;
pub(crate) use scope::HandlerScope;

/// The divisor of `first_list_backlog` that gives the number of busy queues at which a list counts as handled. A queue whose objects all
/// wait for a retry is not busy, because it cannot be predicted when they are handled.
const DRAINED_DIVISOR: usize = 10;

/// All enabled handlers behind one dispatcher. [`EventHandler::handle`] passes an event to the handlers.
pub struct Pipeline {
    dispatcher: Dispatcher<AnyEvent, Resolved, Chain>,
    kinds: Vec<Kind>,
    handlers: Vec<Arc<HandlerChain>>,
    /// The number of busy queues of a handler above which an initial list waits. There is one queue for each ordering key: mostly, one
    /// for each object.
    first_list_backlog: usize,
    reports: HandlerReports,
}

/// Builds the chain of each handler, in the given order. An event passes through `Dispatcher`, and then for each handler through
/// `Async(Recorded(LogExceptions(Retry(Limit(Timeout(Fenced(handler)))))))`. The handlers run only during `term`. Failures and the
/// metrics of the queues go to `reports`.
pub fn build(
    handlers: Vec<(String, Registration)>,
    options: &RelayOptions,
    term: &Term,
    reports: &HandlerReports,
) -> Pipeline {
    let mut pipeline = Pipeline {
        dispatcher: Dispatcher::default(),
        kinds: Vec::new(),
        handlers: Vec::new(),
        first_list_backlog: options.first_list_backlog.get(),
        reports: reports.clone(),
    };
    for (name, registration) in handlers {
        pipeline.add(HandlerChain::new(name, registration, options, term, reports));
    }
    pipeline
}

impl Pipeline {
    /// Adds a handler and the kinds that it needs. Each kind is watched once: a label or field selector that differs between the handlers
    /// that need the kind is dropped, so that the watch delivers the objects of all of them.
    fn add(&mut self, entry: HandlerChain) {
        let handler = &entry.registration;
        let types = handler.kinds().map(|kind| kind.type_id).chain(handler.triggers());
        for event_type in types {
            let (handler, queues) = (Arc::clone(handler), entry.chain.clone());
            let resolve = move |event: &AnyEvent| match handler.wants(event) {
                Interest::Taken | Interest::Limited(_) => Some(handler.resolve(event)),
                Interest::Deferred(_) => None,
                Interest::Declined(_) => {
                    queues.decline(&handler.resolve(event));
                    None
                }
            };
            self.dispatcher.add(event_type, resolve, entry.chain.clone());
        }
        for kind in handler.kinds().chain(handler.indexes.iter().map(|index| &index.kind)) {
            match self.kinds.iter_mut().find(|watched| watched.type_id == kind.type_id) {
                None => self.kinds.push(kind.clone()),
                // One watch of all objects serves handlers that need different ones.
                Some(watched) => {
                    if watched.field_selector != kind.field_selector {
                        watched.field_selector = None;
                    }
                    if watched.label_selector != kind.label_selector {
                        watched.label_selector = None;
                    }
                }
            }
        }
        self.handlers.push(Arc::new(entry));
    }

    /// Returns the kinds to watch, each once.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Returns the handlers in the order in which the configuration enables them.
    pub fn handlers(&self) -> &[Arc<HandlerChain>] {
        &self.handlers
    }

    /// Completes when each handler that gets events has at most `limit` busy queues: queues with an event that is queued or being handled.
    pub async fn until_backlog(&self, limit: usize) {
        for handler in self.handlers.iter().filter(|handler| handler.is_open()) {
            handler.chain.until_busy_at_most(limit).await;
        }
    }

    /// Ends all retries, and waits up to `grace` until all running and queued events have ended. Returns `true` if they have, with or
    /// without success. Logs the objects that were not handled.
    pub async fn drain(&self, grace: Duration) -> bool {
        let drain = async |handler: &HandlerChain| {
            let drained = handler.chain.drain(grace).await;
            handler.log_unhandled();
            drained
        };
        !join_all(self.handlers.iter().map(|handler| drain(handler))).await.contains(&false)
    }

    /// Ends all retries, discards queued events, and waits up to `grace` for running invocations. Returns `true` if all of them ended.
    pub async fn halt(&self, grace: Duration) -> bool {
        !join_all(self.handlers.iter().map(|handler| handler.chain.halt(grace))).await.contains(&false)
    }
}

impl EventHandler<AnyEvent> for Pipeline {
    /// Updates the indexes, then queues the event. Never waits.
    async fn handle(&self, event: &AnyEvent, context: &Context<'_>) -> Result<Action, HandlerError> {
        let route = event.route();
        for HandlerChain { name, registration: handler, .. } in self.handlers.iter().map(|handler| &**handler)
        {
            for index in handler.indexes.iter().filter(|index| index.kind.type_id == route) {
                if let Err(panicked) = (index.apply)(event) {
                    self.reports.index_panicked(name, &panicked);
                }
            }
        }
        self.dispatcher.handle(event, context).await
    }
}

impl EventSink for Pipeline {
    fn listed(&self, kind: TypeId) {
        for handler in &self.handlers {
            handler.met(Some(kind));
        }
    }

    async fn capacity(&self) {
        self.until_backlog(self.first_list_backlog).await;
    }

    async fn drained(&self) {
        self.until_backlog(self.first_list_backlog / DRAINED_DIVISOR).await;
    }

    fn undecodable(&self, object: &Undecodable) {
        self.reports.undecodable(object);
    }
}
