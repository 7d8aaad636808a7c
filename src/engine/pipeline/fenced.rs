//! The wrapper of a chain that runs the handler only during the leadership term.

use std::pin::pin;

use staffetta_handler::{Action, Context, EventHandler, HandlerError, Message};
use tracing::{Instrument, info_span};

use crate::engine::term::Term;

/// A wrapper that runs an invocation of the handler only while the leadership term is active (fencing). The deadline of the term is checked
/// before each poll, so that a handler that was stopped between two calls of a driver makes no further call.
///
/// If the term ends during an invocation, that is not a failure of the handler: it is neither reported nor counted, and the event stays
/// unhandled.
pub struct Fenced<H> {
    inner: H,
    term: Term,
}

impl<H> Fenced<H> {
    /// Wraps `inner` so that it runs only while `term` is active.
    pub fn new(inner: H, term: Term) -> Self {
        Self { inner, term }
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for Fenced<H> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<Action, HandlerError> {
        // Pinned here, because an argument of an `async fn` takes up twice its size in the future of every message.
        let span = info_span!("attempt", failures = context.attempts());
        let result = self.term.run(pin!(self.inner.handle(event, context).instrument(span))).await;
        match result {
            Ok(result) if result.is_ok() || self.term.is_active() => result,
            _ => Ok(Action::interrupted()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use parking_lot::Mutex;
    use staffetta_handler::testing::{Fault, NoMetrics, pod};
    use staffetta_handler::{
        AnyEvent, Async, BackoffPolicy, Event, Failure, Failures, LogExceptions, OrderingKey, Report,
    };

    use super::*;
    use staffetta_handler::BootTime;

    /// A handler that calls a driver twice, one second apart, and then fails.
    struct TwoCalls(Arc<AtomicUsize>);

    impl EventHandler<AnyEvent> for TwoCalls {
        async fn handle(&self, _: &AnyEvent, _: &Context<'_>) -> Result<Action, HandlerError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Fault::permanent("refused").into())
        }
    }

    #[derive(Default)]
    struct Reported(Mutex<Vec<String>>);

    impl Report<AnyEvent> for Reported {
        fn failed(&self, _: &AnyEvent, error: &dyn Failure, _: Duration, _: &mut Failures) {
            self.0.lock().push(error.to_string());
        }
    }

    /// A failed event is not handled again in these tests.
    const RESYNC: BackoffPolicy =
        BackoffPolicy::unlimited(Duration::from_secs(3600), Duration::from_secs(3600));

    type Queues = Async<AnyEvent, LogExceptions<Fenced<TwoCalls>, AnyEvent>>;

    /// Returns queues of a handler that calls a driver twice, the number of its calls, and its reported failures.
    fn queues(term: &Term) -> (Queues, Arc<AtomicUsize>, Arc<Reported>) {
        let (calls, failures) = (Arc::<AtomicUsize>::default(), Arc::<Reported>::default());
        let link = Fenced::new(TwoCalls(Arc::clone(&calls)), term.clone());
        let chain = link.log_exceptions(Arc::clone(&failures) as _, RESYNC);
        let key = |event: &AnyEvent| OrderingKey::of(event.uid());
        (Async::new(chain, false, key, Arc::new(NoMetrics)), calls, failures)
    }

    fn event() -> AnyEvent {
        Event::Added(Arc::new(pod("default", "web"))).erase()
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_handler_makes_no_further_call_of_a_driver() {
        let term = Term::pending();
        let (queues, calls, failures) = queues(&term);
        let second = || tokio::time::sleep(Duration::from_secs(2));
        queues.push(event());
        second().await;
        assert_eq!(calls.load(Ordering::Relaxed), 0, "the term has not begun");
        assert!(
            queues.halt(Duration::from_secs(1)).await,
            "a refused invocation does not delay the shutdown"
        );

        let term = Term::pending();
        let (queues, calls, reported) = self::queues(&term);
        term.extend(BootTime::now() + Duration::from_secs(3600));
        queues.push(event());
        second().await;
        assert_eq!((calls.load(Ordering::Relaxed), reported.0.lock().len()), (2, 1));

        queues.push(event());
        tokio::task::yield_now().await;
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        term.extend(BootTime::now());
        second().await;
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        assert!(queues.halt(Duration::from_secs(1)).await);
        assert_eq!(
            (failures.0.lock().len(), reported.0.lock().len()),
            (0, 1),
            "the stopped invocation is not reported"
        );
    }
}
