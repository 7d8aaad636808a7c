//! The watches, chains and background tasks of one leadership term.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::Check;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::{API_SERVER, ControllerContext, HANDLERS, Health, LEADERSHIP};
use crate::events::PublisherTask;
use crate::pipeline::{Pipeline, UNREAD, garbage_collection, sources};
use crate::retry::until_success;
use crate::watcher::Watcher;
use crate::webhook;

/// The time limit for sending the last Kubernetes Events at the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// The watches, chains and background tasks of one term. Dropping the value stops all of them.
pub(super) struct LeaderTasks<'r> {
    context: &'r ControllerContext,
    pipeline: Arc<Pipeline>,
    watcher: Arc<Watcher<Pipeline>>,
    tasks: JoinSet<()>,
    recording: Option<PublisherTask>,
}

impl<'r> LeaderTasks<'r> {
    /// Creates the parts of a term. Nothing is watched yet.
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

    /// Starts the checks of the drivers, and the reading of the ownership marks (owners in the tags of external resources). Each is
    /// repeated until it succeeds.
    pub(super) fn prepare(mut self, checks: Vec<Check>) -> Self {
        let limit = self.context.configuration.relay.handler_timeout.into();
        for check in checks {
            let name = self.add_condition(format!("driver {}", check.name), "not checked yet");
            self.tasks.spawn(until_healthy(name, check, limit, Arc::clone(&self.context.health)));
        }
        for handler in Arc::clone(&self.pipeline).handlers() {
            let name = self.add_condition(format!("handler {}", handler.name), UNREAD);
            let (handler, health) = (Arc::clone(handler), Arc::clone(&self.context.health));
            self.tasks.spawn(async move {
                garbage_collection::recover(&handler, |progress| health.set_unmet(&name, progress)).await;
                health.set_met(&name);
            });
        }
        self
    }

    /// Watches each kind and runs the sources of the handlers. Starts garbage collection once all kinds are listed.
    pub(super) fn watch(mut self) -> Self {
        for kind in self.pipeline.kinds() {
            self.watcher.add(kind);
        }
        let name = self.add_condition("watches".to_owned(), "not all objects are listed yet");
        let (pipeline, watcher) = (Arc::clone(&self.pipeline), Arc::clone(&self.watcher));
        let (health, metrics) = (Arc::clone(&self.context.health), Arc::clone(&self.context.state.metrics));
        let relay = self.context.configuration.relay.clone();
        self.tasks.spawn(async move {
            watcher.until_listed().await;
            info!("all objects are listed");
            health.set_met(&name);
            let collections = pipeline
                .handlers()
                .iter()
                .map(|handler| garbage_collection::collect_periodically(handler, &watcher, &relay, &metrics));
            futures_util::future::join_all(collections).await;
        });
        sources::start(&mut self.tasks, &self.pipeline);
        self
    }

    /// Keeps the certificate of the webhook valid, unless it is in files.
    pub(super) fn maintain_certificate(mut self, client: &Client) -> Self {
        let webhook = self.context.webhook.as_ref();
        if let Some(keeping) = webhook.and_then(|webhook| webhook.maintain_certificate(client)) {
            self.tasks.spawn(keeping);
        }
        self
    }

    /// Adds a readiness condition that is not met yet, and returns its name.
    fn add_condition(&self, name: String, reason: &str) -> String {
        self.context.health.set_unmet(&name, reason);
        name
    }

    /// Ends the watches, and handles the queued events within `grace`. Returns `true` if all events were handled.
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

    /// Stops everything at once, because the term has ended, and removes its readiness conditions. Waits up to `grace` for running
    /// handlers.
    pub(super) async fn abandon(mut self, grace: Duration) {
        self.close().await;
        if !self.pipeline.halt(grace).await {
            warn!("a handler did not stop when leadership ended; its writes and driver calls are refused");
        }
        let [certificate, options] = webhook::CONDITIONS;
        self.context.health.retain(&[API_SERVER, HANDLERS, LEADERSHIP, certificate, options]);
    }

    async fn close(&mut self) {
        self.watcher.stop();
        self.tasks.shutdown().await;
    }
}

/// Repeats the check of a driver until it succeeds, and keeps the readiness condition up to date.
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
