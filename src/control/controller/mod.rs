//! The controller: all that runs from the start of the process to its stop.
//!
//! Each leadership term is a session (`session::run`). When the lease is lost, the next session starts with a
//! new term, a new client and new handler chains. Handlers that run in every replica run in parallel to that, from the start of the
//! process to its stop.

mod leadership;
mod namespace_scope;
mod running;
mod selection;
mod session;
mod validation;

use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::join;
use kube::Client;
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::base::config::Configuration;
use crate::base::connect::Connection;
use crate::base::health::Health;
use crate::base::metrics::Metrics;
use crate::engine::client;
use crate::engine::identity::identity;
use crate::engine::pipeline::HandlerScope;
use crate::engine::term::Term;
use crate::engine::webhook::Webhook;
use crate::observe::admin;
use crate::observe::state::{ControllerState, LeadershipSummary};

pub use crate::engine::webhook::WebhookError;
pub use crate::observe::admin::ListenError;
pub use leadership::{ElectionStatus, LossReason, Role};
use running::HandlerTasks;
pub(crate) use selection::{FINALIZER_PREFIX, ObjectSelection};
pub(crate) use validation::check_handlers;

/// The name of the readiness condition that the API server responds.
const API_SERVER: &str = "api server";
/// The name of the readiness condition that this process is the leader, or a standby that knows the leader.
const LEADERSHIP: &str = "leadership";
/// The name of the readiness condition that all enabled handlers can be built.
const HANDLERS: &str = "handlers";

/// A running controller. Dropping it stops all watches and handlers at once.
pub struct Controller {
    admin: SocketAddr,
    probes: Option<SocketAddr>,
    health: Arc<Health>,
    leadership: watch::Receiver<ElectionStatus>,
    stop: CancellationToken,
    /// The main task; `None` after [`ready`](Self::ready) has returned its result.
    task: Option<AbortOnDropHandle<Result<(), ControllerError>>>,
}

/// The reason why the controller could not start, or stopped with an error.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The admin server or the probes server cannot listen at its address.
    #[error(transparent)]
    Admin(#[from] ListenError),
    /// The admission webhook cannot be served, for example because its address is in use.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// A handler or one of its drivers cannot be built.
    #[error("the handler `{handler}` cannot be created")]
    Handler {
        /// The name of the handler.
        handler: String,
        /// The error of the handler or driver.
        #[source]
        source: SetupError,
    },
    /// The main task of the controller panicked.
    #[error("the controller panicked")]
    Panicked(#[source] tokio::task::JoinError),
    /// Handlers were still running at the end of the drain time.
    #[error("not all events were handled within the drain time (`shutdown.drain`)")]
    Undrained,
}

impl Controller {
    /// Starts the admin server, the admission webhook and the leader election. The enabled handlers start each time that this process
    /// becomes the leader; those that run in every replica start at once. If the API server does not respond, requests are repeated. Fails
    /// if a server cannot listen, or the webhook cannot be served.
    pub async fn start(
        registry: Registry,
        configuration: &Configuration,
        connection: impl Into<Connection>,
    ) -> Result<Self, ControllerError> {
        let Connection { client, host, .. } = connection.into();
        let (health, stop) = (Arc::new(Health::default()), CancellationToken::new());
        health.set_unmet(API_SERVER, "not connected yet");
        let handlers = &configuration.kubernetes.enabled_handlers;
        let metrics = Arc::new(Metrics::new(&host, handlers));
        let election = &configuration.leader_election;
        let status = leadership::initial_status(election);
        let leadership = leadership_summary(&election.lease_name, status.subscribe());
        let state = ControllerState::new(identity(), handlers.clone(), &health, &metrics, leadership);
        let state = Arc::new(state);
        let (admin_server, probes_server) = admin::serve(&configuration.admin, &state).await?;
        let (admin, probes) = (admin_server.address, probes_server.as_ref().map(|server| server.address));
        info!(%admin, probes = probes.map(tracing::field::display), "the admin server is listening");
        let webhook = Webhook::of(configuration, client.default_namespace())?;
        let webhook_task = match &webhook {
            Some(webhook) => {
                let reader = client::wrap(client.clone(), &metrics.api_requests, &Term::pending());
                Some(webhook.serve(&reader, &health, &metrics.webhook).await?)
            }
            None => None,
        };
        let leadership = status.subscribe();
        let context = ControllerContext {
            registry: Arc::new(registry),
            configuration: configuration.clone(),
            client,
            status,
            state,
            webhook,
            stop: stop.clone(),
        };
        let task = tokio::spawn(async move {
            let result = context.run().await;
            drop((admin_server, probes_server, webhook_task));
            result
        });
        Ok(Self { admin, probes, health, leadership, stop, task: Some(AbortOnDropHandle::new(task)) })
    }

    /// Returns the address of the admin server.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Returns the address of the probes server; `None` if none is configured.
    pub fn probes(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// Returns the current status of the leader election.
    pub fn leadership(&self) -> ElectionStatus {
        self.leadership.borrow().clone()
    }

    /// Completes when this process is ready: as the leader when all kinds are listed, the ownership marks are read and the check of each
    /// driver has succeeded, as a standby when it knows the leader and could take over. In both cases, the handlers that run in every
    /// replica and the webhook must be ready, too. Completes also when the controller has ended, with its result.
    pub async fn ready(&mut self) -> Result<(), ControllerError> {
        let Some(task) = &mut self.task else { return Ok(()) };
        let ended = tokio::select! {
            () = self.health.until_ready() => return Ok(()),
            ended = task => ended,
        };
        self.task = None;
        ended.map_err(ControllerError::Panicked)?
    }

    /// Returns a token that stops the controller when it is cancelled.
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the controller has stopped, because its token was cancelled or because of an error, which is returned.
    pub async fn ended(self) -> Result<(), ControllerError> {
        let Some(task) = self.task else { return Ok(()) };
        task.await.map_err(ControllerError::Panicked)?
    }

    /// Stops the controller: ends all watches, handles the queued events within the drain time, and releases the lease. Fails with
    /// [`ControllerError::Undrained`] if handlers were still running after the drain time.
    pub async fn stop(self) -> Result<(), ControllerError> {
        self.stop.cancel();
        self.ended().await
    }
}

/// The parts of the controller that exist for longer than one leadership term.
struct ControllerContext {
    registry: Arc<Registry>,
    configuration: Configuration,
    /// The client of the Kubernetes API whose writes are not bound to a leadership term.
    client: Client,
    status: watch::Sender<ElectionStatus>,
    state: Arc<ControllerState>,
    /// The admission webhook, if it is configured.
    webhook: Option<Webhook>,
    stop: CancellationToken,
}

impl ControllerContext {
    /// Runs the handlers of the leader, and those that run in every replica, until the controller is stopped. When either of these
    /// two groups ends or fails, the other one is stopped.
    async fn run(self) -> Result<(), ControllerError> {
        let led = async {
            let result = self.run_sessions().await;
            self.stop.cancel();
            result
        };
        let in_every_replica = async {
            let result = self.run_in_every_replica().await;
            self.stop.cancel();
            result
        };
        match join(led.boxed(), in_every_replica.boxed()).await {
            // The other group was stopped because of this error, so it says more.
            (Err(ControllerError::Undrained), Err(error)) => Err(error),
            (led, in_every_replica) => led.and(in_every_replica),
        }
    }

    /// Runs one leadership session after the other, until the controller is stopped or a session fails.
    async fn run_sessions(&self) -> Result<(), ControllerError> {
        let pause = self.configuration.leader_election.retry_period.into();
        for term in 1_u64.. {
            match session::run(self, term).await? {
                None => break,
                Some(reason) => self.state.health.set_unmet(LEADERSHIP, reason.to_string()),
            }
            if self.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Runs the handlers that run in every replica until the controller is stopped. Their client and chains are not bound to the
    /// leadership. Fails if the handlers cannot be created, or do not finish within the drain time.
    async fn run_in_every_replica(&self) -> Result<(), ControllerError> {
        let scope = HandlerScope::EveryReplica;
        if scope.handlers(&self.registry, &self.configuration.kubernetes.enabled_handlers).is_empty() {
            self.stop.cancelled().await;
            return Ok(());
        }
        let term = Term::unlimited();
        let client = client::wrap(self.client.clone(), &self.state.metrics.api_requests, &term);
        let cluster = self.stop.run_until_cancelled(session::cluster_info(self, &client)).await;
        let Some(cluster) = cluster else { return Ok(()) };
        let running = HandlerTasks::start(self, scope, &cluster, &client, &term)?;
        self.stop.cancelled().await;
        let drained = running.stop(self.configuration.shutdown.drain.into()).await;
        if drained { Ok(()) } else { Err(ControllerError::Undrained) }
    }
}

/// Builds the handlers called `names` with their drivers, in this order. They get only events of objects that the configuration selects.
/// Fails with the error of the first handler that cannot be built.
pub(crate) fn create_handlers(
    registry: &Arc<Registry>,
    names: &[String],
    setup: &Setup,
) -> Result<Vec<(String, Registration)>, ControllerError> {
    let create = |name: &String| {
        let created = registry.make(name, setup).and_then(|registration| {
            Ok((name.clone(), ObjectSelection::shared(setup)?.restrict(registration)))
        });
        created.map_err(|source| ControllerError::Handler { handler: name.clone(), source })
    };
    names.iter().map(create).collect()
}

/// Returns a function that reads the current state of the leader election for the lease called `lease`.
fn leadership_summary(
    lease: &str,
    status: watch::Receiver<ElectionStatus>,
) -> impl Fn() -> LeadershipSummary + use<> {
    let name = lease.to_owned();
    move || {
        let ElectionStatus { role, slow_renewals, losses, .. } = status.borrow().clone();
        let leads = matches!(role, Role::Leader | Role::Unopposed);
        LeadershipSummary { name: name.clone(), leads, role: role.to_string(), slow_renewals, losses }
    }
}
