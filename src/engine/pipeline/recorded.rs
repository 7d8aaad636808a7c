//! The outermost wrapper of a chain inside its queues: it keeps what the attempts of an event have in common, its trace and its requests,
//! and reports successes that changed something.

use std::pin::pin;
use std::sync::Arc;

use staffetta_driver::RequestLog;
use staffetta_handler::{Action, Context, EventHandler, HandlerError, Resolved};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::base::traces::{EventTrace, Traces};

/// A callback for an event that was handled successfully. It must not block.
pub(super) type OnHandled = Box<dyn Fn(&Resolved, &Context<'_>) + Send + Sync>;

/// The maximum number of objects of one handler whose requests are kept.
const MAX_KEPT: usize = 1000;

/// A wrapper that collects the requests which drivers and the client of the Kubernetes API send during each attempt, and traces the
/// attempts. Both stay with the queue entry of the object until it is handled successfully.
pub struct Recorded<H> {
    inner: H,
    /// The permits that limit the number of objects whose requests are kept to [`MAX_KEPT`].
    permits: Arc<Semaphore>,
    on_handled: Option<OnHandled>,
    traces: Traces,
}

/// The common values of the attempts to handle an object that is not handled successfully yet.
pub(crate) struct Kept {
    /// The trace of the event; `None` if it is not sampled.
    trace: Option<EventTrace>,
    /// The requests of the attempts; `None` if there are none, or those of too many other objects are kept.
    pub(crate) requests: Option<Arc<KeptRequests>>,
}

/// The requests of the attempts to handle an object that is not handled successfully yet.
pub(crate) struct KeptRequests {
    pub(crate) log: Arc<RequestLog>,
    _permit: OwnedSemaphorePermit,
}

impl<H> Recorded<H> {
    /// Wraps `inner`. `on_handled`, if it is not `None`, is called after each success in which a request changed something. `traces`
    /// starts the traces of the events.
    pub(super) fn new(inner: H, on_handled: Option<OnHandled>, traces: Traces) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(MAX_KEPT)), on_handled, traces }
    }

    /// Returns the requests in `log` with a permit to keep them; `None` if there are none, or there is no permit.
    fn kept_requests(&self, log: Arc<RequestLog>) -> Option<Arc<KeptRequests>> {
        if log.is_empty() {
            return None;
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(Arc::new(KeptRequests { log, _permit: permit }))
    }
}

impl<H: EventHandler<Resolved>> EventHandler<Resolved> for Recorded<H> {
    async fn handle(&self, event: &Resolved, context: &Context<'_>) -> Result<Action, HandlerError> {
        let kept = context.note().and_then(|note| note.downcast_ref::<Kept>());
        let requests = kept.and_then(|kept| kept.requests.clone());
        let log = requests.as_ref().map(|requests| Arc::clone(&requests.log)).unwrap_or_default();
        let trace = if context.is_repeated() {
            kept.and_then(|kept| kept.trace.clone())
        } else {
            self.traces.start(event.event(), context)
        };
        // Pinned here, because an argument of an `async fn` takes up twice its size in the future of every message.
        let handled = pin!(log.collect(self.inner.handle(event, context)));
        let mut result = match &trace {
            Some(trace) => trace.record(handled).await,
            None => handled.await,
        };
        if let Ok(action) = &mut result {
            if !action.is_success() {
                let trace = trace.filter(|trace| !trace.end_if_failed(action));
                let requests = requests.or_else(|| self.kept_requests(log));
                if trace.is_some() || requests.is_some() || kept.is_some() {
                    action.keep(Arc::new(Kept { trace, requests }));
                }
            } else if let Some(on_handled) = self.on_handled.as_ref().filter(|_| log.changed_something()) {
                on_handled(event, context);
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use staffetta_driver::RequestRecord;
    use staffetta_handler::testing::{Fault, LogReport, NoMetrics, pod};
    use staffetta_handler::{Async, BackoffPolicy, Event, LogExceptions, Registration, Retry, Timeout};

    use super::*;

    /// A handler that sends a request with the next of these statuses. It fails after an error, hangs after `None`, and wants to be called
    /// again an hour after 202.
    struct Sends(Mutex<Vec<Option<u16>>>);

    impl EventHandler<Resolved> for Sends {
        async fn handle(&self, _: &Resolved, _: &Context<'_>) -> Result<Action, HandlerError> {
            let status = self.0.lock().remove(0);
            let mut request = RequestRecord::start("POST", "/ports", true);
            let Some(status) = status else { std::future::pending().await };
            request.set_status(status);
            match status {
                202 => Ok(Action::requeue(Duration::from_secs(3600))),
                ..400 => Ok(Action::done()),
                _ => Err(Fault::transient("busy").into()),
            }
        }
    }

    type Chain = Async<Resolved, Recorded<LogExceptions<Retry<Timeout<Sends>>, Resolved>>>;

    /// Returns queues of a handler that sends requests with these statuses, and is repeated every second.
    fn chain(statuses: Vec<Option<u16>>, on_handled: Option<OnHandled>) -> Chain {
        let second = BackoffPolicy::unlimited(Duration::from_secs(1), Duration::from_secs(1));
        let links = Sends(Mutex::new(statuses)).timeout(Duration::from_secs(10)).retry(second);
        let links = links.log_exceptions(Arc::new(LogReport::new("sends")), second);
        let recorded = Recorded::new(links, on_handled, Traces::new("sends", None));
        Async::new(recorded, false, Resolved::key, Arc::new(NoMetrics))
    }

    fn event(name: &str) -> Resolved {
        let event = Event::Added(Arc::new(pod("default", name))).erase();
        Registration::new(()).resolve(&event)
    }

    /// Returns the statuses of the requests that are kept of each object that is not handled.
    fn kept(chain: &Chain) -> Vec<Vec<Option<u16>>> {
        let kept =
            |note: &Arc<dyn std::any::Any + Send + Sync>| note.downcast_ref::<Kept>()?.requests.clone();
        let entries = chain.entries().into_iter();
        let logs = entries.filter_map(|entry| Some(entry.note().and_then(kept)?.log.requests()));
        logs.map(|requests| requests.into_iter().map(|request| request.status).collect()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_failed_and_hanging_attempts_are_kept_and_those_of_successes_are_not() {
        let chain = chain(vec![Some(201), Some(503), None, Some(201)], None);
        chain.push(event("web"));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(chain.entries().is_empty());
        chain.push(event("web"));
        // The second attempt ends after about 11 s, the third one begins a second later.
        for (wait_ms, expected) in [(1, vec![Some(503)]), (11_500, vec![Some(503), None])] {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            assert_eq!(kept(&chain), [expected]);
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(chain.entries().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_requests_of_a_bounded_number_of_objects_are_kept() {
        let chain = chain(vec![Some(503); MAX_KEPT + 1], None);
        for number in 0..=MAX_KEPT {
            chain.push(event(&number.to_string()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!((chain.entries().len(), kept(&chain).len()), (MAX_KEPT + 1, MAX_KEPT));
        chain.decline(&event("0"));
        chain.decline(&event("1"));
        assert!(kept(&chain).len() < MAX_KEPT, "their permits are free again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_is_reported_if_a_request_of_its_attempts_changed_something() {
        let reported = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&reported);
        let on_handled: OnHandled = Box::new(move |_, _| *counted.lock() += 1);
        let chain = chain(vec![Some(503), Some(201), Some(202)], Some(on_handled));
        chain.push(event("web"));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(*reported.lock(), 0);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(*reported.lock(), 1);
        chain.push(event("web"));
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!((*reported.lock(), chain.entries().len()), (2, 1), "it succeeded, and is called again");
        assert!(kept(&chain).is_empty(), "nothing is kept of a success");
    }
}
