//! The receivers of failures.

use std::time::Duration;

use tracing::error;

use super::backoff::BackoffPolicy;
use super::context::Context;
use super::failure::{HandlerError, causes};
use crate::event::Message;

/// Receives every failure, and decides when an object that failed is handled again.
pub trait Report<E: Message>: Send + Sync + 'static {
    /// `event` failed with `error`, and its retries are over. [`Context::requeue_after`] handles it again later.
    fn failed(&self, event: &E, error: &HandlerError, context: &Context<'_>);

    /// `event` failed with the transient `error`, and is tried again after `wait`.
    fn will_retry(&self, event: &E, error: &HandlerError, wait: Duration, context: &Context<'_>) {
        let _ = (event, error, wait, context);
    }

    /// `event` was handled with success after the failures that `context` still holds.
    fn recovered(&self, event: &E, context: &Context<'_>) {
        let _ = (event, context);
    }
}

/// Writes one structured log line for each failure, and requeues the object.
pub struct LogReport {
    handler: String,
    requeue: BackoffPolicy,
}

impl LogReport {
    /// Reports for the handler called `handler`, and requeues failed objects according to `requeue`.
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
