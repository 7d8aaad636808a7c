//! The watches, chains and background tasks of the handlers that run.

use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::Check;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{ControllerContext, Health, ObjectSelection};
use crate::check::Diagnostics;
use crate::events::PublisherTask;
use crate::pipeline::{HandlerScope, MARKS_UNREAD, Pipeline, garbage_collection, sources};
use crate::retry::until_success;
use crate::watcher::Watcher;

/// The time limit for sending the last Kubernetes Events at the end.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// The time limit for the sources of the handlers to give up what they hold in Kubernetes, such as Leases, at the end.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// The watches, chains and background tasks of the handlers of one scope: those of the leader, in one term, or those of every replica.
/// Dropping the value stops all of them.
pub(super) struct HandlerTasks<'r> {
    context: &'r ControllerContext,
    scope: HandlerScope,
    /// The names of the readiness conditions of these tasks.
    conditions: Vec<String>,
    pipeline: Arc<Pipeline>,
    watcher: Arc<Watcher<Pipeline>>,
    diagnostics: Arc<Diagnostics>,
    tasks: JoinSet<()>,
    /// The task that writes Kubernetes Events; `None` if they are not written.
    recording: Option<PublisherTask>,
}

impl<'r> HandlerTasks<'r> {
    /// Creates the pipeline and the watcher of these handlers. Nothing is watched yet.
    pub(super) fn new(
        context: &'r ControllerContext,
        scope: HandlerScope,
        client: Client,
        pipeline: Arc<Pipeline>,
        diagnostics: Diagnostics,
        recording: Option<PublisherTask>,
    ) -> Self {
        let timeout = context.configuration.kubernetes.watch_timeout.into();
        let watcher = Watcher::new(client, Arc::clone(&pipeline)).watch_timeout(timeout);
        let watcher = Arc::new(watcher);
        let (conditions, tasks, diagnostics) = (Vec::new(), JoinSet::new(), Arc::new(diagnostics));
        context.state.set_running(scope, &pipeline, &watcher, &diagnostics);
        Self { context, scope, conditions, pipeline, watcher, diagnostics, tasks, recording }
    }

    /// Starts the checks of the drivers, and the reading of the ownership marks (owners in the tags of external resources). Each is
    /// repeated until it succeeds.
    pub(super) fn prepare(mut self) -> Self {
        let limit = self.context.configuration.relay.handler_timeout.into();
        for check in self.diagnostics.readiness.clone() {
            let name = self.add_condition(format!("driver {}", check.name), "not checked yet");
            self.tasks.spawn(until_healthy(name, check, limit, Arc::clone(&self.context.health)));
        }
        for handler in Arc::clone(&self.pipeline).handlers() {
            let name = self.add_condition(format!("handler {}", handler.name), MARKS_UNREAD);
            let (handler, health) = (Arc::clone(handler), Arc::clone(&self.context.health));
            self.tasks.spawn(async move {
                garbage_collection::recover(&handler, |progress| health.set_unmet(&name, progress)).await;
                health.set_met(&name);
            });
        }
        self
    }

    /// Watches each kind, with the objects that `selection` selects, and runs the sources of the handlers. Starts garbage collection once
    /// all kinds are listed.
    pub(super) fn watch(mut self, selection: Arc<ObjectSelection>) -> Self {
        selection.watch(self.pipeline.kinds(), &self.watcher);
        let watcher = Arc::clone(&self.watcher);
        self.tasks.spawn(async move { selection.follow_namespaces(&watcher).await });
        let name = match self.scope {
            HandlerScope::Leader => "watches",
            HandlerScope::EveryReplica => "watches in every replica",
        };
        let name = self.add_condition(name.to_owned(), "not all objects are listed yet");
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

    /// Starts the task that renews the certificate of the webhook, unless the certificate is read from files.
    pub(super) fn maintain_certificate(mut self, client: &Client) -> Self {
        let webhook = self.context.webhook.as_ref();
        if let Some(keeping) = webhook.and_then(|webhook| webhook.maintain_certificate(client)) {
            self.tasks.spawn(keeping);
        }
        self
    }

    /// Adds a readiness condition that is not met yet, and returns its name.
    fn add_condition(&mut self, name: String, reason: &str) -> String {
        self.conditions.push(name.clone());
        self.context.health.set_unmet(&name, reason);
        name
    }

    /// Waits for the operations that the sources have begun in external systems (at most half of `grace`), ends the watches, handles the
    /// queued events in the rest of `grace`, and then gives up what the sources hold in Kubernetes, such as Leases. Returns `true` if all
    /// events were handled.
    pub(super) async fn stop(mut self, grace: Duration) -> bool {
        let until = Instant::now() + grace;
        if tokio::time::timeout(grace / 2, sources::drain(&self.pipeline)).await.is_err() {
            info!(
                "something that was begun outside has not ended in time; whoever takes over looks at it again"
            );
        }
        self.close().await;
        info!("all watches are stopped");
        let drained = self.pipeline.drain(until.saturating_duration_since(Instant::now())).await;
        if tokio::time::timeout(RELEASE_TIMEOUT, sources::release(&self.pipeline)).await.is_err() {
            warn!("the sources did not give up what they hold in time; other replicas wait until it expires");
        }
        if let Some(recording) = self.recording {
            recording.drain(LAST_EVENTS_TIMEOUT).await;
        }
        if drained {
            info!("all queues are drained");
        }
        drained
    }

    /// Stops everything at once, because the term has ended, and removes the readiness conditions of these tasks. Waits up to `grace` for
    /// running handlers.
    pub(super) async fn abandon(mut self, grace: Duration) {
        self.close().await;
        if !self.pipeline.halt(grace).await {
            warn!("a handler did not stop when leadership ended; its writes and driver calls are refused");
        }
        self.context.health.remove(&self.conditions);
    }

    /// Ends the watches and the background tasks.
    async fn close(&mut self) {
        self.watcher.stop();
        self.tasks.shutdown().await;
    }
}

/// Repeats the check of a driver until it succeeds, and keeps the readiness condition up to date.
async fn until_healthy(name: String, check: Arc<Check>, timeout: Duration, health: Arc<Health>) {
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
