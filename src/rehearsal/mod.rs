//! `staffetta run --dry-run`: everything is read and planned, nothing is written.
//!
//! The objects of each kind are listed once. Then every handler gets each of them as `Added`, each owner that is gone as
//! `Deleted`, and what its sources tell at the start, through the links of its chain. Its drivers only read ([`Setup::rehearsing`](staffetta_handler::Setup)), and so
//! does its client ([`rehearsed`]); what they would do is added to the [`Plan`]. What a write would change is handed to the
//! handlers as `Modified`, in rounds, until nothing more would change.
//!
//! No lease is taken, no Kubernetes Event is written, nobody listens at the admin address.

mod dry_run;
mod part;
mod patience;
mod stage;
mod text;
mod troubles;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use kube::Client;
use kube::runtime::watcher::{Config, Event};
use staffetta_handler::{AnyEvent, Check, HandlerError, Kind, Plan, Registry, Setup, Sighting, causes};
use tracing::info;

use self::part::Part;
use self::patience::{BACKOFF, patiently};
use self::stage::Stage;
use self::troubles::Troubles;
use crate::client::{Echoes, rehearsed};
use crate::config::Configuration;
use crate::controller::ControllerError;
use crate::{connect, sweeper};

pub use self::dry_run::{DryRun, Summary};

/// How often what would be written may lead to more. Handlers that never agree on an object are ended here.
const ROUNDS: usize = 50;

/// How long the server may take for a page of a list.
const PAGE: Duration = Duration::from_secs(30);

/// Plans what a controller with this configuration would do now. It takes at most `limit`; what was not planned by then is
/// said.
///
/// # Errors
///
/// When an enabled handler cannot be made, or has a driver of which nobody said how it is rehearsed.
pub async fn rehearse(
    registry: Registry,
    configuration: &Configuration,
    client: Client,
    limit: Duration,
) -> Result<DryRun, ControllerError> {
    let rehearsal = Rehearsal::new(configuration, client);
    match tokio::time::timeout(limit, rehearsal.run(&Arc::new(registry))).await {
        Ok(done) => done?,
        Err(_) => {
            rehearsal.troubles.add(format!("not everything was looked at within {} s", limit.as_secs()));
        }
    }
    Ok(DryRun::new(rehearsal.plan.take(), rehearsal.troubles.take()))
}

struct Rehearsal<'a> {
    plan: Plan,
    echoes: Arc<Echoes>,
    client: Client,
    configuration: &'a Configuration,
    troubles: Arc<Troubles>,
}

impl<'a> Rehearsal<'a> {
    fn new(configuration: &'a Configuration, client: Client) -> Self {
        let (plan, echoes) = (Plan::default(), Arc::default());
        let client = rehearsed(client, &plan, &echoes);
        Self { plan, echoes, client, configuration, troubles: Arc::default() }
    }

    async fn run(&self, registry: &Arc<Registry>) -> Result<(), ControllerError> {
        let Some(served) = self.served().await else { return Ok(()) };
        let setup = registry.setup(self.client.clone(), self.configuration.value.clone(), served);
        let setup = setup.rehearsing(self.plan.clone());
        let mut stage = Stage::new(Arc::clone(&self.echoes), Arc::clone(&self.troubles));
        let parts = self.parts(registry, &setup, &mut stage)?;
        info!("a dry run: nothing is written");
        let lists = join_all(stage.kinds().iter().map(|kind| self.list(kind)));
        let recoveries = join_all(parts.iter().map(|part| self.recover(part)));
        let (lists, recovered, ()) = tokio::join!(lists, recoveries, self.check(setup.into_checks()));
        for (kind, seen) in stage.kinds().iter().zip(lists) {
            if let Some(seen) = seen {
                stage.listed(kind, seen);
            }
        }
        let ready =
            parts.into_iter().zip(recovered).filter(|(_, recovered)| *recovered).map(|(part, _)| part);
        let ready: Vec<_> = ready.filter(|part| self.knows_enough(part, &stage)).collect();
        self.play(&ready, &stage).await;
        Ok(())
    }

    /// The API versions of the server.
    async fn served(&self) -> Option<HashSet<String>> {
        let ask = || async { Ok(connect::api_versions(&self.client).await?) };
        let served = patiently(PAGE, ask).await;
        served.map_err(|error| self.trouble("the API server does not answer", &error)).ok()
    }

    fn parts(
        &self,
        registry: &Registry,
        setup: &Setup,
        stage: &mut Stage,
    ) -> Result<Vec<Part>, ControllerError> {
        let limit = self.configuration.relay.handler_timeout.into();
        let enabled = self.configuration.kubernetes.enabled_handlers.iter();
        let parts = enabled.map(|name| match registry.make(name, setup) {
            Ok(registration) => Ok(Part::new(name, registration, stage, &self.plan, limit)),
            Err(source) => Err(ControllerError::Handler { handler: name.clone(), source }),
        });
        parts.collect()
    }

    /// All objects of a kind; none when they cannot be had.
    async fn list(&self, kind: &Kind) -> Option<Vec<Sighting>> {
        let mut stream = kind.watch(self.client.clone(), Config::default());
        let (mut backoff, mut seen) = (BACKOFF.start(), Vec::new());
        let trouble = loop {
            match tokio::time::timeout(PAGE, stream.next()).await {
                Ok(Some(Ok(Event::Init))) => seen.clear(),
                Ok(Some(Ok(Event::InitApply(sighting)))) => seen.push(sighting),
                Ok(Some(Ok(_))) => return Some(seen),
                Ok(Some(Err(error))) => match backoff.next_wait(None) {
                    Some(wait) => tokio::time::sleep(wait).await,
                    None => break causes(&error),
                },
                Ok(None) | Err(_) => break format!("no answer within {} s", PAGE.as_secs()),
            }
        };
        self.troubles.add(format!("the objects of the kind {} cannot be listed: {trouble}", kind.name));
        None
    }

    /// Reads the ownership marks of a handler. Answers whether they are known.
    async fn recover(&self, part: &Part) -> bool {
        let Some(sweep) = part.sweep() else { return true };
        let limit = self.configuration.relay.handler_timeout.into();
        let recovered = patiently(limit, || sweep.recover()).await;
        let what =
            || format!("nothing was planned for the handler `{}`, whose marks cannot be read", part.name());
        recovered.map_err(|error| self.trouble(&what(), &error)).is_ok()
    }

    async fn check(&self, checks: Vec<Check>) {
        let limit = self.configuration.relay.handler_timeout.into();
        for check in checks {
            if let Err(error) = patiently(limit, || (check.run)()).await {
                self.trouble(&format!("the check of the driver {} failed", check.name), &error);
            }
        }
    }

    /// Whether the handler may get events: its indexes are complete.
    fn knows_enough(&self, part: &Part, stage: &Stage) -> bool {
        let missing: Vec<_> =
            part.needs().filter(|kind| !stage.is_listed(kind)).map(|kind| &*kind.name).collect();
        if !missing.is_empty() {
            let (name, missing) = (part.name(), missing.join(", "));
            self.troubles
                .add(format!("nothing was planned for the handler `{name}`, which must know each {missing}"));
        }
        missing.is_empty()
    }

    /// Hands everything to everybody, then what would follow from it, until nothing follows.
    async fn play(&self, parts: &[Part], stage: &Stage) {
        let mut orphans = Vec::new();
        for part in parts {
            orphans.push(self.orphans(part, stage).await);
            self.ask_sources(part).await;
        }
        let concurrency = self.configuration.relay.max_concurrency.get();
        for _ in 0..ROUNDS {
            let round = stage.next_round();
            let mut signals: Vec<_> = parts.iter().map(Part::take_signals).collect();
            if [&orphans, &signals].into_iter().flatten().all(Vec::is_empty) && round.is_empty() {
                return;
            }
            // One handler after the other, so that the plan of an object is the same each time.
            for ((part, orphans), signals) in parts.iter().zip(&mut orphans).zip(&mut signals) {
                let events =
                    round.iter().cloned().chain(orphans.drain(..)).chain(signals.drain(..)).collect();
                part.handle(events, concurrency, stage).await;
            }
        }
        let trouble = "what would be written leads to other writes without end: the handlers disagree";
        self.troubles.add(trouble.to_owned());
    }

    /// Asks the sources of a handler what they would tell at the start.
    async fn ask_sources(&self, part: &Part) {
        let limit = self.configuration.relay.handler_timeout.into();
        for error in part.ask_sources(limit).await {
            let what = format!("what the sources of the handler `{}` tell is not known", part.name());
            self.trouble(&what, &error);
        }
    }

    /// A `Deleted` for each owner of something outside that does not exist any more.
    async fn orphans(&self, part: &Part, stage: &Stage) -> Vec<AnyEvent> {
        let Some(sweep) = part.sweep() else { return Vec::new() };
        let limit = self.configuration.relay.handler_timeout.into();
        let owners = match patiently(limit, || sweep.owners()).await {
            Ok(owners) => owners,
            Err(error) => {
                let what = format!(
                    "what the handler `{}` made for objects that are gone cannot be read",
                    part.name()
                );
                self.trouble(&what, &error);
                return Vec::new();
            }
        };
        let orphans = sweeper::orphans(owners, |kind| stage.uids(kind)).into_iter();
        let missed = orphans.filter_map(|orphan| {
            let kind = stage.kinds().iter().find(|kind| kind.type_id == orphan.type_id)?;
            Some(kind.missed(orphan))
        });
        missed.collect()
    }

    fn trouble(&self, what: &str, error: &HandlerError) {
        self.troubles.add(format!("{what}: {}", causes(&**error)));
    }
}
