//! One candidacy: from standing by to the end of the term, with everything that works in it.

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use staffetta_handler::{HandlerError, Notes, Setup, bounded, causes};
use tokio::sync::watch;
use tracing::{info, warn};

use super::running::{BACKOFF, Running};
use super::{API_SERVER, ControllerError, HANDLERS, LEADERSHIP, Work};
use crate::events::{self, Recorder, Recording};
use crate::leadership::{Leadership, Loss, Role, Status, Term};
use crate::metrics::Counted;
use crate::pipeline::{self, Pipeline, Policy};
use crate::report::Reports;
use crate::trial::{self, Served};
use crate::{client, connect};

/// How long the API server may take to say what it has.
const ANSWER: Duration = Duration::from_secs(30);

/// What works, or is to work, for one term. Its client and its chains are bound to that term, so that what is left of it is
/// refused for ever, however often this process leads afterwards.
pub(super) struct Candidacy<'w> {
    work: &'w Work,
    leadership: Leadership,
    /// Behind the fence of the term.
    client: Client,
}

/// How a candidacy ended.
pub(super) enum End {
    /// The program was told to stop.
    Stopped,
    /// The lease was lost.
    Deposed(Loss),
}

impl<'w> Candidacy<'w> {
    /// The `term`th of this process. It has a name of its own, so that the lease of the one before is waited out like
    /// anybody's: what that has sent may still arrive.
    pub(super) fn new(work: &'w Work, term: u64) -> Self {
        let figures = &work.state.figures;
        let wrapped =
            |term: &Term| client::wrap(work.client.clone(), &figures.requests, &figures.silence, term);
        let identity = if term == 1 { work.identity.clone() } else { format!("{}-{term}", work.identity) };
        let election = &work.configuration.leader_election;
        let leadership = Leadership::start(election, &identity, wrapped(&Term::for_ever()), &work.status);
        let client = wrapped(leadership.term());
        Self { work, leadership, client }
    }

    /// Ends when the program is told to stop, when the lease is lost, or when it cannot work.
    pub(super) async fn run(mut self) -> Result<End, ControllerError> {
        let end = self.stand_by_and_lead().await;
        // What did not end in time may still act: the lease keeps others away until it has run out.
        if !matches!(end, Err(ControllerError::Undrained)) {
            self.leadership.release().await;
        }
        end
    }

    async fn stand_by_and_lead(&mut self) -> Result<End, ControllerError> {
        let (work, client) = (self.work, self.client.clone());
        let status = self.leadership.subscribe();
        work.health.waits(HANDLERS, "not made yet");
        let elected = async {
            // Who is elected has been answered, and makes the handlers in earnest.
            tokio::select! {
                () = elected(work, status.clone()) => {}
                error = cannot_lead(work, &client, status) => return Err(error),
            }
            Ok(served(work, &client).await)
        };
        let served = tokio::select! {
            biased;
            () = work.stop.cancelled() => return Ok(End::Stopped),
            loss = self.leadership.lost() => return Ok(End::Deposed(loss)),
            served = elected => served?,
        };
        let running = self.start(served)?;
        work.health.is_well(HANDLERS);
        work.health.is_well(API_SERVER);
        work.health.is_well(LEADERSHIP);
        let grace = work.configuration.shutdown.drain.into();
        tokio::select! {
            biased;
            () = work.stop.cancelled() => {
                work.health.waits("shutdown", "the program was told to stop");
                if running.stop(grace).await { Ok(End::Stopped) } else { Err(ControllerError::Undrained) }
            }
            loss = self.leadership.lost() => {
                work.health.waits(LEADERSHIP, loss.to_string());
                for name in running.abandon(grace).await {
                    work.health.forget(&name);
                }
                Ok(End::Deposed(loss))
            }
        }
    }

    /// Starts all that works for this term.
    fn start(&self, served: HashSet<String>) -> Result<Running, ControllerError> {
        let Self { work, client, .. } = self;
        let (recorder, recording) = self.record(&served).unzip();
        let setup = work.registry.setup(client.clone(), work.configuration.value.clone(), served);
        let setup = match &recorder {
            Some(recorder) => setup.telling(Notes::new(recorder.clone())),
            None => setup,
        };
        setup.share(Arc::clone(&work.state.figures.cloud_requests));
        setup.share(Arc::new(work.state.figures.virtual_nodes.clone()));
        self.lend(&setup)?;
        let pipeline = Arc::new(self.pipeline(&setup, Reports::new(recorder))?);
        let running = Running::new(work, client.clone(), pipeline, recording);
        Ok(running.prepare(setup.into_checks()).watch())
    }

    /// Gives drivers that act by themselves what they need for it: the term for which they may, and who tells of them.
    fn lend(&self, setup: &Setup) -> Result<(), ControllerError> {
        let lent = setup.shared(|| Ok(self.leadership.term().clone())).map(drop);
        let lent = lent.and_then(|()| setup.shared(|| Ok(self.work.state.figures.pools.clone())).map(drop));
        lent.map_err(|source| ControllerError::Handler { handler: "pools".to_owned(), source })
    }

    /// Starts to write Kubernetes Events, where they are wanted and the server takes them.
    fn record(&self, served: &HashSet<String>) -> Option<(Recorder, Recording)> {
        if !self.work.configuration.events.enabled {
            return None;
        }
        if !served.contains(events::API_VERSION) {
            warn!(
                api_version = events::API_VERSION,
                "the API server does not serve Kubernetes Events; failures go to the log alone"
            );
            return None;
        }
        Some(events::record(self.client.clone(), self.work.identity.clone(), Arc::clone(&self.work.events)))
    }

    fn pipeline(&self, setup: &Setup, reports: Reports) -> Result<Pipeline, ControllerError> {
        let enabled = &self.work.configuration.kubernetes.enabled_handlers;
        let handlers = enabled.iter().map(|name| match self.work.registry.make(name, setup) {
            Ok(registration) => Ok((name.clone(), registration)),
            Err(source) => Err(ControllerError::Handler { handler: name.clone(), source }),
        });
        let handlers = handlers.collect::<Result<Vec<_>, _>>()?;
        info!(handlers = enabled.join(","), "the handlers are made");
        let observers = Counted::new(reports, &self.work.state.figures);
        let policy =
            Policy { term: self.leadership.term().clone(), ..Policy::from(&self.work.configuration.relay) };
        Ok(pipeline::build(handlers, &policy, &observers))
    }
}

/// Says why the API server does not answer, until it does. Then, if this process stands by, makes each handler for a trial: one
/// that could not lead must not be taken for a replica. Ends only with the reason why it could not.
async fn cannot_lead(work: &Work, client: &Client, mut status: watch::Receiver<Status>) -> ControllerError {
    let mut stands_by = async || {
        let stands_by = |status: &Status| matches!(status.role, Role::Standby { .. });
        status.wait_for(stands_by).await.map(drop).expect("the sender outlives every term");
    };
    let served = tokio::select! {
        biased;
        served = served(work, client) => served,
        // There is an answer about the lease: the waits that an outage has drawn out are over with it.
        () = stands_by() => served(work, client).await,
    };
    work.health.is_well(API_SERVER);
    stands_by().await;
    let tried = trial::handlers(&work.registry, &work.configuration, Served::These(served));
    if let Err(error) = tried {
        return error.into();
    }
    work.health.is_well(HANDLERS);
    pending().await
}

/// The API versions of the server, as soon as it answers.
async fn served(work: &Work, client: &Client) -> HashSet<String> {
    let mut backoff = BACKOFF.start();
    loop {
        let asked = async { connect::api_versions(client).await.map_err(HandlerError::from) };
        let error = match bounded(ANSWER, asked).await {
            Ok(served) => return served,
            Err(error) => error,
        };
        let wait = backoff.next_wait(error.retry_after()).unwrap_or(BACKOFF.max);
        let attempt = backoff.attempts();
        let error = causes(&*error);
        warn!(attempt, wait_ms = wait.as_millis(), error, "the API server does not answer");
        work.health.waits(API_SERVER, error);
        tokio::time::sleep(wait).await;
    }
}

/// Ends when this process leads. One that stands by, and sees for whom, is ready.
async fn elected(work: &Work, mut status: watch::Receiver<Status>) {
    work.health.waits(LEADERSHIP, "the lease was not read yet");
    loop {
        match &*status.borrow_and_update() {
            Status { role: Role::Leader | Role::Unopposed, .. } => break,
            Status { trouble: Some(trouble), .. } => work.health.waits(LEADERSHIP, trouble),
            Status { role: Role::Standby { .. }, .. } => {
                work.health.is_well(API_SERVER);
                work.health.is_well(LEADERSHIP);
            }
            Status { role: Role::Candidate | Role::Ended(_), .. } => {}
        }
        status.changed().await.expect("the sender outlives every term");
    }
    work.health.waits(LEADERSHIP, "taking over");
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicBool, Ordering};

    use http::{Request, Response};
    use k8s_openapi::api::core::v1::Pod;
    use kube::client::Body;
    use serde_json::json;
    use staffetta_handler::{Registration, Registry, ResourceEventHandler};

    use super::*;
    use crate::config::{self, Configuration, FileSchema};
    use crate::controller::Controller;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/relay/leases/staffetta";

    struct Idle;

    impl ResourceEventHandler<Pod> for Idle {
        type Error = Infallible;
    }

    /// An API server at which somebody else leads. It answers all but the first question about what it has.
    fn server() -> Client {
        let asked = AtomicBool::new(false);
        let server = move |request: Request<Body>| {
            let answer = match request.uri().path() {
                "/apis" => asked.swap(true, Ordering::Relaxed).then(|| json!({ "groups": [] })),
                LEASE => Some(json!({
                    "metadata": { "resourceVersion": "1" },
                    "spec": { "holderIdentity": "first", "leaseDurationSeconds": 3600 },
                })),
                _ => None,
            };
            async move {
                let Some(answer) = answer else { return pending().await };
                Ok::<_, Infallible>(Response::new(Body::from(answer.to_string().into_bytes())))
            }
        };
        Client::new(tower::service_fn(server), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn who_stands_by_waits_for_no_answer_from_before_it_saw_for_whom() {
        let mut registry = Registry::default();
        config::register(&mut registry);
        registry.handler("idle", "Does nothing.", |_| Ok(Registration::new(Idle).on::<Pod>().erase()));
        let schema = FileSchema::assemble(&registry).unwrap();
        let variables = [
            ("STAFFETTA_KUBERNETES__ENABLED_HANDLERS".into(), "[\"idle\"]".into()),
            ("STAFFETTA_ADMIN__LISTEN".into(), "127.0.0.1:0".into()),
            ("STAFFETTA_LEADER_ELECTION__NAMESPACE".into(), "relay".into()),
        ];
        let configuration = Configuration::load(&schema, None, variables).unwrap();
        let controller = Controller::start(registry, &configuration, server()).await.unwrap();
        tokio::time::timeout(ANSWER / 2, controller.ready()).await.unwrap();
    }
}
