//! Reporting of failures.

use std::time::Duration;

use tracing::error;

use super::backoff::BackoffPolicy;
use super::context::Context;
use super::failure::{HandlerError, causes};
use crate::event::Message;

/// Receives every failure, and decides when an object that failed is handled again.
pub trait Report<E: Message>: Send + Sync + 'static {
    /// Reports that `event` failed with `error` and is not retried any more. Call [`Context::requeue_after`] to have the object handled
    /// again later.
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

/// A [`Report`] that writes one structured log line for each failure, and requeues the object.
pub struct LogReport {
    handler: String,
    requeue: BackoffPolicy,
}

impl LogReport {
    /// Creates a report for the handler called `handler`. The delays before a failed object is handled again follow `requeue`.
    pub fn new(handler: impl Into<String>, requeue: BackoffPolicy) -> Self {
        Self { handler: handler.into(), requeue }
    }
}

impl<E: Message> Report<E> for LogReport {
    fn failed(&self, event: &E, error: &HandlerError, context: &Context<'_>) {
        let object_ref = event.object_ref();
        let again = self.requeue.requeue_delay(context.failures(), error.retry_after());
        error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            handler = self.handler, attempt = context.attempts(), change = ?event.change(), again_s = again.as_secs(), error = causes(&**error),
            "handling failed");
        context.requeue_after(again);
    }
}
