//! Feeds events to a handler without any cluster.
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

use crate::any_event::AnyEvent;
use crate::event::{Event, Tombstone};
use crate::failure::{Failure, HandlerError};
use crate::handler::EventHandler;
use crate::message::{Change, Message, Subject};
use crate::object::Identity;
use crate::registration::{ErasedHandler, KindIndex, Registration};
use crate::signal::Signal;
use crate::turn::Turn;

/// Feeds events to one handler, indexes first, as the pipeline does; each call ends when the handler has answered.
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

    /// The object is new.
    pub async fn added<K: Kinded>(&self, object: K) -> Result<(), HandlerError> {
        self.event(Event::Added(Arc::new(object))).await
    }

    /// The object changed.
    pub async fn modified<K: Kinded>(&self, object: K) -> Result<(), HandlerError> {
        self.event(Event::Modified(Arc::new(object))).await
    }

    /// The object is gone, and the server told so.
    pub async fn deleted<K: Kinded>(&self, object: K) -> Result<(), HandlerError> {
        self.event(Event::Deleted(Tombstone::Last(Arc::new(object)))).await
    }

    /// The object went while nobody watched.
    pub async fn missed<K: Kinded>(&self, object: &K) -> Result<(), HandlerError> {
        let identity =
            Identity::of::<K>(object.namespace(), object.name_any(), object.uid().unwrap_or_default());
        self.event(Event::<K>::Deleted(Tombstone::Missed(Arc::new(identity)))).await
    }

    /// A signal.
    pub async fn signal(&self, signal: impl Signal) -> Result<(), HandlerError> {
        self.handler.handle(&AnyEvent::signal(signal), &Turn::alone()).await
    }

    /// Any event. The handler is not asked when it does not want it.
    pub async fn event<K: Kinded>(&self, event: Event<K>) -> Result<(), HandlerError> {
        let event = event.erase();
        for index in self.indexes.iter().filter(|index| index.kind.type_id == event.route()) {
            (index.apply)(&event);
        }
        if self.handler.wants(&event) { self.handler.handle(&event, &Turn::alone()).await } else { Ok(()) }
    }
}

/// A kind that can be fed.
pub trait Kinded: Resource<DynamicType = ()> + Send + Sync + 'static {}

impl<K: Resource<DynamicType = ()> + Send + Sync + 'static> Kinded for K {}

/// A pod with a UID that its name determines.
pub fn pod(namespace: &str, name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.namespace = Some(namespace.to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some(format!("uid-{namespace}-{name}"));
    pod.metadata.resource_version = Some("1".to_owned());
    pod
}

/// A message without an object, for tests of wrappers: the `version`th news of the thing called `uid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestMessage {
    uid: String,
    change: Change,
    /// Which state of the thing it tells of.
    pub version: u64,
}

impl TestMessage {
    /// The thing is new.
    pub fn added(uid: &str) -> Self {
        Self { uid: uid.to_owned(), change: Change::Added, version: 0 }
    }

    /// The thing changed.
    pub fn modified(uid: &str, version: u64) -> Self {
        Self { uid: uid.to_owned(), change: Change::Modified, version }
    }

    /// The thing is gone.
    pub fn deleted(uid: &str) -> Self {
        Self { uid: uid.to_owned(), change: Change::Deleted, version: 0 }
    }
}

impl Message for TestMessage {
    fn change(&self) -> Change {
        self.change
    }

    fn subject(&self) -> Subject<'_> {
        Subject { kind: "Test".into(), namespace: None, name: &self.uid, uid: &self.uid }
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn route(&self) -> TypeId {
        TypeId::of::<Self>()
    }

    fn into_added(mut self) -> Self {
        if self.change == Change::Modified {
            self.change = Change::Added;
        }
        self
    }
}

impl fmt::Display for TestMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            Change::Added => "added",
            Change::Modified => "modified",
            Change::Deleted => "deleted",
        };
        write!(f, "{} {change} {}", self.uid, self.version)
    }
}

/// A handler that is a closure.
pub struct Turns<F>(pub F);

impl<E: Message, F> EventHandler<E> for Turns<F>
where
    F: Fn(&E) -> Result<(), HandlerError> + Send + Sync + 'static,
{
    async fn handle(&self, event: &E, _: &Turn<'_>) -> Result<(), HandlerError> {
        (self.0)(event)
    }
}

/// An error made to order.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    text: String,
    transient: bool,
    waits: bool,
    queues: bool,
    after: Option<Duration>,
}

impl Fault {
    /// An error that another attempt may mend.
    pub fn transient(text: &str) -> Self {
        Self { text: text.to_owned(), transient: true, waits: false, queues: false, after: None }
    }

    /// An error that no other attempt mends.
    pub fn permanent(text: &str) -> Self {
        Self { transient: false, ..Self::transient(text) }
    }

    /// Nothing went wrong: it only takes time.
    #[must_use]
    pub fn waiting(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Nothing went wrong: it waits for its turn.
    #[must_use]
    pub fn queued(self) -> Self {
        Self { queues: true, ..self.waiting() }
    }

    /// The error says when another attempt makes sense.
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

    fn waits(&self) -> bool {
        self.waits
    }

    fn queues(&self) -> bool {
        self.queues
    }

    fn retry_after(&self) -> Option<Duration> {
        self.after
    }
}
