//! The chain that ships. [`build`] is the only function that composes it.

mod fenced;
pub(crate) mod garbage_collection;
mod handler_chain;
pub(crate) mod report;
pub(crate) mod sources;

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::RelayOptions;
use crate::observers::{Observers, OnUndecodable};
use crate::term::Term;
use crate::watcher::EventSink;
use futures_util::future::join_all;
use staffetta_handler::{
    AnyEvent, Context, Dispatcher, ErasedHandler, EventHandler, HandlerError, Kind, KindIndex, Message,
    Registration, Undecodable,
};

use handler_chain::chain;
pub use handler_chain::{Chain, HandlerChain};

/// The divisor of `first_list_backlog` that gives the number of unfinished objects at which a list counts as drained. Objects that
/// wait for a retry are not counted: their end cannot be predicted.
const DRAINED_DIVISOR: usize = 10;

/// All enabled handlers behind one dispatcher. Events go in through [`EventHandler::handle`].
pub struct Pipeline {
    dispatcher: Dispatcher<AnyEvent, Chain>,
    indexes: HashMap<TypeId, Vec<KindIndex>>,
    kinds: Vec<Kind>,
    handlers: Vec<Arc<HandlerChain>>,
    first_list_backlog: usize,
    on_undecodable: OnUndecodable,
}

/// Builds the chain of each handler, in the given order:
/// `Dispatcher -> for each: Async(LogExceptions(Retry(Limit(Timeout(Fenced(handler))))))`. Handlers run during `term` only;
/// failures and measurements go to `observers`.
pub fn build(
    handlers: Vec<(String, Registration)>,
    options: &RelayOptions,
    term: &Term,
    observers: &dyn Observers,
) -> Pipeline {
    let mut pipeline = Pipeline {
        dispatcher: Dispatcher::default(),
        indexes: HashMap::new(),
        kinds: Vec::new(),
        handlers: Vec::new(),
        first_list_backlog: options.first_list_backlog.get(),
        on_undecodable: observers.undecodable(),
    };
    for (name, registration) in handlers {
        pipeline.add(name, registration, |name, handler| chain(name, handler, options, term, observers));
    }
    pipeline
}

impl Pipeline {
    fn add(
        &mut self,
        name: String,
        mut registration: Registration,
        chain: impl Fn(&str, &Arc<ErasedHandler>) -> Chain,
    ) {
        let sources = registration.take_sources();
        let (handler, indexes, collector) = registration.into_parts();
        let handler = Arc::new(handler);
        let chain = chain(&name, &handler);
        let entry = HandlerChain::new(name, chain, collector, sources, &indexes);
        let types = handler.kinds().map(|kind| kind.type_id).chain(handler.triggers());
        for event_type in types {
            let predicate = Arc::clone(&handler);
            self.dispatcher.add(event_type, move |event| predicate.wants(event), entry.chain.clone());
        }
        for kind in handler.kinds().chain(indexes.iter().map(|index| &index.kind)) {
            if self.kinds.iter().all(|watched| watched.type_id != kind.type_id) {
                self.kinds.push(kind.clone());
            }
        }
        for index in indexes {
            self.indexes.entry(index.kind.type_id).or_default().push(index);
        }
        self.handlers.push(Arc::new(entry));
    }

    /// The kinds to watch, each once.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// The enabled handlers, in the order in which they are enabled.
    pub fn handlers(&self) -> &[Arc<HandlerChain>] {
        &self.handlers
    }

    /// Completes when at most `limit` objects are unfinished, over all handlers that get events.
    pub async fn until_backlog(&self, limit: usize) {
        for handler in self.handlers.iter().filter(|handler| handler.is_open()) {
            handler.chain.until_busy_at_most(limit).await;
        }
    }

    /// Ends all retries and gives running and queued events at most `grace`. Returns `true` if all were finished.
    pub async fn drain(&self, grace: Duration) -> bool {
        !join_all(self.handlers.iter().map(|handler| handler.chain.drain(grace))).await.contains(&false)
    }

    /// Ends all retries, drops queued events, and gives running invocations at most `grace`. Returns `true` if all have ended.
    pub async fn halt(&self, grace: Duration) -> bool {
        !join_all(self.handlers.iter().map(|handler| handler.chain.halt(grace))).await.contains(&false)
    }
}

impl EventHandler<AnyEvent> for Pipeline {
    /// Updates the indexes, then queues the event. Never waits.
    async fn handle(&self, event: &AnyEvent, context: &Context<'_>) -> Result<(), HandlerError> {
        for index in self.indexes.get(&event.route()).into_iter().flatten() {
            (index.apply)(event);
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
        (self.on_undecodable)(object);
    }
}
