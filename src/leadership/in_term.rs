//! The innermost link of a chain: nothing is handled by who does not lead.

use staffetta_handler::{EventHandler, HandlerError, Message, Turn};

use super::term::Term;

/// Lets an invocation go on only while the term holds: before each step of it the deadline is looked at, and one that is
/// late ends where it stands. So a handler that was stopped between two calls of a driver makes no further one.
///
/// That is no failure of the handler, and neither is what it fails with afterwards: nobody is told, and nothing is repeated.
/// The message waits for the end of its queue, which comes with that of the term.
pub struct InTerm<H> {
    inner: H,
    term: Term,
}

impl<H> InTerm<H> {
    /// Lets `inner` work while `term` holds.
    pub fn new(inner: H, term: Term) -> Self {
        Self { inner, term }
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for InTerm<H> {
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        match self.term.during(self.inner.handle(event, turn)).await {
            Ok(result) if result.is_ok() || self.term.holds() => result,
            _ => {
                turn.shutdown().await;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use staffetta_handler::testing::{Fault, pod};
    use staffetta_handler::{
        AnyEvent, Async, Compose, Event, LogExceptions, OrderingKey, QueuePolicy, Report,
    };

    use super::super::clock::BootTime;
    use super::*;

    /// Calls a driver twice, and waits between. After the second call it fails.
    struct Driven(Arc<AtomicUsize>);

    impl EventHandler<AnyEvent> for Driven {
        async fn handle(&self, _: &AnyEvent, _: &Turn<'_>) -> Result<(), HandlerError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.0.fetch_add(1, Ordering::Relaxed);
            Err(Fault::permanent("refused").into())
        }
    }

    #[derive(Default)]
    struct Failures(Mutex<Vec<String>>);

    impl Report<AnyEvent> for Failures {
        fn failed(&self, _: &AnyEvent, error: &HandlerError, _: &Turn<'_>) {
            self.0.lock().unwrap().push(error.to_string());
        }
    }

    type Queues = Async<AnyEvent, LogExceptions<InTerm<Driven>, AnyEvent>>;

    /// The queues of such a handler with its calls and failures.
    fn queues(term: &Term) -> (Queues, Arc<AtomicUsize>, Arc<Failures>) {
        let (calls, failures) = (Arc::<AtomicUsize>::default(), Arc::<Failures>::default());
        let link = InTerm::new(Driven(Arc::clone(&calls)), term.clone());
        let chain = link.log_exceptions(Arc::clone(&failures) as _);
        let key = |event: &AnyEvent| OrderingKey::of(event.uid());
        (Async::new(chain, QueuePolicy::default(), key), calls, failures)
    }

    fn event() -> AnyEvent {
        Event::Added(Arc::new(pod("default", "web"))).erase()
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_handler_calls_no_driver_not_even_between_two_calls() {
        let term = Term::not_begun();
        let (queues, calls, failures) = queues(&term);
        let second = || tokio::time::sleep(Duration::from_secs(2));
        queues.push(event());
        second().await;
        assert_eq!(calls.load(Ordering::Relaxed), 0, "the term has not begun");
        assert!(queues.halt(Duration::from_secs(1)).await, "what was refused does not hold up the end");

        let term = Term::not_begun();
        let (queues, calls, told) = self::queues(&term);
        term.lasts_until(BootTime::now() + Duration::from_secs(3600));
        queues.push(event());
        second().await;
        assert_eq!((calls.load(Ordering::Relaxed), told.0.lock().unwrap().len()), (2, 1));

        queues.push(event());
        tokio::task::yield_now().await;
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        term.lasts_until(BootTime::now());
        second().await;
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        assert!(queues.halt(Duration::from_secs(1)).await);
        assert_eq!(
            (failures.0.lock().unwrap().len(), told.0.lock().unwrap().len()),
            (0, 1),
            "nobody is told"
        );
    }
}
