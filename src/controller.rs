//! The controller: what runs between start and stop.

use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::{
    BackoffPolicy, Check, HandlerError, Notes, Registry, Setup, SetupError, bounded, causes,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::config::Configuration;
use crate::connect::Connection;
use crate::events::{self, EventCounts, Recorder, Recording};
use crate::health::{Condition, Health};
use crate::identity::identity;
use crate::leadership::{Leadership, Loss, Role, Status, Term};
use crate::metrics::{Counted, Figures};
use crate::pipeline::{self, Pipeline, Policy};
use crate::report::Reports;
use crate::state::{self, Sources, State};
use crate::watcher::{Sight, Watcher};
use crate::{admin, client, connect, sources, sweeper};

/// The waits after the API server or a driver's check failed at start.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_millis(500), max: Duration::from_secs(30), limit: None };

/// How long the API server may take to say what it has.
const ANSWER: Duration = Duration::from_secs(30);

/// What must be well before the program is ready, beside watches, drivers and handlers.
const API_SERVER: &str = "api server";
const LEADERSHIP: &str = "leadership";
/// How long what was told last may take to be sent, at the end.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// The running controller. It takes no more events in once this is dropped.
pub struct Controller {
    admin: SocketAddr,
    health: Arc<Health>,
    leadership: watch::Receiver<Status>,
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
    /// It led and does so no more. Another one takes over; started anew, this one stands by.
    #[error("this process does not lead any more")]
    Deposed(#[source] Loss),
    /// What ran when it was told to stop did not end in time.
    #[error("not everything was done within the drain time (`shutdown.drain`)")]
    Undrained,
}

impl Controller {
    /// Starts the handlers that the configuration enables, as soon as this process leads. An API server that does not
    /// answer is waited for.
    pub async fn start(
        registry: Registry,
        configuration: &Configuration,
        connection: impl Into<Connection>,
    ) -> Result<Self, ControllerError> {
        let Connection { client, host } = connection.into();
        let (health, stop) = (Arc::new(Health::default()), CancellationToken::new());
        health.waits(API_SERVER, "not asked yet");
        let figures = Arc::new(Figures::new(&host, &configuration.kubernetes.enabled_handlers));
        let (election, identity) = (&configuration.leader_election, identity());
        let wrapped = |term: &Term| client::wrap(client.clone(), &figures.requests, &figures.silence, term);
        let leadership = Leadership::start(election, &identity, wrapped(&Term::for_ever()));
        let status = leadership.subscribe();
        let client = wrapped(leadership.term());
        let events = Arc::<EventCounts>::default();
        let sources = sources(&election.lease_name, status.clone(), Arc::clone(&events));
        let state = Arc::new(State::new(identity.clone(), &health, &figures, sources));
        let listen = configuration.admin.listen;
        let (admin, admin_task) = admin::serve(listen, Arc::clone(&state))
            .await
            .map_err(|source| ControllerError::Admin { address: listen, source })?;
        info!(%admin, "the admin server listens");
        let work = Work {
            registry: Arc::new(registry),
            configuration: configuration.clone(),
            client,
            identity,
            events,
            health: Arc::clone(&health),
            leadership,
            state,
            stop: stop.clone(),
        };
        let admin_task = AbortOnDropHandle::new(admin_task);
        let task = tokio::spawn(async move {
            let result = work.run().await;
            drop(admin_task);
            result
        });
        Ok(Self { admin, health, leadership: status, stop, task: AbortOnDropHandle::new(task) })
    }

    /// Where the admin server listens.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// How the election of a leader stands.
    pub fn leadership(&self) -> Status {
        self.leadership.borrow().clone()
    }

    /// Ends when each watch has seen all objects of its kind and each driver's check has succeeded, or when this process
    /// stands by for another one.
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

    /// Stops the controller: no more events, what runs is given the drain time, and the lease is given up.
    pub async fn stop(self) -> Result<(), ControllerError> {
        self.stop.cancel();
        self.ended().await
    }
}

struct Work {
    registry: Arc<Registry>,
    configuration: Configuration,
    client: Client,
    identity: String,
    events: Arc<EventCounts>,
    health: Arc<Health>,
    leadership: Leadership,
    state: Arc<State>,
    stop: CancellationToken,
}

impl Work {
    async fn run(self) -> Result<(), ControllerError> {
        let result = tokio::select! {
            biased;
            loss = self.leadership.lost() => Err(ControllerError::Deposed(loss)),
            result = self.stand_by_and_lead() => result,
        };
        // What did not end in time may still act: the lease keeps others away until it has run out.
        if !matches!(result, Err(ControllerError::Undrained)) {
            self.leadership.release().await;
        }
        result
    }

    async fn stand_by_and_lead(&self) -> Result<(), ControllerError> {
        let elected = async {
            self.served().await;
            self.elected().await;
            self.served().await
        };
        let Some(served) = self.stop.run_until_cancelled(elected).await else { return Ok(()) };
        let (recorder, recording) = self.record(&served).unzip();
        let setup = self.registry.setup(self.client.clone(), self.configuration.value.clone(), served);
        let setup = match &recorder {
            Some(recorder) => setup.telling(Notes::new(recorder.clone())),
            None => setup,
        };
        let pipeline = Arc::new(self.pipeline(&setup, Reports::new(recorder))?);
        let watcher = Arc::new(self.watcher(&pipeline));
        let mut tasks = JoinSet::new();
        self.prepare(&mut tasks, setup.into_checks(), &pipeline);
        self.watch(&mut tasks, &pipeline, &watcher);
        sources::start(&mut tasks, &pipeline);
        self.state.runs(&pipeline, &watcher);
        self.health.is_well(API_SERVER);
        self.health.is_well(LEADERSHIP);

        self.stop.cancelled().await;
        self.health.waits("shutdown", "the program was told to stop");
        watcher.stop();
        tasks.shutdown().await;
        info!("no more events are taken in");
        let drained = pipeline.drain(self.configuration.shutdown.drain.into()).await;
        if let Some(recording) = recording {
            recording.drain(LAST_EVENTS).await;
        }
        if drained {
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
            self.health.waits(API_SERVER, error);
            tokio::time::sleep(wait).await;
        }
    }

    /// Ends when this process leads. One that stands by, and sees for whom, is ready.
    async fn elected(&self) {
        self.health.waits(LEADERSHIP, "the lease was not read yet");
        let mut status = self.leadership.subscribe();
        loop {
            match &*status.borrow_and_update() {
                Status { role: Role::Leader | Role::Unopposed, .. } => break,
                Status { trouble: Some(trouble), .. } => self.health.waits(LEADERSHIP, trouble),
                Status { role: Role::Standby { .. }, .. } => {
                    self.health.is_well(API_SERVER);
                    self.health.is_well(LEADERSHIP);
                }
                Status { role: Role::Candidate | Role::Ended(_), .. } => {}
            }
            if status.changed().await.is_err() {
                // The election is over, and whoever waits for that hears of it.
                std::future::pending::<()>().await;
            }
        }
        self.health.waits(LEADERSHIP, "taking over");
    }

    /// Starts to write Kubernetes Events, where they are wanted and the server takes them.
    fn record(&self, served: &HashSet<String>) -> Option<(Recorder, Recording)> {
        if !self.configuration.events.enabled {
            return None;
        }
        if !served.contains(events::API_VERSION) {
            warn!(
                api_version = events::API_VERSION,
                "the API server does not serve Kubernetes Events; failures go to the log alone"
            );
            return None;
        }
        Some(events::record(self.client.clone(), self.identity.clone(), Arc::clone(&self.events)))
    }

    fn pipeline(&self, setup: &Setup, reports: Reports) -> Result<Pipeline, ControllerError> {
        let enabled = &self.configuration.kubernetes.enabled_handlers;
        let handlers = enabled.iter().map(|name| match self.registry.make(name, setup) {
            Ok(registration) => Ok((name.clone(), registration)),
            Err(source) => Err(ControllerError::Handler { handler: name.clone(), source }),
        });
        let handlers = handlers.collect::<Result<Vec<_>, _>>()?;
        info!(handlers = enabled.join(","), "the handlers are made");
        let observers = Counted::new(reports, &self.state.figures);
        let policy =
            Policy { term: self.leadership.term().clone(), ..Policy::from(&self.configuration.relay) };
        Ok(pipeline::build(handlers, &policy, &observers))
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
            self.state.figures.silence.listen(&kind.path);
            watcher.add(kind);
        }
        let over = Arc::downgrade(watcher);
        let sights = move || over.upgrade().map(|watcher| watcher.sights()).unwrap_or_default();
        let seen = sights.clone();
        self.health.watch_over(move || seen().iter().filter_map(Sight::stuck).collect());
        self.health.explain(move || sights().into_iter().map(condition).collect());
        self.health.waits("watches", "not all objects are listed yet");
        let (pipeline, watcher, health) =
            (Arc::clone(pipeline), Arc::clone(watcher), Arc::clone(&self.health));
        let figures = Arc::clone(&self.state.figures);
        let relay = &self.configuration.relay;
        let (interval, limit) = (relay.sweep_interval.into(), relay.handler_timeout.into());
        tasks.spawn(async move {
            watcher.until_listed().await;
            info!("all objects are listed");
            health.is_well("watches");
            let sweeps = pipeline.relays().iter().map(|relay| async {
                let sweeps = figures.sweeps(&relay.name);
                sweeper::sweep(relay, pipeline.kinds(), &watcher, interval, limit, &sweeps).await;
            });
            futures_util::future::join_all(sweeps).await;
        });
    }
}

/// Who knows what the state shows.
fn sources(lease: &str, status: watch::Receiver<Status>, events: Arc<EventCounts>) -> Sources {
    let name = lease.to_owned();
    let leadership = move || {
        let Status { role, slow_renewals, .. } = status.borrow().clone();
        let leads = matches!(role, Role::Leader | Role::Unopposed);
        state::Leadership { name: name.clone(), leads, role: role.to_string(), slow_renewals }
    };
    Sources { leadership: Box::new(leadership), kubernetes_events: Box::new(move || events.counts().into()) }
}

/// A watch is well once it has shown all objects of its kind.
fn condition(sight: Sight) -> Condition {
    let reason = || sight.so_far.trouble.unwrap_or_else(|| "not all objects are listed yet".to_owned());
    let reason = (!sight.listed).then(reason);
    Condition { name: format!("watch {}", sight.kind.name), reason }
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
