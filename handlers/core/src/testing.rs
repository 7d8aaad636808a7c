//! Feeds events to a handler without a cluster.
//!
//! ```
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use k8s_openapi::api::core::v1::Pod;
//! use staffetta_handler::testing::{Feed, pod};
//! use staffetta_handler::{Registration, ResourceEventHandler};
//!
//! struct Count(Arc<AtomicUsize>);
//! impl ResourceEventHandler<Pod> for Count {
//!     type Error = std::convert::Infallible;
//!     async fn on_added(&self, _: &Arc<Pod>) -> Result<(), Self::Error> {
//!         self.0.fetch_add(1, Ordering::Relaxed);
//!         Ok(())
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

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Resource, ResourceExt};

use crate::chain::{Context, EventHandler, Failure, HandlerError, Pending};
use crate::event::{AnyEvent, Change, Event, Identity, Message, ObjectRef, Tombstone, Trigger};
use crate::registry::{ErasedHandler, KindIndex, Registration};

/// Feeds events to one handler, indexes first, as the pipeline does; each call returns the result of the handler.
pub struct Feed {
    handler: ErasedHandler,
    indexes: Vec<KindIndex>,
}

impl Feed {
    /// Feeds the handler of `registration`.
    pub fn new<H: Send + Sync + 'static>(registration: Registration<H>) -> Self {
        let (handler, indexes, _) = registration.erase().into_parts();
        Self { handler, indexes }
    }

    /// Feeds an `Added`.
    pub async fn added<K: Kinded>(&self, object: K) -> Result<(), HandlerError> {
        self.event(Event::Added(Arc::new(object))).await
    }

    /// Feeds a `Modified`.
    pub async fn modified<K: Kinded>(&self, object: K) -> Result<(), HandlerError> {
        self.event(Event::Modified(Arc::new(object))).await
    }

    /// Feeds a `Deleted` with the last state.
    pub async fn deleted<K: Kinded>(&self, object: K) -> Result<(), HandlerError> {
        self.event(Event::Deleted(Tombstone::Last(Arc::new(object)))).await
    }

    /// Feeds a `Deleted` whose last state was missed.
    pub async fn missed<K: Kinded>(&self, object: &K) -> Result<(), HandlerError> {
        let identity =
            Identity::of::<K>(object.namespace(), object.name_any(), object.uid().unwrap_or_default());
        self.event(Event::<K>::Deleted(Tombstone::Missed(Arc::new(identity)))).await
    }

    /// Feeds a trigger.
    pub async fn trigger(&self, trigger: impl Trigger) -> Result<(), HandlerError> {
        self.handler.handle(&AnyEvent::trigger(trigger), &Context::detached()).await
    }

    /// Feeds an event, unless the handler does not want it.
    pub async fn event<K: Kinded>(&self, event: Event<K>) -> Result<(), HandlerError> {
        let event = event.erase();
        for index in self.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(&event);
        }
        if self.handler.wants(&event) {
            self.handler.handle(&event, &Context::detached()).await
        } else {
            Ok(())
        }
    }
}

/// A kind of object that can be fed.
pub trait Kinded: Resource<DynamicType = ()> + Send + Sync + 'static {}

impl<K: Resource<DynamicType = ()> + Send + Sync + 'static> Kinded for K {}

/// A pod with a UID made of its names.
pub fn pod(namespace: &str, name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some(namespace.to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some(format!("uid-{namespace}-{name}"));
    pod.metadata.resource_version = Some("1".to_owned());
    pod
}

/// A message about the object called `uid`, for tests of wrappers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestMessage {
    uid: String,
    change: Change,
    is_trigger: bool,
    /// The version of the object.
    pub version: u64,
}

impl TestMessage {
    /// An `Added`.
    pub fn added(uid: &str) -> Self {
        Self { uid: uid.to_owned(), change: Change::Added, is_trigger: false, version: 0 }
    }

    /// A `Modified`.
    pub fn modified(uid: &str, version: u64) -> Self {
        Self { uid: uid.to_owned(), change: Change::Modified, is_trigger: false, version }
    }

    /// A trigger about the object.
    pub fn trigger(uid: &str, version: u64) -> Self {
        Self { is_trigger: true, ..Self::modified(uid, version) }
    }

    /// A `Deleted`.
    pub fn deleted(uid: &str) -> Self {
        Self { uid: uid.to_owned(), change: Change::Deleted, is_trigger: false, version: 0 }
    }
}

/// The route of the triggers among the [`TestMessage`]s.
struct Triggered;

impl Message for TestMessage {
    fn change(&self) -> Change {
        self.change
    }

    fn object_ref(&self) -> ObjectRef<'_> {
        ObjectRef { kind: "Test".into(), namespace: None, name: &self.uid, uid: &self.uid }
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn route(&self) -> TypeId {
        if self.is_trigger { TypeId::of::<Triggered>() } else { TypeId::of::<Self>() }
    }

    fn is_trigger(&self) -> bool {
        self.is_trigger
    }

    fn into_added(mut self) -> Self {
        if self.change == Change::Modified && !self.is_trigger {
            self.change = Change::Added;
        }
        self
    }
}

impl fmt::Display for TestMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            Change::Added => "added",
            Change::Modified if self.is_trigger => "trigger",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
        };
        write!(f, "{} {change} {}", self.uid, self.version)
    }
}

/// A handler that calls a closure.
pub struct HandlerFn<F>(pub F);

impl<E: Message, F> EventHandler<E> for HandlerFn<F>
where
    F: Fn(&E) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, event: &E, _: &Context<'_>) -> Result<(), HandlerError> {
        (self.0)(event)
    }
}

/// An error with configurable properties.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    text: String,
    transient: bool,
    pending: Option<Pending>,
    after: Option<Duration>,
}

impl Fault {
    /// A transient error.
    pub fn transient(text: &str) -> Self {
        Self { text: text.to_owned(), transient: true, pending: None, after: None }
    }

    /// A permanent error.
    pub fn permanent(text: &str) -> Self {
        Self { transient: false, ..Self::transient(text) }
    }

    /// Makes the work [pending](Failure::pending).
    #[must_use]
    pub fn pending(mut self, pending: Pending) -> Self {
        self.pending = Some(pending);
        self
    }

    /// Sets the time after which to retry.
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
