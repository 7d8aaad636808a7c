//! Reports the failures of a handler, so that no wrapper outside has to deal with them.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use super::EventHandler;
use super::context::Context;
use super::failure::{Failure, HandlerError};
use super::report::Report;
use crate::event::Message;

/// Reports every failure of the inner handler, including panics, to a [`Report`], and also the first success after failures. It always
/// returns `Ok`.
pub struct LogExceptions<H, E> {
    pub(super) inner: H,
    pub(super) report: Arc<dyn Report<E>>,
}

/// The handler panicked; the field is the panic message.
#[derive(Debug, thiserror::Error)]
#[error("the handler panicked: {0}")]
pub struct Panicked(String);

/// Runs `work` and returns a panic as the error [`Panicked`].
pub(super) async fn panic_as_error<T>(
    work: impl Future<Output = Result<T, HandlerError>>,
) -> Result<T, HandlerError> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|payload| Err(Panicked::new(&*payload).into()))
}

impl Panicked {
    /// Creates the error of a panic with this payload.
    pub(crate) fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self(text.unwrap_or_else(|| "without a message".to_owned()))
    }
}

impl Failure for Panicked {
    fn transient(&self) -> bool {
        false
    }

    fn reason(&self) -> &'static str {
        "Panicked"
    }
}

impl<E: Message, H: EventHandler<E>> EventHandler<E> for LogExceptions<H, E> {
    async fn handle(&self, event: &E, context: &Context<'_>) -> Result<(), HandlerError> {
        if let Err(error) = panic_as_error(self.inner.handle(event, context)).await {
            context.update_retry_state(|retry| retry.failed(&*error));
            self.report.failed(event, &error, context);
        } else if context.is_recovery() {
            self.report.recovered(event, context);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::testing::{Fault, HandlerFn, TestMessage};

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
