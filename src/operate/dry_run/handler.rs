//! The execution of one handler in a dry run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream;
use parking_lot::Mutex;
use staffetta_handler::{
    AnyEvent, EventHandler, HandlerError, Kind, Message, Registration, Resolved, Retry, Timeout,
    TriggerSender, bounded,
};

use super::BACKOFF;
use super::plan::PlanLog;

/// A handler with a time limit and retries, as in a real run. It has no queues, because all events are known beforehand.
type Chain = Retry<Timeout<Arc<Registration>>>;

/// One handler in a dry run.
pub(super) struct DryRunHandler {
    /// The name of the handler.
    pub(super) name: Arc<str>,
    /// The handler itself, with its indexes, sources and garbage collector.
    pub(super) registration: Arc<Registration>,
    chain: Chain,
    /// Triggers that were not handled yet. Besides sources, handlers send triggers while they handle events.
    triggers: Arc<Mutex<Vec<AnyEvent>>>,
    log: PlanLog,
}

impl DryRunHandler {
    /// Prepares a handler for a dry run. Each attempt takes at most `limit`. After a transient failure it is repeated according to
    /// [`BACKOFF`]. Steps and the last failure are added to `log`.
    pub(super) fn new(name: &str, registration: Registration, log: &PlanLog, limit: Duration) -> Self {
        let registration = Arc::new(registration);
        let chain = Arc::clone(&registration).timeout(limit).retry(BACKOFF);
        let (name, triggers, log) = (name.into(), Arc::default(), log.clone());
        Self { name, registration, chain, triggers, log }
    }

    /// Returns the kinds whose objects the handler or its indexes need.
    pub(super) fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.registration.kinds().chain(self.registration.indexes.iter().map(|index| &index.kind))
    }

    /// Runs each source of the handler once, for at most `limit`, and returns the errors.
    pub(super) async fn run_sources(&self, limit: Duration) -> Vec<HandlerError> {
        let triggers = Arc::clone(&self.triggers);
        let sender = TriggerSender::new(move |trigger| triggers.lock().push(trigger));
        let sources = self.registration.sources.iter();
        let sources = sources.map(|source| bounded(limit, source.run_once(sender.clone())));
        join_all(sources).await.into_iter().filter_map(Result::err).collect()
    }

    /// Handles those of `events` that the handler receives, and the triggers that were sent so far. Of several triggers of the same type
    /// for the same object, only one is handled. Events and triggers with the same ordering key are handled one after the other; up to
    /// `concurrency` keys are handled concurrently.
    pub(super) async fn handle(&self, events: impl Iterator<Item = AnyEvent>, concurrency: usize) {
        let (mut queues, mut positions): (Vec<Vec<Resolved>>, _) = (Vec::new(), HashMap::new());
        let handles = |event: &AnyEvent| self.registration.kinds().any(|kind| kind.type_id == event.route());
        let (mut triggers, mut known) = (std::mem::take(&mut *self.triggers.lock()), HashSet::new());
        triggers.retain(|trigger| known.insert((trigger.route(), trigger.uid().to_owned())));
        for event in events.filter(handles).chain(triggers) {
            let event = self.registration.resolve(&event);
            let position = *positions.entry(event.key()).or_insert(queues.len());
            if position == queues.len() {
                queues.push(Vec::new());
            }
            queues[position].push(event);
        }
        let handled = stream::iter(queues).map(|queue| async move {
            for event in queue.into_iter().filter(|event| self.registration.wants(event.event()).is_taken()) {
                let (name, object) = (Arc::clone(&self.name), event.object_ref().into());
                let handled = bounded(Duration::MAX, self.chain.complete(&event));
                self.log.during(name, object, handled).await;
            }
        });
        handled.buffer_unordered(concurrency).collect::<()>().await;
    }
}
