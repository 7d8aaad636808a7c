//! The end of every failure.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt;

use crate::failure::{Failure, HandlerError};
use crate::handler::EventHandler;
use crate::message::Message;
use crate::report::Report;
use crate::turn::Turn;

/// Hands every failure, a panic too, to a [`Report`], and tells it when all is well again. To whoever is outside, the message was handled.
pub struct LogExceptions<H, E> {
    inner: H,
    report: Arc<dyn Report<E>>,
}

impl<H, E: Message> LogExceptions<H, E> {
    /// Ends the failures of `inner` at `report`.
    pub fn new(inner: H, report: Arc<dyn Report<E>>) -> Self {
        Self { inner, report }
    }
}

/// The handler panicked; this is what it said.
#[derive(Debug, thiserror::Error)]
#[error("the handler panicked: {0}")]
pub struct Panicked(String);

impl Panicked {
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
    async fn handle(&self, event: &E, turn: &Turn<'_>) -> Result<(), HandlerError> {
        let error = match AssertUnwindSafe(self.inner.handle(event, turn)).catch_unwind().await {
            Ok(Ok(())) => {
                if turn.makes_good() {
                    self.report.recovered(event, turn);
                }
                return Ok(());
            }
            Ok(Err(error)) => error,
            Err(payload) => Panicked::new(&*payload).into(),
        };
        turn.failed(&*error);
        self.report.failed(event, &error, turn);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::compose::Compose;
    use crate::testing::{Fault, TestMessage, Turns};

    #[derive(Default)]
    struct Failures(Mutex<Vec<String>>);

    impl Report<TestMessage> for Failures {
        fn failed(&self, _: &TestMessage, error: &HandlerError, _: &Turn<'_>) {
            self.0.lock().unwrap().push(error.to_string());
        }
    }

    #[tokio::test]
    async fn failures_and_panics_end_here_and_are_reported_once() {
        let failures = Arc::new(Failures::default());
        let handler = Turns(|event: &TestMessage| match event.uid() {
            "panics" => panic!("out of cheese"),
            "fails" => Err(Fault::permanent("refused").into()),
            _ => Ok(()),
        })
        .log_exceptions(Arc::clone(&failures) as Arc<dyn Report<TestMessage>>);
        for uid in ["panics", "fails", "works"] {
            handler.handle(&TestMessage::added(uid), &Turn::alone()).await.expect("no failure passes");
        }
        assert_eq!(*failures.0.lock().unwrap(), ["the handler panicked: out of cheese", "refused"]);
    }
}
