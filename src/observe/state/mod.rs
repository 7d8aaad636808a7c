//! The observable state of the controller, which `/debug/state`, `staffetta status` and `/metrics` expose.

mod background;
mod duration;
mod metrics;
mod problems;
mod query;
mod queue_counts;
mod remedy;
mod requests;
mod snapshot;
mod timestamps;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use staffetta_handler::{AnyEvent, Change, Message, Undecodable, causes};
use tokio::time::{Instant, timeout};

use crate::base::health::{Condition, Health};
use crate::base::metrics::Metrics;
use crate::base::version::VERSION;
use crate::engine::pipeline::{HandlerChain, HandlerScope, Pipeline};
use crate::engine::watcher::{WatchStatus, Watcher};
use crate::observe::check::Diagnostics;
use problems::Problems;
use timestamps::Now;

pub(crate) use background::BackgroundWork;
pub(crate) use duration::duration;
pub(crate) use problems::Problem;
pub(crate) use query::{MAX_LIMIT, PhaseName, Query};
pub(crate) use remedy::remedy;
pub(crate) use requests::{BackgroundSummary, RequestSummary};
pub(crate) use snapshot::{
    HandlerSummary, InterestSummary, LeadershipSummary, ObjectSummary, StateSnapshot, UndecodableSummary,
    WatchSummary,
};
pub(crate) use staffetta_handler::full_name;

/// The time limit for reading an object that is to be explained.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The observable state of the controller. It holds only weak references to the pipelines and the watches.
pub(crate) struct ControllerState {
    /// The identity of this process among its replicas.
    pub(crate) identity: String,
    started: Instant,
    handlers: Vec<String>,
    leadership: Box<dyn Fn() -> LeadershipSummary + Send + Sync>,
    /// The handlers that run, by their scope.
    running: Mutex<[Weak<RunningHandlers>; 2]>,
    /// The conditions that must be met before the process is ready.
    pub(crate) health: Arc<Health>,
    /// All metrics that are updated by the code which they measure.
    pub(crate) metrics: Arc<Metrics>,
    /// The registry of the background work of all handlers, which returns the requests of work that fails.
    pub(crate) background: BackgroundWork,
}

/// The pipeline, the watches and the checks of the handlers of one [`HandlerScope`].
pub(crate) struct RunningHandlers {
    pub(crate) scope: HandlerScope,
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) watcher: Arc<Watcher<Pipeline>>,
    pub(crate) diagnostics: Arc<Diagnostics>,
}

/// The queued objects that a query selects.
struct Selected {
    /// The first of them, up to the limit of the query.
    objects: Vec<ObjectSummary>,
    /// The number of further ones.
    omitted: usize,
    /// What keeps all of them from being handled.
    problems: Vec<Problem>,
}

/// The scope of a handler, and its chain.
type ScopedChain = (HandlerScope, Arc<HandlerChain>);

impl ControllerState {
    /// Creates the state of the process `identity`, which runs `handlers`, before a leadership term begins. `leadership` reads the
    /// state of the leader election.
    pub(crate) fn new(
        identity: String,
        handlers: Vec<String>,
        health: &Arc<Health>,
        metrics: &Arc<Metrics>,
        leadership: impl Fn() -> LeadershipSummary + Send + Sync + 'static,
    ) -> Self {
        Self {
            identity,
            started: Instant::now(),
            handlers,
            leadership: Box::new(leadership),
            running: Mutex::default(),
            health: Arc::clone(health),
            metrics: Arc::clone(metrics),
            background: BackgroundWork::default(),
        }
    }

    /// Returns the names of the handlers in the order in which the configuration enables them.
    pub(crate) fn handlers(&self) -> &[String] {
        &self.handlers
    }

    /// Returns the identity of this process if it runs handlers that run in every replica; otherwise `None`.
    pub(crate) fn replica_identity(&self) -> Option<String> {
        let shared = self.running().iter().any(|running| running.scope == HandlerScope::EveryReplica);
        shared.then(|| self.identity.clone())
    }

    /// Records handlers that run from now on, in place of earlier ones of the same scope.
    pub(crate) fn set_running(&self, running: &Arc<RunningHandlers>) {
        self.running.lock()[running.scope as usize] = Arc::downgrade(running);
    }

    /// Returns the handlers that run now: at most one value for each [`HandlerScope`].
    fn running(&self) -> Vec<Arc<RunningHandlers>> {
        self.running.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// Returns the status of each watch that runs, ordered by the name of its kind. Two watches of one kind, by handlers of different
    /// scopes, are shown as one.
    pub(crate) fn watches(&self) -> Vec<WatchStatus> {
        let mut watches: Vec<WatchStatus> = Vec::new();
        for status in self.running().iter().flat_map(|running| running.watcher.statuses()) {
            match watches.iter_mut().find(|watch| watch.kind.type_id == status.kind.type_id) {
                Some(watch) => watch.merge(status),
                None => watches.push(status),
            }
        }
        watches.sort_by(|one, other| one.kind.name.cmp(&other.kind.name));
        watches
    }

    /// Returns the conditions of readiness: first those of [`Health`], ordered by name, then one for each watch, which is met when all
    /// objects of its kind were delivered.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let watches = self.watches().into_iter().map(|watch| {
            let reason =
                || watch.counts.last_error.unwrap_or_else(|| "not all objects are listed yet".to_owned());
            let reason = (!watch.listed).then(reason);
            Condition { name: format!("watch {}", watch.kind.name), reason }
        });
        self.health.conditions().into_iter().chain(watches).collect()
    }

    /// Returns `true` if all conditions of readiness are met.
    pub(crate) fn is_ready(&self) -> bool {
        self.conditions().iter().all(|condition| condition.reason.is_none())
    }

    /// Returns a description of each watch that is stuck because of a bug in the program. Objects that fail do not affect liveness.
    pub(crate) fn stuck(&self) -> Vec<String> {
        self.watches().iter().filter_map(WatchStatus::stuck).collect()
    }

    /// Returns the current state, with the objects that `query` selects.
    pub(crate) fn snapshot(&self, query: &Query) -> StateSnapshot {
        let now = Now::read();
        let conditions = self.conditions().into_iter();
        let waits: Vec<_> = conditions.filter(|condition| condition.reason.is_some()).collect();
        let Selected { objects, omitted, problems } = self.objects(query, now);
        let running = self.running();
        let undecodable = running.iter().flat_map(|running| running.watcher.undecodable()).collect();
        let summary = |(name, chain)| HandlerSummary::new(name, chain, self.metrics.added_and_attempts(name));
        StateSnapshot {
            version: VERSION.version.to_owned(),
            identity: self.identity.clone(),
            leadership: (self.leadership)(),
            started: now.rfc3339(self.started),
            uptime_seconds: now.seconds_since(self.started),
            ready: waits.is_empty(),
            waits,
            watches: self.watches().into_iter().map(|watch| WatchSummary::new(watch, now)).collect(),
            handlers: self.chains().into_iter().map(summary).collect(),
            problems,
            objects,
            background: self.background(query, now),
            omitted,
            undecodable: select_undecodable(query, undecodable),
            known: query.name.as_deref().filter(|_| !running.is_empty()).map(|name| {
                let (kind, namespace) = (query.kind.as_deref(), query.namespace.as_deref());
                running.iter().any(|running| running.watcher.contains(kind, namespace, name))
            }),
            unread: None,
            others: Vec::new(),
        }
    }

    /// Reads the object whose kind and name `query` contains, asks each handler of the kind if it wants the object, and adds the answers,
    /// or the error of the read, to `snapshot`.
    pub(crate) async fn explain(&self, query: &Query, snapshot: &mut StateSnapshot) {
        let (Some(kind), Some(name)) = (&query.kind, &query.name) else { return };
        for running in self.running() {
            let read = running.watcher.read(kind, query.namespace.as_deref(), name);
            let objects = match timeout(READ_TIMEOUT, read).await {
                Ok(Ok(objects)) => objects,
                Ok(Err(error)) => return snapshot.unread = Some(causes(&error)),
                Err(_) => {
                    let text = format!("the API server does not respond within {READ_TIMEOUT:?}");
                    return snapshot.unread = Some(text);
                }
            };
            for object in objects {
                let event = AnyEvent::Object(Change::Modified, object);
                for handler in running.pipeline.handlers() {
                    let handles = handler.registration.kinds().any(|kind| kind.type_id == event.route());
                    let shown = snapshot.handlers.iter_mut().find(|shown| shown.name == handler.name);
                    if let Some(shown) = shown.filter(|_| handles) {
                        shown.interest = Some(handler.registration.wants(&event).into());
                    }
                }
            }
        }
    }

    /// Returns the names of the enabled handlers, each with its scope and its chain; `None` until the handler is set up.
    fn chains(&self) -> Vec<(&str, Option<ScopedChain>)> {
        let running = self.running();
        let chain = |name: &str| {
            running.iter().find_map(|running| {
                let mut handlers = running.pipeline.handlers().iter();
                Some((running.scope, Arc::clone(handlers.find(|handler| handler.name == name)?)))
            })
        };
        self.handlers.iter().map(|name| (name.as_str(), chain(name))).collect()
    }

    /// Returns the queued objects that `query` selects, up to its limit, the number of further ones, and the problems of all of them.
    fn objects(&self, query: &Query, now: Now) -> Selected {
        let running = self.running();
        let mut selected = Vec::new();
        let mut problems = Problems::default();
        let mut count = 0;
        let handlers = running.iter().flat_map(|running| running.pipeline.handlers());
        for handler in handlers.filter(|handler| query.selects_handler(&handler.name)) {
            let mut entries = handler.chain.entries();
            entries.retain(|entry| query.selects(entry));
            count += entries.len();
            for entry in &entries {
                problems.add(&handler.name, entry);
            }
            selected.extend(entries.into_iter().map(|entry| (handler.name.as_str(), entry)));
            selected.sort_by_key(|(_, entry)| rank(entry.last_error().map(|error| error.since), entry.since));
            selected.truncate(query.limit());
        }
        let omitted = count - selected.len();
        let with_requests = query.name.is_some();
        let summary = |(handler, entry)| ObjectSummary::new(handler, &entry, with_requests, now);
        let objects = selected.into_iter().map(summary).collect();
        Selected { objects, omitted, problems: problems.list(now) }
    }

    /// Returns the failing background work of the handlers for the object whose kind and name `query` contains.
    fn background(&self, query: &Query, now: Now) -> Vec<BackgroundSummary> {
        let (Some(kind), Some(name)) = (&query.kind, &query.name) else { return Vec::new() };
        let failing = self.background.failing(kind, name).into_iter();
        let selected = failing.filter(|(handler, _)| query.selects_handler(handler));
        selected.map(|(handler, requests)| BackgroundSummary::new(handler, requests, now)).collect()
    }

    /// Returns the checks of the handlers that run and of their drivers, one value for each scope.
    pub(crate) fn diagnostics(&self) -> Vec<Arc<Diagnostics>> {
        self.running().iter().map(|running| Arc::clone(&running.diagnostics)).collect()
    }
}

/// Returns the sort key of an object that has failed since `failing_since`, if it fails, and has been in its phase since `since`: first the
/// objects with a failure, beginning with those that have failed for longest, and then the others, beginning with those that have been in
/// their phase for longest.
fn rank(failing_since: Option<Instant>, since: Instant) -> (bool, Instant) {
    (failing_since.is_none(), failing_since.unwrap_or(since))
}

/// Returns the objects that cannot be decoded and that `query` selects: none if the query names a handler or a phase, because such
/// objects have neither.
fn select_undecodable(query: &Query, objects: Vec<Undecodable>) -> Vec<UndecodableSummary> {
    if query.handler.is_some() || query.phase.is_some() {
        return Vec::new();
    }
    let selected = objects.into_iter().filter(|object| query.selects_object(&object.identity.object_ref()));
    selected.take(query.limit()).map(UndecodableSummary::from).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use staffetta_handler::Identity;

    use super::*;

    #[test]
    fn no_more_undecodable_objects_are_shown_than_the_limit() {
        let object = |name: &str| Undecodable {
            identity: Identity::of::<Pod>(Some("default".into()), name.into(), name.into()),
            error: "odd".into(),
        };
        let shown = |query: Query| {
            let objects = ["a", "b", "c"].map(object).into();
            select_undecodable(&query, objects).into_iter().map(|object| object.name).collect::<Vec<_>>()
        };
        assert_eq!(shown(Query { limit: Some(2), ..Query::default() }), ["a", "b"]);
        assert_eq!(shown(Query { limit: Some(1), name: Some("c".into()), ..Query::default() }), ["c"]);
        assert!(shown(Query { handler: Some("vif".into()), ..Query::default() }).is_empty());
    }

    #[test]
    fn failed_objects_come_first_and_then_the_oldest() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let mut objects =
            [("old", None, 0), ("new", None, 9), ("failed", Some(4), 2), ("failed first", Some(3), 5)];
        objects.sort_by_key(|(_, failing_since, since)| rank(failing_since.map(at), at(*since)));
        assert_eq!(objects.map(|(name, ..)| name), ["failed first", "failed", "old", "new"]);
    }
}
