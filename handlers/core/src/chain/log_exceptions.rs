//! Reports the failures of a handler, so that no wrapper outside has to deal with them.

use std::sync::Arc;
use std::time::Duration;

use super::EventHandler;
use super::action::{Action, Delay, Next, Wait, WaitKind};
use super::context::Context;
use super::failures::Failures;
use crate::backoff::{BackoffPolicy, MAX_HINT};
use crate::event::Message;
use crate::failure::{Failure, HandlerError};

/// A wrapper that records and reports every failure of its handler to a [`Report`], and the first success after failures. It always
/// returns `Ok`.
pub struct LogExceptions<H, E> {
    /// The wrapper or handler whose failures are reported.
    pub(super) inner: H,
    /// The report that gets the failures, and the first success after failures.
    pub(super) report: Arc<dyn Report<E>>,
    /// The delays after which an object is handled again whose retries ended with a failure.
    pub(super) resync: BackoffPolicy,
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for LogExceptions<H, E> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<Action, HandlerError> {
        let next = match self.inner.handle(event, context).await {
            Ok(action) => action.next(),
            Err(error) => Some(self.failed(event, &*error, context)),
        };
        Ok(match next {
            None => {
                self.succeeded(event, context);
                Action::done()
            }
            Some(Next::Again(after, None)) => {
                self.succeeded(event, context);
                Next::Wait(Wait::again(WaitKind::Later, after, Failures::default())).into()
            }
            Some(Next::Again(after, Some(why))) => {
                let mut failures = past(context);
                if failures.unfinished(&why) {
                    self.report.will_retry(event, &why, after, &mut failures);
                }
                Next::Wait(Wait::again(WaitKind::Unfinished, after, failures)).into()
            }
            Some(Next::Retry(error, delay)) => {
                let mut retry = Wait::retry(&*error, delay, context.failures);
                if let Some(queue) = context.queue {
                    queue.metrics().retried();
                }
                self.report.will_retry(event, &*error, delay.wait, &mut retry.failures);
                Next::Wait(retry).into()
            }
            Some(other) => other.into(),
        })
    }
}

impl<H, E: Message> LogExceptions<H, E> {
    /// Reports the last failure of a series of attempts.
    fn failed(&self, event: &E, error: &dyn Failure, context: &Context<'_>) -> Next {
        let mut failures = past(context);
        failures.failed(error, false);
        let least = self.resync.requeue_delay(failures.requeues, None);
        let wait = least.max(error.retry_after().unwrap_or_default().min(MAX_HINT));
        self.report.failed(event, error, wait, &mut failures);
        failures.requeues += 1;
        Next::Wait(Wait { kind: WaitKind::Failed, delay: Delay { wait, least }, failures })
    }

    /// Reports a success that ends failures.
    fn succeeded(&self, event: &E, context: &Context<'_>) {
        if let Some(failures) = context.recovery() {
            self.report.recovered(event, failures);
        }
    }
}

/// Returns a copy of the failures of the object so far.
fn past(context: &Context<'_>) -> Failures {
    context.failures.cloned().unwrap_or_default()
}

/// A reporter of the failures of a handler.
pub trait Report<E: Message>: Send + Sync + 'static {
    /// Reports that `event` failed with `error`, and is handled again after `again`, or when it changes. `failures` includes this failure.
    fn failed(&self, event: &E, error: &dyn Failure, again: Duration, failures: &mut Failures);

    /// Reports that `event` failed with the transient `error`, or is not finished for long, and is tried again after `wait`. `failures`
    /// includes this attempt.
    fn will_retry(&self, event: &E, error: &dyn Failure, wait: Duration, failures: &mut Failures) {
        let _ = (event, error, wait, failures);
    }

    /// Reports that `event` was handled successfully after `failures`.
    fn recovered(&self, event: &E, failures: &Failures) {
        let _ = (event, failures);
    }
}

#[cfg(test)]
mod tests {

    use parking_lot::Mutex;

    use super::*;
    use crate::test_message::{HandlerFn, TestMessage};
    use crate::testing::Fault;

    #[derive(Default)]
    struct Reported(Mutex<Vec<String>>);

    impl Report<TestMessage> for Reported {
        fn failed(&self, _: &TestMessage, error: &dyn Failure, _: Duration, _: &mut Failures) {
            self.0.lock().push(error.to_string());
        }
    }

    #[tokio::test]
    async fn failures_are_reported_once_and_not_returned() {
        let reported = Arc::new(Reported::default());
        let handler = HandlerFn(|event: &TestMessage| match event.uid() {
            "fails" => Err(Fault::permanent("refused").into()),
            _ => Ok(()),
        })
        .log_exceptions(Arc::clone(&reported) as _, BackoffPolicy::default());
        for (uid, is_done) in [("fails", false), ("works", true)] {
            let result = handler.handle(&TestMessage::added(uid), &Context::detached()).await;
            assert_eq!(result.expect("no failure passes").is_done(), is_done);
        }
        assert_eq!(*reported.0.lock(), ["refused"]);
    }
}
