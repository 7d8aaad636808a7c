//! Delivers test events to a handler, without a cluster.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use k8s_openapi::api::core::v1::Pod;
//! use staffetta_handler::testing::{Feed, pod};
//! use staffetta_handler::{Action, Registration, ResourceEventHandler};
//!
//! struct Count(Arc<AtomicUsize>);
//! impl ResourceEventHandler<Pod> for Count {
//!     type Error = std::convert::Infallible;
//!     async fn on_added(&self, _: &Arc<Pod>) -> Result<Action, Self::Error> {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!         Ok(Action::done())
//!     }
//! }
//!
//! let count = Arc::new(AtomicUsize::new(0));
//! let feed = Feed::new(Registration::new(Count(Arc::clone(&count))).on::<Pod>());
//! feed.added(pod("default", "web")).await.unwrap();
//! feed.modified(pod("default", "web")).await.unwrap();
//! assert_eq!(count.load(Ordering::Relaxed), 1);
//! # });
//! ```

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use tracing::error;

use crate::chain::{Action, Context, EventHandler, Failures, QueueMetrics, Report};
use crate::event::{AnyEvent, Event, Identity, Message, Object, Tombstone, Trigger};
use crate::failure::{Failure, HandlerError, Pending, causes};
use crate::registry::Registration;

/// A feed that delivers events to one handler, and before that to its indexes, as the program does. Each call returns the result of the
/// handler.
///
/// There are no queues, retries or time limits.
pub struct Feed(Registration);

impl Feed {
    /// Creates a feed for the handler of `registration`.
    pub fn new<H: Send + Sync + 'static>(registration: Registration<H>) -> Self {
        Self(registration.erase())
    }

    /// Delivers an `Added` event of `object`.
    pub async fn added<K: Object>(&self, object: K) -> Result<Action, HandlerError> {
        self.event(Event::Added(Arc::new(object))).await
    }

    /// Delivers a `Modified` event of `object`.
    pub async fn modified<K: Object>(&self, object: K) -> Result<Action, HandlerError> {
        self.event(Event::Modified(Arc::new(object))).await
    }

    /// Delivers a `Deleted` event with `object` as the last state.
    pub async fn deleted<K: Object>(&self, object: K) -> Result<Action, HandlerError> {
        self.event(Event::Deleted(Tombstone::Last(Arc::new(object)))).await
    }

    /// Delivers a `Deleted` event of `object` that carries only its identity ([`Tombstone::Missed`]).
    pub async fn missed<K: Object>(&self, object: &K) -> Result<Action, HandlerError> {
        let identity = Arc::new(Identity::of_object(object));
        self.event(Event::<K>::Deleted(Tombstone::Missed(identity))).await
    }

    /// Delivers a trigger to the handler. Does nothing if the handler is not registered for triggers of this type.
    pub async fn trigger(&self, trigger: impl Trigger) -> Result<Action, HandlerError> {
        self.0.handle(&self.0.resolve(&AnyEvent::trigger(trigger)), &Context::detached()).await
    }

    /// Delivers an event to the indexes, and to the handler if it [wants](crate::ResourceEventHandler::wants) the event.
    pub async fn event<K: Object>(&self, event: Event<K>) -> Result<Action, HandlerError> {
        let event = event.erase();
        for index in self.0.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(&event)?;
        }
        if self.0.wants(&event).is_taken() {
            self.0.handle(&self.0.resolve(&event), &Context::detached()).await
        } else {
            Ok(Action::done())
        }
    }
}

/// Returns a pod with the UID `uid-NAMESPACE-NAME` and the resourceVersion 1, and otherwise empty.
pub fn pod(namespace: &str, name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some(namespace.to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some(format!("uid-{namespace}-{name}"));
    pod.metadata.resource_version = Some("1".to_owned());
    pod
}

/// A [`Report`] that writes one structured log line for each failure.
pub struct LogReport {
    handler: String,
}

impl LogReport {
    /// Creates a report for the handler called `handler`.
    pub fn new(handler: impl Into<String>) -> Self {
        Self { handler: handler.into() }
    }
}

impl<E: Message> Report<E> for LogReport {
    fn failed(&self, event: &E, error: &dyn Failure, again: Duration, failures: &mut Failures) {
        let object_ref = event.object_ref();
        error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            handler = self.handler, attempt = failures.attempts(), change = ?event.change(), again_s = again.as_secs(), error = causes(error),
            "handling failed");
    }
}

/// A [`QueueMetrics`] that discards all counts and durations.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMetrics;

impl QueueMetrics for NoMetrics {
    fn added(&self) {}
    fn waited(&self, _: Duration) {}
    fn worked(&self, _: Duration) {}
    fn retried(&self) {}
    fn raised_delay(&self) {}
}

/// A handler error for tests, with configurable properties.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    text: String,
    transient: bool,
    pending: Option<Pending>,
    after: Option<Duration>,
}

impl Fault {
    /// Returns a transient error with the message `text`.
    pub fn transient(text: &str) -> Self {
        Self { text: text.to_owned(), transient: true, pending: None, after: None }
    }

    /// Returns a permanent error with the message `text`.
    pub fn permanent(text: &str) -> Self {
        Self { transient: false, ..Self::transient(text) }
    }

    /// Makes this an error that only reports unfinished work; see [`Failure::pending`].
    #[must_use]
    pub fn pending(mut self, pending: Pending) -> Self {
        self.pending = Some(pending);
        self
    }

    /// Sets [`Failure::retry_after`]: the time after which to retry.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = Some(delay);
        self
    }
}

impl Failure for Fault {
    fn transient(&self) -> bool {
        self.transient
    }

    fn pending(&self) -> Option<Pending> {
        self.pending
    }

    fn retry_after(&self) -> Option<Duration> {
        self.after
    }
}
