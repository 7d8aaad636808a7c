//! One enabled handler with its chain of wrappers. [`chain`] composes the wrappers.

use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;

use staffetta_handler::{
    Async, EventHandler, KindIndex, Limit, LogExceptions, Message, QueueEntry, Registration, Resolved, Retry,
    Timeout, full_name,
};
use tokio::sync::watch;
use tracing::warn;

use super::fenced::Fenced;
use super::recorded::Recorded;
use super::report::HandlerReports;
use crate::base::config::RelayOptions;
use crate::base::traces::{self, Traces};
use crate::engine::term::Term;

/// The maximum number of unhandled objects that the log names when the handlers are stopped.
const MAX_LOGGED: usize = 10;

/// The reason why a handler gets no events while its garbage collector has not read the ownership marks.
pub(crate) const MARKS_UNREAD: &str = "the ownership marks are not read yet";

/// The chain of one handler, from the outermost to the innermost wrapper.
pub type Chain = Async<Resolved, Recorded<LogExceptions<Retry<Links>, Resolved>>>;

/// The type of the part of a chain that needs a permit: the inner wrappers and the handler.
type Links = Limit<Timeout<Fenced<Arc<Registration>>>, Resolved>;

/// One enabled handler with its chain of wrappers.
pub struct HandlerChain {
    /// The name of the handler in the configuration.
    pub name: String,
    /// The handler itself, the innermost part of the chain. The dispatcher asks it whether it wants an event before the event is queued.
    pub registration: Arc<Registration>,
    /// The chain of wrappers around the handler. Its queues hold all events back until all prerequisites are met.
    pub chain: Chain,
    /// The conditions that must be met before the handler gets its first event, each with its description. `Some(kind)` stands for a
    /// kind of an index that must be listed; `None` stands for the ownership marks, which must be read.
    prerequisites: watch::Sender<HashMap<Option<TypeId>, String>>,
}

impl HandlerChain {
    /// Creates the handler with its chain of wrappers (retries, limits, time-out). If it has indexes or a garbage collector, its queues hold
    /// all events back until the indexed kinds are listed and the ownership marks are read.
    pub(super) fn new(
        name: String,
        registration: Registration,
        options: &RelayOptions,
        term: &Term,
        reports: &HandlerReports,
    ) -> Self {
        let registration = Arc::new(registration);
        let chain = chain(&name, &registration, options, term, reports);
        let listed = registration.indexes.iter().map(|KindIndex { kind, .. }| {
            (Some(kind.type_id), format!("not all objects of kind {} are listed yet", kind.name))
        });
        let marks_read = registration.collector.as_ref().map(|_| (None, MARKS_UNREAD.to_owned()));
        let prerequisites: HashMap<_, _> = listed.chain(marks_read).collect();
        let chain = if prerequisites.is_empty() { chain } else { chain.closed() };
        let prerequisites = watch::Sender::new(prerequisites);
        Self { name, registration, chain, prerequisites }
    }

    /// Returns `true` if all prerequisites are met and the handler gets events.
    pub fn is_open(&self) -> bool {
        self.prerequisites.borrow().is_empty()
    }

    /// Completes when all prerequisites are met and the handler gets events.
    pub async fn until_open(&self) {
        // It fails only once the sender is dropped, which `self` holds.
        let _ = self.prerequisites.subscribe().wait_for(HashMap::is_empty).await;
    }

    /// Returns the reasons why the handler gets no events yet; empty if it gets events.
    pub fn unmet_prerequisites(&self) -> Vec<String> {
        let mut unmet: Vec<_> = self.prerequisites.borrow().values().cloned().collect();
        unmet.sort_unstable();
        unmet
    }

    /// Logs the objects that were not handled when the handlers were stopped, which the next leader will handle: their number, and up to
    /// [`MAX_LOGGED`] names.
    pub(super) fn log_unhandled(&self) {
        let name = |entry: QueueEntry<Resolved>| {
            let object_ref = entry.event.object_ref();
            format!("{} {}", object_ref.kind, full_name(object_ref.namespace, object_ref.name))
        };
        let mut objects: Vec<_> = self.chain.entries().into_iter().map(name).collect();
        objects.sort_unstable();
        objects.dedup();
        if !objects.is_empty() {
            let (count, some) = (objects.len(), objects[..objects.len().min(MAX_LOGGED)].join(", "));
            warn!(handler = self.name, count, objects = some, "not all objects were handled before the end");
        }
    }

    /// Records that a kind is listed or, for `None`, that the ownership marks are read. When the last prerequisite is met, lets the chain
    /// handle the events that it held back.
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

/// Composes the chain of one handler: `Async(Recorded(LogExceptions(Retry(Limit(Timeout(Fenced(handler)))))))`.
fn chain(
    name: &str,
    handler: &Arc<Registration>,
    options: &RelayOptions,
    term: &Term,
    reports: &HandlerReports,
) -> Chain {
    let links = Fenced::new(Arc::clone(handler), term.clone())
        .timeout(options.handler_timeout.into())
        .limit(options.max_concurrency.get(), Resolved::group)
        .retry(options.retries())
        .log_exceptions(reports.failures(name), options.resync());
    let links = Recorded::new(links, reports.successes(name), Traces::new(name, traces::tracer()));
    Async::new(links, handler.superseded_by_key, Resolved::key, reports.queue_metrics(name))
}
