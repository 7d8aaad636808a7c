//! One enabled handler with its chain.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use staffetta_handler::{
    AnyEvent, Async, ErasedHandler, EventHandler, GarbageCollector, KindIndex, Limit, LogExceptions,
    QueuePolicy, Retry, Source, Timeout,
};
use tokio::sync::watch;

use super::fenced::Fenced;
use crate::config::RelayOptions;
use crate::observers::Observers;
use crate::term::Term;

/// The chain of one handler, from the outside in.
pub type Chain = Async<AnyEvent, LogExceptions<Links, AnyEvent>>;

type Links = Retry<Limit<Timeout<Fenced<Arc<ErasedHandler>>>, AnyEvent>, AnyEvent>;

/// One enabled handler with its chain.
pub struct HandlerChain {
    /// The name of the handler.
    pub name: String,
    /// The chain; closed until all prerequisites are met.
    pub chain: Chain,
    /// The garbage collector, if the handler creates external resources.
    pub collector: Option<Arc<dyn GarbageCollector>>,
    /// The sources of the handler's triggers.
    pub sources: Vec<Box<dyn Source>>,
    /// The conditions that must be met before the handler gets its first event, each with its description: the kinds of its indexes
    /// are listed, and (`None`) the ownership marks are read.
    prerequisites: watch::Sender<HashMap<Option<TypeId>, String>>,
}

impl HandlerChain {
    pub(super) fn new(
        name: String,
        chain: Chain,
        collector: Option<Arc<dyn GarbageCollector>>,
        sources: Vec<Box<dyn Source>>,
        indexes: &[KindIndex],
    ) -> Self {
        let listed = indexes.iter().map(|KindIndex { kind, .. }| {
            (Some(kind.type_id), format!("not all objects of kind {} are listed yet", kind.name))
        });
        let marks_read =
            collector.as_ref().map(|_| (None, "the ownership marks are not read yet".to_owned()));
        let prerequisites: HashMap<_, _> = listed.chain(marks_read).collect();
        let chain = if prerequisites.is_empty() { chain } else { chain.closed() };
        Self { name, chain, collector, sources, prerequisites: watch::Sender::new(prerequisites) }
    }

    /// Records that the handler's ownership marks were read.
    pub fn marks_read(&self) {
        self.met(None);
    }

    /// Returns `true` if the handler gets events.
    pub fn is_open(&self) -> bool {
        self.prerequisites.borrow().is_empty()
    }

    /// Completes when the handler gets events.
    pub async fn until_open(&self) {
        // It fails only once the sender is dropped, which `self` holds.
        let _ = self.prerequisites.subscribe().wait_for(HashMap::is_empty).await;
    }

    /// The reasons why the handler gets no events yet; empty if it does.
    pub fn unmet_prerequisites(&self) -> Vec<String> {
        let mut unmet: Vec<_> = self.prerequisites.borrow().values().cloned().collect();
        unmet.sort_unstable();
        unmet
    }

    /// Records that a kind is listed, or (`None`) that the marks are read. Opens the chain after the last prerequisite.
    pub(super) fn met(&self, prerequisite: Option<TypeId>) {
        self.prerequisites.send_if_modified(|prerequisites| {
            let removed = prerequisites.remove(&prerequisite).is_some();
            if removed && prerequisites.is_empty() {
                self.chain.open();
            }
            removed
        });
    }
}

/// Builds the chain of one handler.
pub(super) fn chain(
    name: &str,
    handler: &Arc<ErasedHandler>,
    options: &RelayOptions,
    term: &Term,
    observers: &dyn Observers,
) -> Chain {
    let report = observers.report(name, options.resync());
    let (coalesce, depth) = (options.coalesce, options.queue_depth.get());
    let queues = QueuePolicy { coalesce, depth, superseded: handler.superseded() };
    let (groups, keys) = (Arc::clone(handler), Arc::clone(handler));
    let links = Fenced::new(Arc::clone(handler), term.clone())
        .timeout(options.handler_timeout.into())
        .limit(options.max_concurrency.get())
        .per(move |event| groups.group(event))
        .retry(options.retries())
        .reported(Arc::clone(&report))
        .log_exceptions(report);
    Async::with_metrics(links, queues, move |event| keys.key(event), observers.meter(name))
}
