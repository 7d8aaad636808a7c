//! The innermost wrapper of a chain: it keeps the requests of failed attempts, and reports successes that changed something.

use std::sync::Arc;

use staffetta_driver::RequestLog;
use staffetta_handler::{AnyEvent, Context, EventHandler, HandlerError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A callback for an event that was handled successfully. It must not block.
pub(super) type OnHandled = Box<dyn Fn(&AnyEvent, &Context<'_>) + Send + Sync>;

/// The maximum number of objects of one handler whose requests are kept.
const MAX_KEPT: usize = 1000;

/// The wrapper of a handler that collects the requests which drivers and the client of the Kubernetes API send during each attempt. The
/// last requests of an object stay attached to its queue entry until it is handled successfully.
pub struct Recorded<H> {
    inner: H,
    /// The permits that limit the number of objects whose requests are kept to [`MAX_KEPT`].
    permits: Arc<Semaphore>,
    on_handled: Option<OnHandled>,
}

/// The requests of the attempts to handle an object that is not handled successfully yet.
pub(crate) struct KeptRequests {
    pub(crate) log: Arc<RequestLog>,
    _permit: OwnedSemaphorePermit,
}

impl<H> Recorded<H> {
    /// Wraps `inner`. `on_handled`, if it is not `None`, is called after each success in which a request changed something.
    pub(super) fn new(inner: H, on_handled: Option<OnHandled>) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(MAX_KEPT)), on_handled }
    }
}

impl<H: EventHandler<AnyEvent>> EventHandler<AnyEvent> for Recorded<H> {
    async fn handle(&self, event: &AnyEvent, context: &Context<'_>) -> Result<(), HandlerError> {
        let kept = context.attachment().and_then(|kept| kept.downcast::<KeptRequests>().ok());
        let log = kept.as_ref().map(|kept| Arc::clone(&kept.log)).unwrap_or_default();
        let permits = kept.is_none().then_some(&self.permits);
        let mut attempt = Attempt { log: &log, permits, context };
        let result = log.collect(self.inner.handle(event, context)).await;
        if result.is_ok() {
            attempt.permits = None;
            if let Some(on_handled) = self.on_handled.as_ref().filter(|_| log.changed_something()) {
                on_handled(event, context);
            }
        }
        result
    }
}

/// A guard for one attempt to handle an event. When dropped, also after a panic or a timeout, it keeps the requests of the attempt, unless
/// the attempt succeeded, or those of [`MAX_KEPT`] other objects are kept.
struct Attempt<'a> {
    log: &'a Arc<RequestLog>,
    /// The permits to keep requests; `None` if the requests are kept already, or the attempt succeeded.
    permits: Option<&'a Arc<Semaphore>>,
    context: &'a Context<'a>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        let permits = self.permits.filter(|_| !self.log.is_empty());
        if let Some(permit) = permits.and_then(|permits| Arc::clone(permits).try_acquire_owned().ok()) {
            self.context.attach(Arc::new(KeptRequests { log: Arc::clone(self.log), _permit: permit }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use staffetta_driver::RequestRecord;
    use staffetta_handler::Event;
    use staffetta_handler::testing::{Fault, pod};

    use super::*;

    /// A handler that sends a request with the next of these statuses. It fails after an error, and hangs after `None`.
    struct Sends(Mutex<Vec<Option<u16>>>);

    impl EventHandler<AnyEvent> for Sends {
        async fn handle(&self, _: &AnyEvent, _: &Context<'_>) -> Result<(), HandlerError> {
            let status = self.0.lock().unwrap().remove(0);
            let mut request = RequestRecord::start("POST", "/ports", true);
            let Some(status) = status else { std::future::pending().await };
            request.set_status(status);
            if status < 400 { Ok(()) } else { Err(Fault::transient("busy").into()) }
        }
    }

    fn event() -> AnyEvent {
        Event::Added(Arc::new(pod("default", "web"))).erase()
    }

    fn kept(context: &Context<'_>) -> Option<Vec<Option<u16>>> {
        let kept = context.attachment()?.downcast::<KeptRequests>().ok()?;
        Some(kept.log.requests().into_iter().map(|request| request.status).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_failed_and_hanging_attempts_are_kept_and_those_of_successes_are_not() {
        let recorded = Recorded::new(Sends(Mutex::new(vec![Some(201), Some(503), None])), None);
        let (event, context) = (event(), Context::detached());
        recorded.handle(&event, &context).await.expect("it succeeds");
        assert_eq!(kept(&context), None);
        recorded.handle(&event, &context).await.expect_err("it fails");
        assert_eq!(kept(&context), Some(vec![Some(503)]));
        let hanging = tokio::time::timeout(Duration::from_secs(1), recorded.handle(&event, &context)).await;
        hanging.expect_err("it hangs");
        assert_eq!(kept(&context), Some(vec![Some(503), None]));
    }

    #[tokio::test]
    async fn the_requests_of_a_bounded_number_of_objects_are_kept() {
        let recorded = Recorded::new(Sends(Mutex::new(vec![Some(503); MAX_KEPT + 2])), None);
        let (event, mut contexts) = (event(), Vec::new());
        for _ in 0..=MAX_KEPT {
            let context = Context::detached();
            recorded.handle(&event, &context).await.expect_err("it fails");
            contexts.push(context);
        }
        assert!(kept(&contexts[MAX_KEPT - 1]).is_some() && kept(&contexts[MAX_KEPT]).is_none());
        contexts.remove(0);
        recorded.handle(&event, &contexts[MAX_KEPT - 1]).await.expect_err("it fails");
        assert!(kept(&contexts[MAX_KEPT - 1]).is_some(), "one object less has failed");
    }

    #[tokio::test]
    async fn a_success_is_reported_if_a_request_of_its_attempts_changed_something() {
        let told = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&told);
        let on_handled: OnHandled = Box::new(move |_, _| *counted.lock().unwrap() += 1);
        let recorded = Recorded::new(Sends(Mutex::new(vec![Some(503), Some(201)])), Some(on_handled));
        let (event, context) = (event(), Context::detached());
        recorded.handle(&event, &context).await.expect_err("it fails");
        assert_eq!(*told.lock().unwrap(), 0);
        recorded.handle(&event, &context).await.expect("it succeeds");
        assert_eq!(*told.lock().unwrap(), 1);
    }
}
