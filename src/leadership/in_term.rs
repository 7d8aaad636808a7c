//! The innermost link of a chain: nothing is handled by who does not lead.

use staffetta_handler::{EventHandler, HandlerError, Message, Turn};

use super::term::Term;

/// Lets an invocation go on only while the term holds: before each step of it the deadline is looked at, and one that is
/// late ends with [`NotLeading`](super::NotLeading). So a handler that was stopped between two calls of a driver makes no further one.
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
        self.term.during(self.inner.handle(event, turn)).await?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use staffetta_handler::testing::pod;
    use staffetta_handler::{AnyEvent, Event};

    use super::super::clock::BootTime;
    use super::*;

    /// Calls a driver twice, and waits between.
    struct Driven(Arc<AtomicUsize>);

    impl EventHandler<AnyEvent> for Driven {
        async fn handle(&self, _: &AnyEvent, _: &Turn<'_>) -> Result<(), HandlerError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_late_handler_calls_no_driver_not_even_between_two_calls() {
        let (term, calls) = (Term::not_begun(), Arc::new(AtomicUsize::new(0)));
        let link = Arc::new(InTerm::new(Driven(Arc::clone(&calls)), term.clone()));
        let handle = || {
            let link = Arc::clone(&link);
            let event = Event::Added(Arc::new(pod("default", "web"))).erase();
            tokio::spawn(async move { link.handle(&event, &Turn::alone()).await })
        };
        let refused = handle().await.unwrap().unwrap_err();
        assert_eq!(refused.to_string(), "refused: this process does not hold the lease of the leader");
        assert!(!refused.transient());
        assert_eq!(calls.load(Ordering::Relaxed), 0);

        term.lasts_until(BootTime::now() + Duration::from_secs(3600));
        handle().await.unwrap().unwrap();
        assert_eq!(calls.load(Ordering::Relaxed), 2);

        let paused = handle();
        tokio::task::yield_now().await;
        assert_eq!(calls.load(Ordering::Relaxed), 3);
        term.lasts_until(BootTime::now());
        paused.await.unwrap().unwrap_err();
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }
}
