//! The controller: what runs between start and stop. What runs for one term of a leader is a `candidacy`; when its lease is lost,
//! another one follows, and shares nothing with it that could act.

mod candidacy;
mod running;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use kube::Client;
use staffetta_handler::{Registry, SetupError};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use crate::admin;
use crate::config::Configuration;
use crate::connect::Connection;
use crate::events::EventCounts;
use crate::health::{Condition, Health};
use crate::identity::identity;
use crate::leadership::{self, Role, Status};
use crate::metrics::Figures;
use crate::state::{self, Sources, State};
use crate::trial::Unmade;
use crate::watcher::Sight;
use candidacy::{Candidacy, End};

/// What must be well before the program is ready, beside watches, drivers and handlers.
const API_SERVER: &str = "api server";
const LEADERSHIP: &str = "leadership";
const HANDLERS: &str = "handlers";

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
    /// What ran when it was told to stop did not end in time.
    #[error("not everything was done within the drain time (`shutdown.drain`)")]
    Undrained,
}

impl From<Unmade> for ControllerError {
    fn from(Unmade { handler, source }: Unmade) -> Self {
        Self::Handler { handler, source }
    }
}

impl Controller {
    /// Starts the handlers that the configuration enables, as soon as this process leads, and again each time that it leads
    /// anew. An API server that does not answer is waited for.
    pub async fn start(
        registry: Registry,
        configuration: &Configuration,
        connection: impl Into<Connection>,
    ) -> Result<Self, ControllerError> {
        let Connection { client, host, .. } = connection.into();
        let (health, stop) = (Arc::new(Health::default()), CancellationToken::new());
        health.waits(API_SERVER, "not asked yet");
        let figures = Arc::new(Figures::new(&host, &configuration.kubernetes.enabled_handlers));
        let (election, identity) = (&configuration.leader_election, identity());
        let status = leadership::not_begun(election);
        let events = Arc::<EventCounts>::default();
        let sources = sources(&election.lease_name, status.subscribe(), Arc::clone(&events));
        let state = Arc::new(State::new(identity.clone(), &health, &figures, sources));
        explain(&health, &state);
        let listen = configuration.admin.listen;
        let (admin, admin_task) = admin::serve(listen, Arc::clone(&state))
            .await
            .map_err(|source| ControllerError::Admin { address: listen, source })?;
        info!(%admin, "the admin server listens");
        let leadership = status.subscribe();
        let work = Work {
            registry: Arc::new(registry),
            configuration: configuration.clone(),
            client,
            identity,
            events,
            health: Arc::clone(&health),
            status,
            state,
            stop: stop.clone(),
        };
        let admin_task = AbortOnDropHandle::new(admin_task);
        let task = tokio::spawn(async move {
            let result = work.run().await;
            drop(admin_task);
            result
        });
        Ok(Self { admin, health, leadership, stop, task: AbortOnDropHandle::new(task) })
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

/// What outlives a term: the configuration, the way to the API server, and what others ask about.
struct Work {
    registry: Arc<Registry>,
    configuration: Configuration,
    /// Behind no fence.
    client: Client,
    /// The name of this process.
    identity: String,
    events: Arc<EventCounts>,
    health: Arc<Health>,
    status: watch::Sender<Status>,
    state: Arc<State>,
    stop: CancellationToken,
}

impl Work {
    /// Stands by and leads, as often as the lease is lost, until it is told to stop.
    async fn run(self) -> Result<(), ControllerError> {
        let pause = self.configuration.leader_election.retry_period.into();
        for term in 1_u64.. {
            match Candidacy::new(&self, term).run().await? {
                End::Stopped => break,
                End::Deposed(loss) => self.health.waits(LEADERSHIP, loss.to_string()),
            }
            if self.stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                break;
            }
        }
        Ok(())
    }
}

/// Who knows what the state shows.
fn sources(lease: &str, status: watch::Receiver<Status>, events: Arc<EventCounts>) -> Sources {
    let name = lease.to_owned();
    let leadership = move || {
        let Status { role, slow_renewals, losses, .. } = status.borrow().clone();
        let leads = matches!(role, Role::Leader | Role::Unopposed);
        state::Leadership { name: name.clone(), leads, role: role.to_string(), slow_renewals, losses }
    };
    Sources { leadership: Box::new(leadership), kubernetes_events: Box::new(move || events.counts().into()) }
}

/// Liveness and readiness ask the watches that there are at the time.
fn explain(health: &Health, state: &Arc<State>) {
    let watches = |state: &Weak<State>| state.upgrade().map(|state| state.watches()).unwrap_or_default();
    let (stuck, waits) = (Arc::downgrade(state), Arc::downgrade(state));
    health.watch_over(move || watches(&stuck).iter().filter_map(Sight::stuck).collect());
    health.explain(move || watches(&waits).into_iter().map(condition).collect());
}

/// A watch is well once it has shown all objects of its kind.
fn condition(sight: Sight) -> Condition {
    let reason = || sight.so_far.trouble.unwrap_or_else(|| "not all objects are listed yet".to_owned());
    let reason = (!sight.listed).then(reason);
    Condition { name: format!("watch {}", sight.kind.name), reason }
}
