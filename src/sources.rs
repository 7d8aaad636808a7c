//! Runs the sources of the handlers: what no watch tells of, into the same chains.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use staffetta_handler::{AnyEvent, BackoffPolicy, EventHandler, HandlerError, Outlet, Turn, causes};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::warn;

use crate::pipeline::Pipeline;

/// The waits before a source that ended is started again.
const BACKOFF: BackoffPolicy =
    BackoffPolicy { initial: Duration::from_secs(1), max: Duration::from_secs(60), limit: None };

/// A source that ran so long is started again as if it had never ended before.
const WELL: Duration = Duration::from_secs(120);

/// Runs each source of each handler, for ever: until `tasks` is shut down.
pub(crate) fn start(tasks: &mut JoinSet<()>, pipeline: &Arc<Pipeline>) {
    for relay in 0..pipeline.relays().len() {
        for source in 0..pipeline.relays()[relay].sources.len() {
            tasks.spawn(run(Arc::clone(pipeline), relay, source));
        }
    }
}

async fn run(pipeline: Arc<Pipeline>, relay: usize, source: usize) {
    let relay = &pipeline.relays()[relay];
    let mut backoff = BACKOFF.start();
    loop {
        let (began, outlet) = (Instant::now(), outlet(&pipeline));
        let ended = AssertUnwindSafe(relay.sources[source].run(outlet)).catch_unwind().await;
        if began.elapsed() >= WELL {
            backoff = BACKOFF.start();
        }
        let wait = backoff.next_wait(None).unwrap_or(BACKOFF.max);
        let error = match ended {
            Ok(Ok(())) => "it ended by itself".to_owned(),
            Ok(Err(error)) => causes(&*error),
            Err(_) => "it panicked".to_owned(),
        };
        let attempt = backoff.attempts();
        warn!(
            handler = relay.name,
            attempt,
            wait_ms = wait.as_millis(),
            error,
            "a source ended and is started again"
        );
        tokio::time::sleep(wait).await;
    }
}

/// The way into the queues. It holds the pipeline weakly: what a source leaves behind keeps no queue open.
fn outlet(pipeline: &Arc<Pipeline>) -> Outlet {
    let pipeline = Arc::downgrade(pipeline);
    Outlet::new(move |event: AnyEvent| {
        let Some(pipeline) = pipeline.upgrade() else { return };
        // The dispatcher and the queues take in without waiting: the first poll is the last.
        let handed: Option<Result<(), HandlerError>> = pipeline.handle(&event, &Turn::alone()).now_or_never();
        debug_assert!(matches!(handed, Some(Ok(()))), "the queues take everything in at once");
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::Node;
    use staffetta_handler::testing::Fault;
    use staffetta_handler::{Identity, Registration, Signal, SignalHandler, Source};

    use super::*;
    use crate::observers::LogOnly;
    use crate::pipeline::{self, Policy};

    #[derive(Clone)]
    struct Beat(Identity);

    impl Signal for Beat {
        fn identity(&self) -> &Identity {
            &self.0
        }
    }

    /// Tells once and ends, each time in another way.
    struct Fickle(AtomicU32);

    impl Source for Fickle {
        async fn run(&self, outlet: Outlet) -> Result<(), HandlerError> {
            outlet.signal(Beat(Identity::of::<Node>(None, "n1".into(), "n1".into())));
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => Ok(()),
                1 => Err(Fault::permanent("as ordered").into()),
                2 => panic!("as ordered"),
                _ => std::future::pending().await,
            }
        }
    }

    struct Count(Arc<AtomicU32>);

    impl SignalHandler<Beat> for Count {
        type Error = std::convert::Infallible;

        async fn on_signal(&self, _: &Beat) -> Result<(), Self::Error> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_source_that_ends_fails_or_panics_is_started_again() {
        let heard = Arc::<AtomicU32>::default();
        let handler = Registration::new(Count(Arc::clone(&heard)))
            .on_signal::<Beat>()
            .source(Fickle(AtomicU32::new(0)));
        let handlers = vec![("beat".to_owned(), handler.erase())];
        let pipeline = Arc::new(pipeline::build(handlers, &Policy::default(), &LogOnly));
        assert!(pipeline.kinds().is_empty());
        let mut tasks = JoinSet::new();
        start(&mut tasks, &pipeline);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(heard.load(Ordering::SeqCst), 4);
        tasks.shutdown().await;
        assert!(pipeline.drain(Duration::from_secs(1)).await);
    }
}
