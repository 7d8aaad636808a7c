//! The watches, chains and background tasks of one leadership term.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::Check;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{API_SERVER, ControllerContext, HANDLERS, Health, LEADERSHIP};
use crate::events::PublisherTask;
use crate::pipeline::{Pipeline, garbage_collection, sources};
use crate::retry::until_success;
use crate::watcher::Watcher;

/// The longest time that the last Kubernetes Events may take to be sent at the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// Everything that runs for one term. Dropping it ends all of it.
pub(super) struct LeaderTasks<'r> {
    context: &'r ControllerContext,
    pipeline: Arc<Pipeline>,
    watcher: Arc<Watcher<Pipeline>>,
    tasks: JoinSet<()>,
    recording: Option<PublisherTask>,
}

impl<'r> LeaderTasks<'r> {
    /// The parts of a term; nothing is watched yet.
    pub(super) fn new(
        context: &'r ControllerContext,
        client: Client,
        pipeline: Arc<Pipeline>,
        recording: Option<PublisherTask>,
    ) -> Self {
        let timeout = context.configuration.kubernetes.watch_timeout.into();
        let watcher = Watcher::new(client, Arc::clone(&pipeline)).watch_timeout(timeout);
        let watcher = Arc::new(watcher);
        context.state.set_running(&pipeline, &watcher);
        Self { context, pipeline, watcher, tasks: JoinSet::new(), recording }
    }

    /// Runs the drivers' checks and reads the ownership marks, each until it succeeds.
    pub(super) fn prepare(mut self, checks: Vec<Check>) -> Self {
        let limit = self.context.configuration.relay.handler_timeout.into();
        for check in checks {
            let name = self.add_condition(format!("driver {}", check.name), "not checked yet");
            self.tasks.spawn(until_healthy(name, check, limit, Arc::clone(&self.context.health)));
        }
        for handler in Arc::clone(&self.pipeline).handlers() {
            let name = self
                .add_condition(format!("handler {}", handler.name), "the ownership marks are not read yet");
            let (handler, health) = (Arc::clone(handler), Arc::clone(&self.context.health));
            self.tasks.spawn(async move {
                garbage_collection::recover(&handler, limit).await;
                health.set_met(&name);
            });
        }
        self
    }

    /// Watches each kind, runs the handlers' sources, and collects garbage once all kinds are listed.
    pub(super) fn watch(mut self) -> Self {
        for kind in self.pipeline.kinds() {
            self.watcher.add(kind);
        }
        let name = self.add_condition("watches".to_owned(), "not all objects are listed yet");
        let (pipeline, watcher) = (Arc::clone(&self.pipeline), Arc::clone(&self.watcher));
        let (health, metrics) = (Arc::clone(&self.context.health), Arc::clone(&self.context.state.metrics));
        let relay = &self.context.configuration.relay;
        let (interval, limit) = (relay.sweep_interval.into(), relay.handler_timeout.into());
        self.tasks.spawn(async move {
            watcher.until_listed().await;
            info!("all objects are listed");
            health.set_met(&name);
            let collections = pipeline.handlers().iter().map(|handler| {
                garbage_collection::collect_periodically(handler, &watcher, interval, limit, &metrics)
            });
            futures_util::future::join_all(collections).await;
        });
        sources::start(&mut self.tasks, &self.pipeline);
        self
    }

    /// Adds a readiness condition that is not met yet, and returns its name.
    fn add_condition(&self, name: String, reason: &str) -> String {
        self.context.health.set_unmet(&name, reason);
        name
    }

    /// Ends the watches and drains the queues within `grace`. Returns `true` if all events were handled.
    pub(super) async fn stop(mut self, grace: Duration) -> bool {
        self.close().await;
        info!("all watches are stopped");
        let drained = self.pipeline.drain(grace).await;
        if let Some(recording) = self.recording {
            recording.drain(LAST_EVENTS).await;
        }
        if drained {
            info!("all queues are drained");
        }
        drained
    }

    /// Ends everything at once, since the term has ended, and removes its readiness conditions.
    pub(super) async fn abandon(mut self, grace: Duration) {
        self.close().await;
        if !self.pipeline.halt(grace).await {
            warn!("a handler did not stop when leadership ended; its writes and driver calls are refused");
        }
        self.context.health.retain(&[API_SERVER, HANDLERS, LEADERSHIP]);
    }

    async fn close(&mut self) {
        self.watcher.stop();
        self.tasks.shutdown().await;
    }
}

/// Runs a driver's check until it succeeds.
async fn until_healthy(name: String, check: Check, timeout: Duration, health: Arc<Health>) {
    until_success(
        timeout,
        || (check.run)(),
        |attempt, wait_ms, error| {
            warn!(driver = check.name, attempt, wait_ms, error, "the driver's check failed");
            health.set_unmet(&name, error);
        },
    )
    .await;
    health.set_met(&name);
}
