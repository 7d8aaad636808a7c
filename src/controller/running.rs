//! What runs while this process leads: the watches, the chains, and what is done beside them.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::{BackoffPolicy, Check, bounded, causes};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{Health, Work};
use crate::config::Configuration;
use crate::events::Recording;
use crate::pipeline::Pipeline;
use crate::state::State;
use crate::watcher::Watcher;
use crate::{sources, sweeper};

/// The waits after the API server or a driver's check failed at start.
pub(super) const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_millis(500), max: Duration::from_secs(30), limit: None };

/// How long what was told last may take to be sent, at the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// What runs for one term. All of it ends when this is dropped.
pub(super) struct Running {
    pipeline: Arc<Pipeline>,
    watcher: Arc<Watcher<Pipeline>>,
    tasks: JoinSet<()>,
    recording: Option<Recording>,
    configuration: Configuration,
    health: Arc<Health>,
    state: Arc<State>,
    /// What has to be well because of it.
    conditions: Vec<String>,
}

impl Running {
    /// Nothing is watched yet.
    pub(super) fn new(
        work: &Work,
        client: Client,
        pipeline: Arc<Pipeline>,
        recording: Option<Recording>,
    ) -> Self {
        let timeout = work.configuration.kubernetes.watch_timeout.into();
        let watcher = Watcher::new(client, Arc::clone(&pipeline)).watch_timeout(timeout);
        let watcher = Arc::new(watcher.overheard(Arc::clone(&work.state.figures.silence)));
        work.state.runs(&pipeline, &watcher);
        Self {
            pipeline,
            watcher,
            tasks: JoinSet::new(),
            recording,
            configuration: work.configuration.clone(),
            health: Arc::clone(&work.health),
            state: Arc::clone(&work.state),
            conditions: Vec::new(),
        }
    }

    /// Runs the drivers' checks and reads the ownership marks, each until it succeeds.
    pub(super) fn prepare(mut self, checks: Vec<Check>) -> Self {
        let limit = self.configuration.relay.handler_timeout.into();
        for check in checks {
            let name = self.waits(format!("driver {}", check.name), "not checked yet");
            self.tasks.spawn(until_well(name, check, limit, Arc::clone(&self.health)));
        }
        for place in 0..self.pipeline.relays().len() {
            let name = format!("handler {}", self.pipeline.relays()[place].name);
            let name = self.waits(name, "the ownership marks are not read yet");
            let (pipeline, health) = (Arc::clone(&self.pipeline), Arc::clone(&self.health));
            self.tasks.spawn(async move {
                sweeper::recover(&pipeline.relays()[place], limit).await;
                health.is_well(&name);
            });
        }
        self
    }

    /// Watches each kind once and hears the handlers' own sources; sweeps when all kinds are listed.
    pub(super) fn watch(mut self) -> Self {
        for kind in self.pipeline.kinds() {
            self.state.figures.silence.listen(&kind.path);
            self.watcher.add(kind);
        }
        let name = self.waits("watches".to_owned(), "not all objects are listed yet");
        let (pipeline, watcher) = (Arc::clone(&self.pipeline), Arc::clone(&self.watcher));
        let (health, figures) = (Arc::clone(&self.health), Arc::clone(&self.state.figures));
        let relay = &self.configuration.relay;
        let (interval, limit) = (relay.sweep_interval.into(), relay.handler_timeout.into());
        self.tasks.spawn(async move {
            watcher.until_listed().await;
            info!("all objects are listed");
            health.is_well(&name);
            let sweeps = pipeline.relays().iter().map(|relay| async {
                let sweeps = figures.sweeps(&relay.name);
                sweeper::sweep(relay, pipeline.kinds(), &watcher, interval, limit, &sweeps).await;
            });
            futures_util::future::join_all(sweeps).await;
        });
        sources::start(&mut self.tasks, &self.pipeline);
        self
    }

    /// `name` has to be well, and is not yet.
    fn waits(&mut self, name: String, reason: &str) -> String {
        self.health.waits(&name, reason);
        self.conditions.push(name.clone());
        name
    }

    /// Takes no more events in, and gives what was begun at most `grace`. Answers whether all of it was done.
    pub(super) async fn stop(mut self, grace: Duration) -> bool {
        self.close().await;
        info!("no more events are taken in");
        let drained = self.pipeline.drain(grace).await;
        if let Some(recording) = self.recording {
            recording.drain(LAST_EVENTS).await;
        }
        if drained {
            info!("all that ran has ended");
        }
        drained
    }

    /// Ends all of it where it stands: the term is over. Answers what need not be well any more.
    pub(super) async fn abandon(mut self, grace: Duration) -> Vec<String> {
        self.close().await;
        if !self.pipeline.halt(grace).await {
            warn!("something does not end with the term in which it began; whatever it tries is refused");
        }
        self.conditions
    }

    async fn close(&mut self) {
        self.watcher.stop();
        self.tasks.shutdown().await;
    }
}

async fn until_well(name: String, check: Check, limit: Duration, health: Arc<Health>) {
    let mut backoff = BACKOFF.start();
    while let Err(error) = bounded(limit, (check.run)()).await {
        let wait = backoff.next_wait(error.retry_after()).unwrap_or(BACKOFF.max);
        let attempt = backoff.attempts();
        let error = causes(&*error);
        warn!(driver = check.name, attempt, wait_ms = wait.as_millis(), error, "the driver's check failed");
        health.waits(&name, error);
        tokio::time::sleep(wait).await;
    }
    health.is_well(&name);
}
