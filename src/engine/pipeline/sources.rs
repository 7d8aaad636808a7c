//! Runs the sources of the handlers. The triggers of a source pass through the same chains as watch events.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use staffetta_handler::{
    Action, AnyEvent, BackoffPolicy, Context, EventHandler, HandlerError, TriggerSender, causes,
};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use super::{HandlerChain, Pipeline};

/// The delays before a source that ended is started again.
const BACKOFF: BackoffPolicy = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(60));

/// The running time after which a source counts as stable, and its delays start again at the shortest one.
const STABLE: Duration = Duration::from_secs(120);

/// Runs each source (a task that sends triggers) of each handler in `tasks`, until `tasks` are shut down.
pub(crate) fn start(tasks: &mut JoinSet<()>, pipeline: &Arc<Pipeline>) {
    for handler in pipeline.handlers() {
        for source in 0..handler.registration.sources.len() {
            tasks.spawn(run(Arc::clone(handler), source, trigger_sender(pipeline)));
        }
    }
}

/// Waits until the operations that the sources of all handlers began in external systems have ended.
pub(crate) async fn drain(pipeline: &Pipeline) {
    let sources = pipeline.handlers().iter().flat_map(|handler| &handler.registration.sources);
    join_all(sources.map(|source| source.drain())).await;
}

/// Gives up what the sources of all handlers hold in Kubernetes, such as Leases. Call it when the sources and the handlers have ended.
pub(crate) async fn release(pipeline: &Pipeline) {
    let sources = pipeline.handlers().iter().flat_map(|handler| &handler.registration.sources);
    join_all(sources.map(|source| source.release())).await;
}

/// Runs the source with the index `source` of a handler, and starts it again when it ends, fails or panics.
async fn run(handler: Arc<HandlerChain>, source: usize, sender: TriggerSender) {
    let mut backoff = BACKOFF.start();
    loop {
        let started = Instant::now();
        let running = handler.registration.sources[source].run(sender.clone());
        let result = AssertUnwindSafe(running).catch_unwind().await;
        if started.elapsed() >= STABLE {
            backoff.reset();
        }
        let wait = backoff.delay(None);
        let error = match result {
            Ok(Ok(())) => "it ended unexpectedly".to_owned(),
            Ok(Err(error)) => causes(&*error),
            Err(_) => "it panicked".to_owned(),
        };
        let (handler, attempt, wait_ms) = (&handler.name, backoff.attempts(), wait.as_millis());
        warn!(handler, attempt, wait_ms, error, "a source ended and is restarted");
        tokio::time::sleep(wait).await;
    }
}

/// Returns a sender that queues triggers. The sender holds a weak reference, so that a remaining task of a source does not keep the
/// queues alive.
fn trigger_sender(pipeline: &Arc<Pipeline>) -> TriggerSender {
    let pipeline = Arc::downgrade(pipeline);
    TriggerSender::new(move |event: AnyEvent| {
        let Some(pipeline) = pipeline.upgrade() else { return };
        // The pipeline never waits, so the first poll completes.
        let result: Option<Result<Action, HandlerError>> =
            pipeline.handle(&event, &Context::detached()).now_or_never();
        debug_assert!(matches!(result, Some(Ok(_))), "the queues accept every event at once");
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::Node;
    use staffetta_handler::testing::Fault;
    use staffetta_handler::{Identity, Registration, Source, Trigger, TriggerHandler};

    use super::*;
    use crate::base::config::RelayOptions;
    use crate::engine::pipeline::{self, HandlerReports};
    use crate::engine::term::Term;

    #[derive(Clone)]
    struct Heartbeat(Identity);

    impl Trigger for Heartbeat {
        fn identity(&self) -> &Identity {
            &self.0
        }
    }

    /// A source that sends one trigger and ends, each time in a different way.
    struct Unstable(AtomicU32);

    #[async_trait::async_trait]
    impl Source for Unstable {
        async fn run(&self, sender: TriggerSender) -> Result<(), HandlerError> {
            sender.send(Heartbeat(Identity::of::<Node>(None, "n1".into(), "n1".into())));
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Ok(()),
                1 => Err(Fault::permanent("as ordered").into()),
                2 => panic!("as ordered"),
                _ => std::future::pending().await,
            }
        }
    }

    struct Count(Arc<AtomicU32>);

    impl TriggerHandler<Heartbeat> for Count {
        type Error = std::convert::Infallible;

        async fn on_trigger(&self, _: &Heartbeat) -> Result<Action, Self::Error> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Action::done())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_ends_fails_or_panics_is_restarted() {
        let received = Arc::<AtomicU32>::default();
        let handler = Registration::new(Count(Arc::clone(&received)))
            .on_trigger::<Heartbeat>()
            .source(Unstable(AtomicU32::new(0)));
        let handlers = vec![("heartbeat".to_owned(), handler.erase())];
        let pipeline = Arc::new(pipeline::build(
            handlers,
            &RelayOptions::default(),
            &Term::unlimited(),
            &HandlerReports::default(),
        ));
        assert!(pipeline.kinds().is_empty());
        let mut tasks = JoinSet::new();
        start(&mut tasks, &pipeline);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(received.load(Ordering::SeqCst), 4);
        tasks.shutdown().await;
        assert!(pipeline.drain(Duration::from_secs(1)).await);
    }
}
