//! `staffetta run --dry-run`: shows the changes that a controller would make now, without making them.
//!
//! All objects are listed once. Every handler gets each object as `Added`, a `Deleted` for each owner that no longer exists, and the
//! triggers of its sources. Writes to the Kubernetes API are sent with `dryRun=All` (`client`), and changes by drivers are recorded
//! (`assembly::recording`). Then each object that an accepted write would change is handled once more, in the state that the server returned,
//! because one handler often waits for the write of another. Further consequences of these writes are not planned.
//!
//! A dry run takes no lease, writes no Kubernetes Event and has no admin server.

mod client;
mod handler;
mod outcome;
mod plan;

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use kube::Client;
use kube::runtime::watcher::{Config, Event};
use parking_lot::Mutex;
use staffetta_handler::{
    AnyEvent, BackoffPolicy, Change, Check, HandlerError, Kind, Message, Registry, Undecodable, WatchItem,
    bounded, causes,
};
use tracing::info;

use self::client::{AcceptedWrites, combined, recording};
use self::handler::DryRunHandler;
use self::plan::PlanLog;
use crate::base::config::Configuration;
use crate::control::controller::{ControllerError, create_handlers};
use crate::engine::cluster::ClusterInfo;
use crate::engine::pipeline::garbage_collection;

pub use self::outcome::{DryRun, Summary};
pub use self::plan::{ObjectPlan, PlannedObject, PlannedStep, StepDetail};

/// The time limit for one page of a list of objects.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The delays between retries. Transient failures are retried for a few seconds only, because the user waits for the plan.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(2),
    limit: Some(Duration::from_secs(5)),
};

/// Plans the changes that a controller with this configuration would make now. Parts that do not complete within `limit` are listed in
/// [`DryRun::not_planned`].
///
/// # Errors
///
/// Fails if an enabled handler cannot be built, or uses a driver trait that does not support dry runs.
pub async fn dry_run(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    limit: Duration,
) -> Result<DryRun, ControllerError> {
    let (log, accepted) = (PlanLog::default(), AcceptedWrites::default());
    let client = recording(client, &log, &accepted);
    let call_limit = configuration.relay.handler_timeout.into();
    let planner =
        Planner { configuration, client, log, accepted, limit: call_limit, not_planned: Mutex::default() };
    match tokio::time::timeout(limit, planner.run(&Arc::new(registry))).await {
        Ok(done) => done?,
        Err(_) => planner.not_planned(format!("not everything was handled within {} s", limit.as_secs())),
    }
    let not_planned = std::mem::take(&mut *planner.not_planned.lock());
    Ok(DryRun::new(planner.log.take(), not_planned))
}

/// The planner of one dry run: it lists the objects and runs the handlers on them.
struct Planner<'a> {
    configuration: &'a Configuration,
    client: Client,
    log: PlanLog,
    /// The writes that the server accepted in a dry run, by the UID of the object.
    accepted: AcceptedWrites,
    /// The time limit for one invocation of a handler, one run of a source, one check of a driver, or one read of ownership marks or of
    /// owners.
    limit: Duration,
    /// The parts that could not be planned, with the reasons.
    not_planned: Mutex<Vec<String>>,
}

/// The UIDs of all objects that the server listed, by kind. A kind that cannot be listed is missing.
type ListedUids = HashMap<TypeId, HashSet<String>>;

impl Planner<'_> {
    /// Lists all objects, then runs all handlers on them, one handler after the other, and once more on the objects that accepted writes
    /// change. Fails if a handler cannot be built.
    async fn run(&self, registry: &Arc<Registry>) -> Result<(), ControllerError> {
        let read = || async { Ok(ClusterInfo::read(self.configuration, &self.client).await?) };
        let cluster = self.attempt("the API server does not answer", PAGE_TIMEOUT, read).await;
        let Some(cluster) = cluster else { return Ok(()) };
        let setup = cluster.setup(registry, self.configuration, self.client.clone());
        let setup = setup.dry_run(self.log.for_drivers());
        let enabled = &self.configuration.kubernetes.enabled_handlers;
        let handlers = create_handlers(registry, enabled, &setup)?.into_iter();
        let handlers =
            handlers.map(|(name, handler)| DryRunHandler::new(&name, handler, &self.log, self.limit));
        let handlers: Vec<_> = handlers.collect();
        let mut kinds: Vec<Kind> = handlers.iter().flat_map(DryRunHandler::kinds).cloned().collect();
        let mut known = HashSet::new();
        kinds.retain(|kind| known.insert(kind.type_id));
        info!("a dry run: nothing is written");
        let lists = join_all(kinds.iter().map(|kind| self.list(kind)));
        let recoveries = join_all(handlers.iter().map(|handler| self.recover(handler)));
        let (lists, recovered, ()) = tokio::join!(lists, recoveries, self.check(setup.into_checks().0));
        let lists = kinds.iter().zip(lists).filter_map(|(kind, list)| Some((kind.type_id, list?)));
        let (mut uids, mut events) = (ListedUids::new(), Vec::new());
        for (kind, items) in lists {
            uids.insert(kind, items.iter().map(|item| item.object_ref().uid.to_owned()).collect());
            events.extend(items.into_iter().filter_map(|item| self.event(Change::Added, item)));
        }
        let handlers = handlers.into_iter().zip(recovered).filter(|(_, recovered)| *recovered);
        let handlers: Vec<_> =
            handlers.map(|(handler, _)| handler).filter(|handler| self.is_indexed(handler, &uids)).collect();

        index(&handlers, &events);
        let concurrency = self.configuration.relay.max_concurrency.get();
        // One handler after the other, so that the plan is the same each time.
        for handler in &handlers {
            let orphans = self.orphans(handler, &uids).await;
            for error in handler.run_sources(self.limit).await {
                self.failed(&format!("the sources of the handler `{}` failed", handler.name), &error);
            }
            handler.handle(events.iter().cloned().chain(orphans), concurrency).await;
        }
        let accepted = std::mem::take(&mut *self.accepted.lock());
        let changed = accepted.values().filter_map(|writes| self.modified(&kinds, combined(writes)));
        let changed: Vec<_> = changed.collect();
        index(&handlers, &changed);
        for handler in &handlers {
            handler.handle(changed.iter().cloned(), concurrency).await;
        }
        Ok(())
    }

    /// Lists all objects of a kind. If that fails, notes the error in `not_planned` and returns `None`.
    async fn list(&self, kind: &Kind) -> Option<Vec<WatchItem>> {
        let mut stream = kind.watch(self.client.clone(), Config::default());
        let (mut backoff, mut items) = (BACKOFF.start(), Vec::new());
        let error = loop {
            match tokio::time::timeout(PAGE_TIMEOUT, stream.next()).await {
                Ok(Some(Ok(Event::Init))) => items.clear(),
                Ok(Some(Ok(Event::InitApply(item)))) => items.push(item),
                Ok(Some(Ok(_))) => return Some(items),
                Ok(Some(Err(error))) => match backoff.next_wait(None) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => break causes(&error),
                },
                Ok(None) | Err(_) => break format!("no answer within {} s", PAGE_TIMEOUT.as_secs()),
            }
        };
        self.not_planned(format!("the objects of the kind {} cannot be listed: {error}", kind.name));
        None
    }

    /// Converts an object to an event; `None` if it cannot be decoded, which is noted because nothing is planned for it.
    fn event(&self, change: Change, item: WatchItem) -> Option<AnyEvent> {
        match item {
            WatchItem::Object(object) => Some(AnyEvent::Object(change, object)),
            WatchItem::Undecodable(Undecodable { identity, error }) => {
                self.not_planned(format!("{} cannot be decoded: {error}", identity.object_ref()));
                None
            }
        }
    }

    /// Returns the `Modified` event of an object in the state that an accepted write would produce; `None` if no handler watches its
    /// kind or it cannot be decoded.
    fn modified(&self, kinds: &[Kind], object: serde_json::Value) -> Option<AnyEvent> {
        let is = |kind: &&Kind| object["kind"] == *kind.name && object["apiVersion"] == *kind.api_version;
        let kind = kinds.iter().find(is)?;
        match kind.decode(object) {
            Ok(item) => self.event(Change::Modified, item),
            Err(error) => {
                self.not_planned(format!("a changed {} cannot be decoded: {error}", kind.name));
                None
            }
        }
    }

    /// Reads the ownership marks (owners in tags of external resources) of a handler. Returns `false` if that fails, and notes the error.
    async fn recover(&self, handler: &DryRunHandler) -> bool {
        let Some(collector) = &handler.registration.collector else { return true };
        let what =
            format!("nothing was planned for the handler `{}`, whose marks cannot be read", handler.name);
        self.attempt(&what, self.limit, || collector.recover()).await.is_some()
    }

    /// Runs the checks of the drivers, one after the other, and notes in `not_planned` those that fail.
    async fn check(&self, checks: Vec<Check>) {
        for check in checks {
            let what = format!("the check of the driver {} failed", check.name);
            self.attempt(&what, self.limit, || (check.run)()).await;
        }
    }

    /// Returns `true` if every kind that the indexes of the handler need was listed; otherwise notes that nothing is planned for the
    /// handler.
    fn is_indexed(&self, handler: &DryRunHandler, uids: &ListedUids) -> bool {
        let missing =
            handler.registration.indexes.iter().filter(|index| !uids.contains_key(&index.kind.type_id));
        let missing: Vec<_> = missing.map(|index| &*index.kind.name).collect();
        if !missing.is_empty() {
            let (name, missing) = (&handler.name, missing.join(", "));
            self.not_planned(format!(
                "nothing was planned for the handler `{name}`, which needs all objects of {missing}"
            ));
        }
        missing.is_empty()
    }

    /// Returns a `Deleted` event for each Kubernetes object that no longer exists but owns external resources of the handler. Returns none,
    /// and notes the error, if the owners cannot be read, or if too many objects are gone at once.
    async fn orphans(&self, handler: &DryRunHandler, uids: &ListedUids) -> Vec<AnyEvent> {
        let Some(collector) = &handler.registration.collector else { return Vec::new() };
        let what = format!("the owners of the resources of the handler `{}` cannot be read", handler.name);
        let owners = self.attempt(&what, self.limit, || collector.owners()).await.unwrap_or_default();
        let uids = |kind| uids.get(&kind).cloned();
        let allow_mass_release = self.configuration.relay.allow_mass_release;
        let orphans = garbage_collection::orphans(owners, uids, allow_mass_release).unwrap_or_else(|error| {
            self.not_planned(format!("the handler `{}` releases nothing: {error}", handler.name));
            Vec::new()
        });
        orphans.into_iter().map(|orphan| AnyEvent::Missed(Arc::new(orphan))).collect()
    }

    /// Calls `call` until it succeeds, each time for at most `limit`, as long as its error is transient and [`BACKOFF`] allows another
    /// attempt. If it does not succeed, notes the last error with the description `what` and returns `None`.
    async fn attempt<T, F>(&self, what: &str, limit: Duration, call: impl Fn() -> F) -> Option<T>
    where
        F: Future<Output = Result<T, HandlerError>> + Send,
    {
        let mut backoff = BACKOFF.start();
        loop {
            let error = match bounded(limit, call()).await {
                Ok(result) => return Some(result),
                Err(error) => error,
            };
            let wait = if error.transient() { backoff.next_wait(error.retry_after()) } else { None };
            let Some(wait) = wait else {
                self.failed(what, &error);
                return None;
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Notes in `not_planned` that a part could not be planned: `what` describes the failure, and `error` is its cause.
    fn failed(&self, what: &str, error: &HandlerError) {
        self.not_planned(format!("{what}: {}", causes(&**error)));
    }

    /// Adds `reason` to the field `not_planned`, the reasons why parts could not be planned, unless it is there already.
    fn not_planned(&self, reason: String) {
        let mut not_planned = self.not_planned.lock();
        if !not_planned.contains(&reason) {
            not_planned.push(reason);
        }
    }
}

/// Updates the indexes of all handlers with `events`.
fn index(handlers: &[DryRunHandler], events: &[AnyEvent]) {
    for index in handlers.iter().flat_map(|handler| &handler.registration.indexes) {
        for event in events.iter().filter(|event| event.route() == index.kind.type_id) {
            // The index has logged a panic.
            let _ = (index.apply)(event);
        }
    }
}
