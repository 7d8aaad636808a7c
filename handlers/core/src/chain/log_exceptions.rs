//! Reports the failures of a handler, so that no wrapper outside has to deal with them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::EventHandler;
use super::context::Context;
use crate::event::Message;
use crate::failure::{HandlerError, panic_as_error};

/// A wrapper that reports every failure of its handler, including panics, to a [`Report`], and also the first success after failures. It
/// always returns `Ok`.
pub struct LogExceptions<H, E> {
    /// The wrapper or handler whose failures are reported.
    pub(super) inner: H,
    /// The report that gets the failures, and the first success after failures.
    pub(super) report: Arc<dyn Report<E>>,
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for LogExceptions<H, E> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<(), HandlerError> {
        if let Err(error) = panic_as_error(pin!(self.inner.handle(event, context))).await {
            context.update_retry_state(|retry| retry.failed(&*error));
            self.report.failed(event, &error, context);
        } else if context.is_recovery() {
            self.report.recovered(event, context);
        }
        Ok(())
    }
}

/// A reporter of the failures of a handler, which also decides when an object that failed is handled again.
pub trait Report<E: Message>: Send + Sync + 'static {
    /// Reports that `event` failed with `error` and is not retried any more. The implementation may call [`Context::requeue_after`] to have
    /// the object handled again later.
    fn failed(&self, event: &E, error: &HandlerError, context: &Context<'_>);

    /// Reports that `event` failed with the transient `error`, and is tried again after `wait`.
    fn will_retry(&self, event: &E, error: &HandlerError, wait: Duration, context: &Context<'_>) {
        let _ = (event, error, wait, context);
    }

    /// Reports that `event` was handled successfully after failures. `context` still holds these failures.
    fn recovered(&self, event: &E, context: &Context<'_>) {
        let _ = (event, context);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::test_message::{HandlerFn, TestMessage};
    use crate::testing::Fault;

    #[derive(Default)]
    struct Failures(Mutex<Vec<String>>);

    impl Report<TestMessage> for Failures {
        fn failed(&self, _: &TestMessage, error: &HandlerError, _: &Context<'_>) {
            self.0.lock().unwrap().push(error.to_string());
        }
    }

    #[tokio::test]
    async fn failures_and_panics_are_reported_once_and_not_returned() {
        let failures = Arc::new(Failures::default());
        let handler = HandlerFn(|event: &TestMessage| match event.uid() {
            "panics" => panic!("out of cheese"),
            "fails" => Err(Fault::permanent("refused").into()),
            _ => Ok(()),
        })
        .log_exceptions(Arc::clone(&failures) as Arc<dyn Report<TestMessage>>);
        for uid in ["panics", "fails", "works"] {
            handler.handle(&TestMessage::added(uid), &Context::detached()).await.expect("no failure passes");
        }
        assert_eq!(*failures.0.lock().unwrap(), ["the handler panicked: out of cheese", "refused"]);
    }
}
