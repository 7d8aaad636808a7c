//! `staffetta run --dry-run`: shows what a controller would do now, and changes nothing.
//!
//! All objects are listed once. Every handler gets each of them as `Added`, a `Deleted` for each owner that no longer exists, and the
//! triggers of its sources. Writes to the Kubernetes API are sent with `dryRun=All` ([`client`]), and changes by drivers are recorded
//! ([`drivers`]). Each object that an accepted write would change is handled once more, as the server answered, because one handler
//! often waits for the write of another; what would follow from that is not planned.
//!
//! A dry run takes no lease, writes no Kubernetes Event and has no admin server.

mod client;
pub(crate) mod drivers;
mod handler;
mod outcome;
mod plan;

use std::any::TypeId;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use kube::Client;
use kube::runtime::watcher::{Config, Event};
use staffetta_handler::{
    AnyEvent, BackoffPolicy, Change, Check, HandlerError, Kind, Message, Registry, Setup, Undecodable,
    WatchItem, bounded, causes,
};
use tracing::info;

use self::client::{NewerObjects, recording};
use self::handler::DryRunHandler;
use self::plan::PlanLog;
use crate::config::Configuration;
use crate::connect;
use crate::controller::{ControllerError, create_handlers};
use crate::lock::lock;
use crate::pipeline::garbage_collection;

pub use self::outcome::{DryRun, Summary};
pub use self::plan::{ObjectPlan, PlannedObject, PlannedStep, StepDetail};

/// The time limit for one page of a list.
const PAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Transient failures are retried for a few seconds only: the user waits for the plan.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(2),
    limit: Some(Duration::from_secs(5)),
};

/// Plans what a controller with this configuration would do now, within `limit`.
///
/// # Errors
///
/// An enabled handler cannot be made, or uses a driver trait without a recorder.
pub async fn dry_run(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    limit: Duration,
) -> Result<DryRun, ControllerError> {
    let planner = Planner::new(configuration, client);
    match tokio::time::timeout(limit, planner.run(&Arc::new(registry))).await {
        Ok(done) => done?,
        Err(_) => planner.not_planned(format!("not everything was handled within {} s", limit.as_secs())),
    }
    let not_planned = std::mem::take(&mut *lock(&planner.not_planned));
    Ok(DryRun::new(planner.log.take(), not_planned))
}

struct Planner<'a> {
    configuration: &'a Configuration,
    client: Client,
    log: PlanLog,
    newer: NewerObjects,
    /// The time limit for one call of a handler.
    limit: Duration,
    not_planned: Mutex<Vec<String>>,
}

/// The listed objects of one kind.
struct Listed {
    events: Vec<AnyEvent>,
    uids: HashSet<String>,
}

impl<'a> Planner<'a> {
    fn new(configuration: &'a Configuration, client: Client) -> Self {
        let (log, newer) = (PlanLog::default(), NewerObjects::default());
        let client = recording(client, &log, &newer);
        let limit = configuration.relay.handler_timeout.into();
        Self { configuration, client, log, newer, limit, not_planned: Mutex::default() }
    }

    async fn run(&self, registry: &Arc<Registry>) -> Result<(), ControllerError> {
        let versions = || async { Ok(connect::api_versions(&self.client).await?) };
        let served = self.attempt("the API server does not answer", PAGE_TIMEOUT, versions).await;
        let Some(served) = served else { return Ok(()) };
        let setup = registry.setup(self.client.clone(), self.configuration.value.clone(), served);
        let setup = setup.dry_run(self.log.for_drivers());
        let handlers = self.handlers(registry, &setup)?;
        let mut kinds: Vec<Kind> = Vec::new();
        for kind in handlers.iter().flat_map(DryRunHandler::kinds) {
            if kinds.iter().all(|known| known.type_id != kind.type_id) {
                kinds.push(kind.clone());
            }
        }
        info!("a dry run: nothing is written");
        let lists = join_all(kinds.iter().map(|kind| self.list(kind)));
        let recoveries = join_all(handlers.iter().map(|handler| self.recover(handler)));
        let (lists, recovered, ()) = tokio::join!(lists, recoveries, self.check(setup.into_checks()));
        let lists = kinds.iter().zip(lists).filter_map(|(kind, list)| Some((kind.type_id, list?)));
        let lists: HashMap<TypeId, Listed> = lists.collect();
        let handlers = handlers.into_iter().zip(recovered).filter(|(_, recovered)| *recovered);
        let handlers: Vec<_> =
            handlers.map(|(handler, _)| handler).filter(|handler| self.is_indexed(handler, &lists)).collect();

        let events: Vec<_> = kinds
            .iter()
            .filter_map(|kind| lists.get(&kind.type_id))
            .flat_map(|list| list.events.clone())
            .collect();
        let mut orphans = Vec::new();
        index(&handlers, &events);
        for handler in &handlers {
            orphans.push(self.orphans(handler, &lists).await);
            for error in handler.run_sources(self.limit).await {
                self.failed(&format!("the sources of the handler `{}` failed", handler.name), &error);
            }
        }
        let concurrency = self.configuration.relay.max_concurrency.get();
        // One handler after the other, so that the plan is the same each time.
        for (handler, orphans) in handlers.iter().zip(orphans) {
            handler.handle(events.iter().cloned().chain(orphans), concurrency).await;
        }
        let newer = std::mem::take(&mut *lock(&self.newer));
        let changed: Vec<_> =
            newer.into_values().filter_map(|object| self.modified(&kinds, object)).collect();
        index(&handlers, &changed);
        for handler in &handlers {
            handler.handle(changed.iter().cloned(), concurrency).await;
        }
        Ok(())
    }

    fn handlers(
        &self,
        registry: &Arc<Registry>,
        setup: &Setup,
    ) -> Result<Vec<DryRunHandler>, ControllerError> {
        let handlers = create_handlers(registry, &self.configuration.kubernetes.enabled_handlers, setup)?;
        let attempts = (self.limit, BACKOFF);
        let handlers = handlers.into_iter();
        Ok(handlers.map(|(name, handler)| DryRunHandler::new(&name, handler, &self.log, attempts)).collect())
    }

    /// Lists a kind. `None` if that fails.
    async fn list(&self, kind: &Kind) -> Option<Listed> {
        let mut stream = kind.watch(self.client.clone(), Config::default());
        let (mut backoff, mut items) = (BACKOFF.start(), Vec::new());
        let error = loop {
            match tokio::time::timeout(PAGE_TIMEOUT, stream.next()).await {
                Ok(Some(Ok(Event::Init))) => items.clear(),
                Ok(Some(Ok(Event::InitApply(item)))) => items.push(item),
                Ok(Some(Ok(_))) => return Some(self.listed(items)),
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

    fn listed(&self, items: Vec<WatchItem>) -> Listed {
        let mut listed = Listed { events: Vec::new(), uids: HashSet::new() };
        for item in items {
            match item {
                WatchItem::Object(object) => {
                    listed.uids.extend(object.meta().uid.clone());
                    listed.events.push(AnyEvent::Object(Change::Added, object));
                }
                WatchItem::Undecodable(object) => {
                    self.undecodable(&object);
                    listed.uids.insert(object.identity.uid);
                }
            }
        }
        listed
    }

    /// An object as an accepted write would leave it. `None` if no handler watches its kind.
    fn modified(&self, kinds: &[Kind], object: serde_json::Value) -> Option<AnyEvent> {
        let is = |kind: &&Kind| object["kind"] == *kind.name && object["apiVersion"] == *kind.api_version;
        let kind = kinds.iter().find(is)?;
        match kind.decode(object) {
            Ok(WatchItem::Object(object)) => Some(AnyEvent::Object(Change::Modified, object)),
            Ok(WatchItem::Undecodable(object)) => {
                self.undecodable(&object);
                None
            }
            Err(error) => {
                self.not_planned(format!("a changed {} cannot be decoded: {error}", kind.name));
                None
            }
        }
    }

    /// Reads the ownership marks of a handler. Returns `false` if that fails.
    async fn recover(&self, handler: &DryRunHandler) -> bool {
        let Some(collector) = &handler.garbage_collector else { return true };
        let what =
            format!("nothing was planned for the handler `{}`, whose marks cannot be read", handler.name);
        self.attempt(&what, self.limit, || collector.recover()).await.is_some()
    }

    async fn check(&self, checks: Vec<Check>) {
        for check in checks {
            let what = format!("the check of the driver {} failed", check.name);
            self.attempt(&what, self.limit, || (check.run)()).await;
        }
    }

    /// Returns `true` if the indexes of the handler are complete.
    fn is_indexed(&self, handler: &DryRunHandler, lists: &HashMap<TypeId, Listed>) -> bool {
        let missing = handler.indexes.iter().filter(|index| !lists.contains_key(&index.kind.type_id));
        let missing: Vec<_> = missing.map(|index| &*index.kind.name).collect();
        if !missing.is_empty() {
            let (name, missing) = (&handler.name, missing.join(", "));
            self.not_planned(format!(
                "nothing was planned for the handler `{name}`, which needs all objects of {missing}"
            ));
        }
        missing.is_empty()
    }

    /// A `Deleted` for each owner of something outside that no longer exists.
    async fn orphans(&self, handler: &DryRunHandler, lists: &HashMap<TypeId, Listed>) -> Vec<AnyEvent> {
        let Some(collector) = &handler.garbage_collector else { return Vec::new() };
        let what = format!("the owners of the resources of the handler `{}` cannot be read", handler.name);
        let owners = self.attempt(&what, self.limit, || collector.owners()).await.unwrap_or_default();
        let orphans =
            garbage_collection::orphans(owners, |kind| lists.get(&kind).map(|list| list.uids.clone()));
        orphans.into_iter().map(|orphan| AnyEvent::Missed(Arc::new(orphan))).collect()
    }

    /// Repeats `call`, each time for at most `limit`, while its error is transient. `None` if it fails, which is noted as `what`.
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

    fn undecodable(&self, Undecodable { identity, error }: &Undecodable) {
        self.not_planned(format!("{} cannot be decoded: {error}", identity.object_ref()));
    }

    fn failed(&self, what: &str, error: &HandlerError) {
        self.not_planned(format!("{what}: {}", causes(&**error)));
    }

    fn not_planned(&self, reason: String) {
        let mut not_planned = lock(&self.not_planned);
        if !not_planned.contains(&reason) {
            not_planned.push(reason);
        }
    }
}

/// Feeds the indexes of all handlers.
fn index(handlers: &[DryRunHandler], events: &[AnyEvent]) {
    for index in handlers.iter().flat_map(|handler| &handler.indexes) {
        events
            .iter()
            .filter(|event| event.route() == index.kind.type_id)
            .for_each(|event| (index.apply)(event));
    }
}
