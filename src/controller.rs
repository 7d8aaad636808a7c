//! The controller: what runs between start and stop.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::{BackoffPolicy, Check, HandlerError, Registry, Setup, SetupError, bounded, causes};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::config::Configuration;
use crate::health::Health;
use crate::observers::LogOnly;
use crate::pipeline::{self, Pipeline, Policy};
use crate::watcher::Watcher;
use crate::{admin, connect, sweeper};

/// The waits after the API server or a driver's check failed at start.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_millis(500), max: Duration::from_secs(30), limit: None };

/// How long the API server may take to say what it has.
const ANSWER: Duration = Duration::from_secs(30);

/// The running controller. It takes no more events in once this is dropped.
pub struct Controller {
    admin: SocketAddr,
    health: Arc<Health>,
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<(), ControllerError>>,
}

/// Why the controller cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The admin server cannot listen.
    #[error("the admin server cannot listen at {address} (`admin.listen`)")]
    Admin {
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A handler or one of its drivers cannot be made.
    #[error("the handler `{handler}` cannot be made")]
    Handler {
        /// Its name.
        handler: String,
        /// Why.
        #[source]
        source: SetupError,
    },
    /// The controller's own task panicked.
    #[error("the controller ended by itself")]
    Panicked(#[source] tokio::task::JoinError),
    /// What ran when it was told to stop did not end in time.
    #[error("not everything was done within the drain time (`shutdown.drain`)")]
    Undrained,
}

impl Controller {
    /// Starts the handlers that the configuration enables. An API server that does not answer is waited for.
    pub async fn start(
        registry: Registry,
        configuration: &Configuration,
        client: Client,
    ) -> Result<Self, ControllerError> {
        let (health, stop) = (Arc::new(Health::default()), CancellationToken::new());
        health.waits("api server", "not asked yet");
        let listen = configuration.admin.listen;
        let (admin, admin_task) = admin::serve(listen, Arc::clone(&health))
            .await
            .map_err(|source| ControllerError::Admin { address: listen, source })?;
        info!(%admin, "the admin server listens");
        let work = Work {
            registry: Arc::new(registry),
            configuration: configuration.clone(),
            client,
            health: Arc::clone(&health),
            stop: stop.clone(),
        };
        let admin_task = AbortOnDropHandle::new(admin_task);
        let task = tokio::spawn(async move {
            let result = work.run().await;
            drop(admin_task);
            result
        });
        Ok(Self { admin, health, stop, task: AbortOnDropHandle::new(task) })
    }

    /// Where the admin server listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Ends when each watch has seen all objects of its kind and each driver's check has succeeded.
    pub async fn ready(&self) {
        self.health.until_ready().await;
    }

    /// Tells the controller to stop.
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the controller has ended: by its token, or because it cannot run.
    pub async fn ended(self) -> Result<(), ControllerError> {
        self.task.await.map_err(ControllerError::Panicked)?
    }

    /// Stops the controller: no more events, and what runs is given the drain time.
    pub async fn stop(self) -> Result<(), ControllerError> {
        self.stop.cancel();
        self.ended().await
    }
}

struct Work {
    registry: Arc<Registry>,
    configuration: Configuration,
    client: Client,
    health: Arc<Health>,
    stop: CancellationToken,
}

impl Work {
    async fn run(self) -> Result<(), ControllerError> {
        let Some(served) = self.stop.run_until_cancelled(self.served()).await else { return Ok(()) };
        let setup = self.registry.setup(self.client.clone(), self.configuration.value.clone(), served);
        let pipeline = Arc::new(self.pipeline(&setup)?);
        let watcher = Arc::new(self.watcher(&pipeline));
        let mut tasks = JoinSet::new();
        self.prepare(&mut tasks, setup.into_checks(), &pipeline);
        self.watch(&mut tasks, &pipeline, &watcher);
        self.health.is_well("api server");

        self.stop.cancelled().await;
        self.health.waits("shutdown", "the program was told to stop");
        watcher.stop();
        tasks.shutdown().await;
        info!("no more events are taken in");
        if pipeline.drain(self.configuration.shutdown.drain.into()).await {
            info!("all that ran has ended");
            Ok(())
        } else {
            Err(ControllerError::Undrained)
        }
    }

    /// The API versions of the server, as soon as it answers.
    async fn served(&self) -> HashSet<String> {
        let mut backoff = BACKOFF.start();
        loop {
            let asked = async { connect::api_versions(&self.client).await.map_err(HandlerError::from) };
            let error = match bounded(ANSWER, asked).await {
                Ok(served) => return served,
                Err(error) => error,
            };
            let wait = backoff.next_wait(error.retry_after()).unwrap_or(BACKOFF.max);
            let attempt = backoff.attempts();
            let error = causes(&*error);
            warn!(attempt, wait_ms = wait.as_millis(), error, "the API server does not answer");
            self.health.waits("api server", error);
            tokio::time::sleep(wait).await;
        }
    }

    fn pipeline(&self, setup: &Setup) -> Result<Pipeline, ControllerError> {
        let enabled = &self.configuration.kubernetes.enabled_handlers;
        let handlers = enabled.iter().map(|name| match self.registry.make(name, setup) {
            Ok(registration) => Ok((name.clone(), registration)),
            Err(source) => Err(ControllerError::Handler { handler: name.clone(), source }),
        });
        let handlers = handlers.collect::<Result<Vec<_>, _>>()?;
        info!(handlers = enabled.join(","), "the handlers are made");
        Ok(pipeline::build(handlers, &Policy::from(&self.configuration.relay), &LogOnly))
    }

    fn watcher(&self, pipeline: &Arc<Pipeline>) -> Watcher<Pipeline> {
        let timeout = self.configuration.kubernetes.watch_timeout.into();
        Watcher::new(self.client.clone(), Arc::clone(pipeline)).watch_timeout(timeout)
    }

    /// Runs the drivers' checks and reads the ownership marks, each until it succeeds.
    fn prepare(&self, tasks: &mut JoinSet<()>, checks: Vec<Check>, pipeline: &Arc<Pipeline>) {
        let limit = self.configuration.relay.handler_timeout.into();
        for check in checks {
            let name = format!("driver {}", check.name);
            self.health.waits(&name, "not checked yet");
            tasks.spawn(until_well(name, check, limit, Arc::clone(&self.health)));
        }
        for place in 0..pipeline.relays().len() {
            let name = format!("handler {}", pipeline.relays()[place].name);
            self.health.waits(&name, "the ownership marks are not read yet");
            let (pipeline, health) = (Arc::clone(pipeline), Arc::clone(&self.health));
            tasks.spawn(async move {
                sweeper::recover(&pipeline.relays()[place], limit).await;
                health.is_well(&name);
            });
        }
    }

    /// Watches each kind once; sweeps when all of them are listed.
    fn watch(&self, tasks: &mut JoinSet<()>, pipeline: &Arc<Pipeline>, watcher: &Arc<Watcher<Pipeline>>) {
        for kind in pipeline.kinds() {
            watcher.add(kind);
        }
        let over = Arc::downgrade(watcher);
        self.health.watch_over(move || over.upgrade().map(|watcher| watcher.ended()).unwrap_or_default());
        let over = Arc::downgrade(watcher);
        self.health.explain(move || over.upgrade().map(|watcher| watcher.unlisted()).unwrap_or_default());
        self.health.waits("watches", "not all objects are listed yet");
        let (pipeline, watcher, health) =
            (Arc::clone(pipeline), Arc::clone(watcher), Arc::clone(&self.health));
        let relay = &self.configuration.relay;
        let (interval, limit) = (relay.sweep_interval.into(), relay.handler_timeout.into());
        tasks.spawn(async move {
            watcher.until_listed().await;
            info!("all objects are listed");
            health.is_well("watches");
            let sweeps = pipeline
                .relays()
                .iter()
                .map(|relay| sweeper::sweep(relay, pipeline.kinds(), &watcher, interval, limit));
            futures_util::future::join_all(sweeps).await;
        });
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
