//! One handler in a dry run.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use staffetta_handler::{
    AnyEvent, Compose, ErasedHandler, ErasedSource, ErasedSweep, EventHandler, HandlerError, Kind,
    LogExceptions, Message, Outlet, Plan, Registration, Report, Retry, Timeout, Turn, bounded, causes,
};

use super::patience::RETRY;
use super::stage::Stage;
use crate::lock::lock;

/// A handler with the inner links of its chain, from the outside in. A queue needs none of them: what is to be handled is
/// known at once.
type Links = LogExceptions<Retry<Timeout<Arc<ErasedHandler>>, AnyEvent>, AnyEvent>;

/// One handler in a dry run.
pub(super) struct Part {
    name: Arc<str>,
    handler: Arc<ErasedHandler>,
    links: Links,
    sweep: Option<Box<dyn ErasedSweep>>,
    sources: Vec<Box<dyn ErasedSource>>,
    /// What its sources told and it was not handed yet.
    signals: Arc<Mutex<Vec<AnyEvent>>>,
    needs: Vec<Kind>,
    plan: Plan,
}

impl Part {
    /// The handler gives each invocation at most `limit`. Its indexes are put on the stage.
    pub(super) fn new(
        name: &str,
        mut registration: Registration,
        stage: &mut Stage,
        plan: &Plan,
        limit: Duration,
    ) -> Self {
        let sources = registration.take_sources();
        let (handler, indexes, sweep) = registration.into_parts();
        let handler = Arc::new(handler);
        for kind in handler.kinds() {
            stage.wants(kind);
        }
        let needs = indexes.iter().map(|index| index.kind.clone()).collect();
        for index in indexes {
            stage.index(index);
        }
        let links =
            Arc::clone(&handler).timeout(limit).retry(RETRY).log_exceptions(Arc::new(Failures(plan.clone())));
        let (name, signals, plan) = (name.into(), Arc::default(), plan.clone());
        Self { name, handler, links, sweep, sources, signals, needs, plan }
    }

    /// The name of the handler.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The kinds of which all objects must be known before the handler gets an event.
    pub(super) fn needs(&self) -> impl Iterator<Item = &Kind> {
        self.needs.iter()
    }

    /// How its ownership marks are read.
    pub(super) fn sweep(&self) -> Option<&dyn ErasedSweep> {
        self.sweep.as_deref()
    }

    /// Asks its sources, each for at most `limit`, what there is to be told now.
    pub(super) async fn ask_sources(&self, limit: Duration) -> Vec<HandlerError> {
        let signals = Arc::clone(&self.signals);
        let outlet = Outlet::new(move |signal| {
            lock(&signals).push(signal);
        });
        let asked = self.sources.iter().map(|source| bounded(limit, source.rehearse(outlet.clone())));
        futures_util::future::join_all(asked).await.into_iter().filter_map(Result::err).collect()
    }

    /// What its sources told since the last time: of each object once.
    pub(super) fn take_signals(&self) -> Vec<AnyEvent> {
        let mut told = std::mem::take(&mut *lock(&self.signals));
        let mut known = HashSet::new();
        told.retain(|signal| known.insert((signal.route(), signal.uid().to_owned())));
        told
    }

    /// Hands it the events that it wants: those of one ordering key one after the other, `concurrency` keys at a time.
    pub(super) async fn handle(&self, events: Vec<AnyEvent>, concurrency: usize, stage: &Stage) {
        let mut lanes: Vec<Vec<AnyEvent>> = Vec::new();
        let mut places = HashMap::new();
        for event in events.into_iter().filter(|event| self.gets(event)) {
            let place = *places.entry(self.handler.key(&event)).or_insert(lanes.len());
            if place == lanes.len() {
                lanes.push(Vec::new());
            }
            lanes[place].push(event);
        }
        let lanes = stream::iter(lanes).map(|lane| async move {
            for event in lane {
                self.handle_one(event, stage).await;
            }
        });
        lanes.buffer_unordered(concurrency).collect::<()>().await;
    }

    fn gets(&self, event: &AnyEvent) -> bool {
        self.is_signal(event) || self.handler.kinds().any(|kind| kind.type_id == event.route())
    }

    fn is_signal(&self, event: &AnyEvent) -> bool {
        self.handler.signals().any(|signal| signal == event.route())
    }

    async fn handle_one(&self, event: AnyEvent, stage: &Stage) {
        let event = if self.is_signal(&event) { Some(event) } else { stage.by_now(event) };
        let Some(event) = event.filter(|event| self.handler.wants(event)) else { return };
        let handled: Result<(), HandlerError> = self
            .plan
            .during(Arc::clone(&self.name), event.subject().into(), self.links.handle(&event, &Turn::alone()))
            .await;
        debug_assert!(handled.is_ok(), "its failures end in the plan");
        stage.take_in();
    }
}

/// Ends failures in the plan: what failed would fail.
struct Failures(Plan);

impl Report<AnyEvent> for Failures {
    fn failed(&self, _: &AnyEvent, error: &HandlerError, _: &Turn<'_>) {
        self.0.failed(&causes(&**error));
    }
}
