//! The controller: everything that runs from start to stop.
//!
//! Each leadership term is a [`LeadershipSession`](session::LeadershipSession). When its lease is lost, another session follows, with a fence, a client
//! and chains of its own.

mod leadership;
mod running;
mod session;
mod validation;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use kube::Client;
use staffetta_handler::{Registration, Registry, Setup, SetupError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::admin;
use crate::config::Configuration;
use crate::connect::Connection;
use crate::health::Health;
use crate::identity::identity;
use crate::metrics::Metrics;
use crate::state::{ControllerState, LeadershipSummary};
use session::LeadershipSession;

pub use leadership::{ElectionStatus, LossReason, Role};
pub(crate) use validation::check_handlers;

/// The conditions of readiness besides those of watches, drivers and handlers.
const API_SERVER: &str = "api server";
const LEADERSHIP: &str = "leadership";
const HANDLERS: &str = "handlers";

/// A running controller. Dropping it stops all watches and handlers at once.
pub struct Controller {
    admin: SocketAddr,
    health: Arc<Health>,
    leadership: watch::Receiver<ElectionStatus>,
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<(), ControllerError>>,
}

/// The reason why the controller stopped with an error.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The admin server cannot listen.
    #[error("the admin server cannot listen at {address} (`admin.listen`)")]
    Admin {
        /// The configured address.
        address: SocketAddr,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A handler or one of its drivers cannot be created.
    #[error("the handler `{handler}` cannot be created")]
    Handler {
        /// The name of the handler.
        handler: String,
        /// The reason.
        #[source]
        source: SetupError,
    },
    /// The controller's own task panicked.
    #[error("the controller panicked")]
    Panicked(#[source] tokio::task::JoinError),
    /// Handlers were still running at the end of the drain time.
    #[error("not all events were handled within the drain time (`shutdown.drain`)")]
    Undrained,
}

impl Controller {
    /// Starts the admin server and the leader election. The enabled handlers start each time this process becomes the leader. An API
    /// server that does not answer is retried.
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
        let (election, identity) = (&configuration.leader_election, identity());
        let status = leadership::initial_status(election);
        let leadership = leadership_summary(&election.lease_name, status.subscribe());
        let state = ControllerState::new(identity.clone(), handlers.clone(), &health, &metrics, leadership);
        let state = Arc::new(state);
        let listen = configuration.admin.listen;
        let (admin, admin_task) = admin::serve(listen, Arc::clone(&state))
            .await
            .map_err(|source| ControllerError::Admin { address: listen, source })?;
        info!(%admin, "the admin server is listening");
        let leadership = status.subscribe();
        let context = ControllerContext {
            registry: Arc::new(registry),
            configuration: configuration.clone(),
            client,
            identity,
            health: Arc::clone(&health),
            status,
            state,
            stop: stop.clone(),
        };
        let admin_task = AbortOnDropHandle::new(admin_task);
        let task = tokio::spawn(async move {
            let result = context.run().await;
            drop(admin_task);
            result
        });
        Ok(Self { admin, health, leadership, stop, task: AbortOnDropHandle::new(task) })
    }

    /// The address of the admin server.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// The status of the leader election.
    pub fn leadership(&self) -> ElectionStatus {
        self.leadership.borrow().clone()
    }

    /// Completes when all kinds are listed and each driver's check has succeeded, or when this process is a standby.
    pub async fn ready(&self) {
        self.health.until_ready().await;
    }

    /// A token that stops the controller.
    pub fn token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the controller has ended: by its token or with an error.
    pub async fn ended(self) -> Result<(), ControllerError> {
        self.task.await.map_err(ControllerError::Panicked)?
    }

    /// Stops the controller: ends all watches, drains the queues within the drain time, and releases the lease.
    pub async fn stop(self) -> Result<(), ControllerError> {
        self.stop.cancel();
        self.ended().await
    }
}

/// The parts of the controller that outlive a leadership term.
struct ControllerContext {
    registry: Arc<Registry>,
    configuration: Configuration,
    /// Not fenced.
    client: Client,
    /// The identity of this process in the leader election.
    identity: String,
    health: Arc<Health>,
    status: watch::Sender<ElectionStatus>,
    state: Arc<ControllerState>,
    stop: CancellationToken,
}

impl ControllerContext {
    /// Runs one session after the other, until the controller is stopped.
    async fn run(self) -> Result<(), ControllerError> {
        let pause = self.configuration.leader_election.retry_period.into();
        for term in 1_u64.. {
            match LeadershipSession::new(&self, term).run().await? {
                None => break,
                Some(reason) => self.health.set_unmet(LEADERSHIP, reason.to_string()),
            }
            if self.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// Creates the handlers of these names with their drivers, in this order.
pub(crate) fn create_handlers(
    registry: &Arc<Registry>,
    names: &[String],
    setup: &Setup,
) -> Result<Vec<(String, Registration)>, ControllerError> {
    let create = |name: &String| match registry.make(name, setup) {
        Ok(registration) => Ok((name.clone(), registration)),
        Err(source) => Err(ControllerError::Handler { handler: name.clone(), source }),
    };
    names.iter().map(create).collect()
}

/// Returns a function that reads the state of the leader election.
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
