//! One leadership session: the participation of this process in the leader election, from standby to the end of its term.

use std::future::pending;
use std::time::Duration;

use kube::Client;
use tokio::sync::watch;
use tracing::warn;

use super::leadership::{ElectionHandle, ElectionStatus, LossReason, Role};
use super::running::HandlerTasks;
use super::{API_SERVER, ControllerContext, ControllerError, HANDLERS, LEADERSHIP, check_handlers};
use crate::base::retry::until_success;
use crate::engine::client;
use crate::engine::cluster::ClusterInfo;
use crate::engine::pipeline::HandlerScope;
use crate::engine::term::Term;

/// The time limit for reading the API versions and the cluster id.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs the session number `term` of this process until the controller is stopped (returns `None`) or the lease is lost (returns the
/// reason). Fails if the handlers cannot be built, or do not finish within the drain time.
///
/// The client and the chains of the session are bound to its term, so that work that remains from the term cannot write, even if this
/// process becomes the leader again. Each session has an identity of its own, so that a late renewal of the previous session cannot be
/// mistaken for one of this session.
pub(super) async fn run(
    context: &ControllerContext,
    term: u64,
) -> Result<Option<LossReason>, ControllerError> {
    let wrapped =
        |term: &Term| client::wrap(context.client.clone(), &context.state.metrics.api_requests, term);
    let first = &context.state.identity;
    let identity = |term| if term == 1 { first.clone() } else { format!("{first}-{term}") };
    let previous = (term > 1).then(|| identity(term - 1));
    let mut election = ElectionHandle::start(
        &context.configuration.leader_election,
        &identity(term),
        previous,
        wrapped(&Term::unlimited()),
        &context.status,
    );
    let client = wrapped(election.term());
    let end = run_term(context, &client, &mut election).await;
    // Handlers that are still running may act: standbys must wait until the lease expires.
    if !matches!(end, Err(ControllerError::Undrained)) {
        election.release().await;
    }
    end
}

/// Takes part in the election, and runs the handlers while this process is the leader. `client` writes only during the term. Returns the
/// reason when the lease is lost, and `None` when the controller is stopped. Fails if a handler cannot be built, or if handlers do not
/// finish within the drain time.
async fn run_term(
    context: &ControllerContext,
    client: &Client,
    election: &mut ElectionHandle,
) -> Result<Option<LossReason>, ControllerError> {
    let status = context.status.subscribe();
    context.state.health.set_unmet(HANDLERS, "not created yet");
    let elected = async {
        tokio::select! {
            () = until_elected(context, status.clone()) => {}
            error = check_standby(context, client, status) => return Err(error),
        }
        Ok(cluster_info(context, client).await)
    };
    let cluster = tokio::select! {
        biased;
        () = context.stop.cancelled() => return Ok(None),
        reason = election.lost() => return Ok(Some(reason)),
        cluster = elected => cluster?,
    };
    let running = HandlerTasks::start(context, HandlerScope::Leader, &cluster, client, election.term())?;
    context.state.health.set_met(HANDLERS);
    context.state.health.set_met(LEADERSHIP);
    let grace = context.configuration.shutdown.drain.into();
    tokio::select! {
        biased;
        () = context.stop.cancelled() => {
            context.state.health.set_unmet("shutdown", "the controller is stopping");
            if running.stop(grace).await { Ok(None) } else { Err(ControllerError::Undrained) }
        }
        reason = election.lost() => {
            context.state.health.set_unmet(LEADERSHIP, reason.to_string());
            running.abandon(grace).await;
            Ok(Some(reason))
        }
    }
}

/// Waits until the API server responds and this process is a standby, and then builds each handler as a test, because a process that cannot
/// take over is not a useful standby. Completes only if a handler cannot be built, with the error.
async fn check_standby(
    context: &ControllerContext,
    client: &Client,
    mut status: watch::Receiver<ElectionStatus>,
) -> ControllerError {
    let mut until_standby = async || {
        let is_standby = |status: &ElectionStatus| matches!(status.role, Role::Standby { .. });
        status.wait_for(is_standby).await.map(drop).expect("the sender outlives every term");
    };
    let cluster = tokio::select! {
        biased;
        cluster = cluster_info(context, client) => cluster,
        // The lease was read, so an outage is over: ask again without the back-off.
        () = until_standby() => cluster_info(context, client).await,
    };
    until_standby().await;
    if let Err(error) = check_handlers(&context.registry, &context.configuration, &cluster) {
        return error;
    }
    context.state.health.set_met(HANDLERS);
    pending().await
}

/// Reads the API versions and the id of the cluster, and repeats that until the API server answers.
pub(super) async fn cluster_info(context: &ControllerContext, client: &Client) -> ClusterInfo {
    let cluster = until_success(
        DISCOVERY_TIMEOUT,
        || async { Ok(ClusterInfo::read(&context.configuration, client).await?) },
        |attempt, wait_ms, error| {
            warn!(attempt, wait_ms, error, "a request to the API server failed");
            context.state.health.set_unmet(API_SERVER, error);
        },
    )
    .await;
    context.state.health.set_met(API_SERVER);
    cluster
}

/// Completes when this process is the leader, or when there is no leader election. Until then, updates two readiness conditions: those of
/// the leadership and of the API server are met in a standby that knows the leader.
async fn until_elected(context: &ControllerContext, mut status: watch::Receiver<ElectionStatus>) {
    context
        .state
        .health
        .set_unmet(LEADERSHIP, "the lease is not read yet, or was created less than its duration ago");
    loop {
        match &*status.borrow_and_update() {
            ElectionStatus { role: Role::Leader | Role::Unopposed, .. } => break,
            ElectionStatus { last_error: Some(last_error), .. } => {
                context.state.health.set_unmet(LEADERSHIP, last_error);
            }
            ElectionStatus { role: Role::Standby { .. }, .. } => {
                context.state.health.set_met(API_SERVER);
                context.state.health.set_met(LEADERSHIP);
            }
            ElectionStatus { role: Role::Candidate | Role::Ended(_), .. } => {}
        }
        status.changed().await.expect("the sender outlives every term");
    }
    context.state.health.set_unmet(LEADERSHIP, "taking over");
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use async_trait::async_trait;
    use http::{Request, Response, StatusCode};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use parking_lot::Mutex;
    use serde_json::json;
    use staffetta_handler::{
        Action, HandlerError, Registration, Registry, ResourceEventHandler, Setup, SetupError, Source,
        TriggerSender,
    };

    use super::*;
    use crate::base::config::{self, Configuration, FileSchema};
    use crate::control::controller::Controller;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/relay/leases/staffetta";

    struct Idle;

    impl ResourceEventHandler<Pod> for Idle {
        type Error = Infallible;
    }

    /// An API server at which another process is the leader. It responds to the request number `failing` for its API groups with an
    /// error, after a delay of 20 s.
    fn server(failing: usize) -> Client {
        let asked = AtomicUsize::new(0);
        let server = move |request: Request<Body>| {
            let fails = request.uri().path() == "/apis" && asked.fetch_add(1, Ordering::Relaxed) == failing;
            let answer = match request.uri().path() {
                "/apis" => Some(json!({ "groups": [] })),
                LEASE => Some(json!({
                    "metadata": { "resourceVersion": "1" },
                    "spec": { "holderIdentity": "first", "leaseDurationSeconds": 3600 },
                })),
                _ => None,
            };
            async move {
                if fails {
                    tokio::time::sleep(Duration::from_secs(20)).await;
                    let status = StatusCode::INTERNAL_SERVER_ERROR;
                    return Ok(Response::builder().status(status).body(Body::empty()).unwrap());
                }
                let Some(answer) = answer else { return pending().await };
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        };
        Client::new(tower::service_fn(server), "default")
    }

    /// Starts a controller with the handler `idle`, which runs in every replica if `in_every_replica` is set.
    async fn controller(in_every_replica: bool, server: Client) -> Controller {
        controller_of(in_every_replica, |_| Ok(Registration::new(Idle).on::<Pod>().erase()), server).await
    }

    /// The same with the handler that `create` returns.
    async fn controller_of(
        in_every_replica: bool,
        create: impl Fn(&Setup) -> Result<Registration, SetupError> + Send + Sync + 'static,
        server: Client,
    ) -> Controller {
        let mut registry = Registry::default();
        config::register(&mut registry);
        registry.handler("idle", "Does nothing.", create).in_every_replica = in_every_replica;
        let schema = FileSchema::assemble(&registry).unwrap();
        let variables = [
            ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS".into(), "[\"idle\"]".into()),
            ("STAFFETTA_KUBERNETES__CLUSTER_ID".into(), "east".into()),
            ("STAFFETTA_ADMIN__LISTEN".into(), "127.0.0.1:0".into()),
            ("STAFFETTA_LEADER_ELECTION__NAMESPACE".into(), "relay".into()),
        ];
        let configuration = Configuration::load(&schema, None, variables).unwrap();
        Controller::start(registry, &configuration, server).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_standby_does_not_wait_for_a_request_from_before_it_knew_the_leader() {
        let mut controller = controller(false, server(0)).await;
        tokio::time::timeout(DISCOVERY_TIMEOUT / 2, controller.ready()).await.unwrap().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_for_the_handlers_of_every_replica_that_failed_and_was_repeated_leaves_the_process_ready()
    {
        let controller = controller(true, server(1)).await;
        let is_met = || {
            let conditions = controller.health.conditions();
            conditions.iter().any(|condition| condition.name == API_SERVER && condition.reason.is_none())
        };
        for (seconds, expected) in [(10, true), (10, false), (10, true)] {
            tokio::time::sleep(Duration::from_secs(seconds) + Duration::from_millis(10)).await;
            assert_eq!(is_met(), expected);
        }
    }

    /// A handler that never ends, or does nothing.
    struct Hangs(bool);

    impl ResourceEventHandler<Pod> for Hangs {
        type Error = Infallible;

        async fn on_added(&self, _: &Arc<Pod>) -> Result<Action, Infallible> {
            if self.0 { pending().await } else { Ok(Action::done()) }
        }
    }

    /// A source that holds something, as those of virtual nodes hold Leases, until it is released.
    struct Holds(Arc<AtomicBool>);

    #[async_trait]
    impl Source for Holds {
        async fn run(&self, _: TriggerSender) -> Result<(), HandlerError> {
            pending().await
        }

        async fn release(&self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }

    /// An API server with one pod and a lease that nobody holds. It adds the holder in each write of the lease to `holders`.
    fn cluster(holders: &Arc<Mutex<Vec<String>>>) -> Client {
        let holders = Arc::clone(holders);
        let server = move |request: Request<Body>| {
            let (holders, path) = (Arc::clone(&holders), request.uri().path().to_owned());
            async move {
                let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"));
                let lease = |version: usize, holder: &str| {
                    json!({ "metadata": { "name": "staffetta", "resourceVersion": version.to_string() },
                        "spec": { "holderIdentity": holder, "renewTime": "2026-01-01T00:00:00.000000Z" } })
                };
                let answer = match path.as_str() {
                    _ if watches => return pending().await,
                    "/apis" => json!({ "groups": [] }),
                    LEASE if request.method() == http::Method::PATCH => {
                        let body = request.into_body().collect_bytes().await.unwrap();
                        let update: serde_json::Value = serde_json::from_slice(&body).unwrap();
                        let holder = update["spec"]["holderIdentity"].as_str().unwrap().to_owned();
                        let mut holders = holders.lock();
                        holders.push(holder.clone());
                        lease(holders.len() + 1, &holder)
                    }
                    LEASE => lease(1, ""),
                    "/api/v1/pods" => {
                        json!({ "metadata": { "resourceVersion": "1" }, "items": [{ "metadata": {
                        "namespace": "shop", "name": "web", "uid": "u1", "resourceVersion": "1" } }] })
                    }
                    _ => return pending().await,
                };
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        };
        Client::new(tower::service_fn(server), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_released_only_if_no_handler_can_act_any_more() {
        for hangs in [false, true] {
            let holders = Arc::<Mutex<Vec<String>>>::default();
            let held = Arc::new(AtomicBool::new(true));
            let source = Holds(Arc::clone(&held));
            let registration =
                Mutex::new(Some(Registration::new(Hangs(hangs)).on::<Pod>().source(source).erase()));
            let queued = Duration::from_secs(10);
            let create = move |_: &Setup| Ok(registration.lock().take().expect("it is created once"));
            let mut controller = controller_of(false, create, cluster(&holders)).await;
            controller.ready().await.unwrap();
            tokio::time::sleep(queued).await;
            let ended = controller.stop().await;
            assert_eq!(ended.is_err(), hangs, "{ended:?}");
            let holders = holders.lock();
            assert!(!holders.is_empty(), "it leads");
            assert_eq!(holders.last().unwrap().is_empty(), !hangs, "{holders:?}");
            assert_eq!(held.load(Ordering::SeqCst), hangs, "so is what its sources hold");
        }
    }
}
