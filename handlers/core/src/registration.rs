//! A handler with all that the pipeline must know of it.

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use tracing::error;

use crate::any_event::AnyEvent;
use crate::erased::{Erased, Signalled, Typed};
use crate::failure::HandlerError;
use crate::handler::EventHandler;
use crate::index::Index;
use crate::kind::Kind;
use crate::message::{Message, OrderingKey};
use crate::resource::ResourceEventHandler;
use crate::signal::{Signal, SignalHandler};
use crate::source::{ErasedSource, Source};
use crate::sweep::{ErasedSweep, Sweep, SweepOf};
use crate::turn::Turn;

/// Which newer message makes the retries of an older one pointless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Superseded {
    /// A newer one of the same object.
    #[default]
    BySameObject,
    /// Any newer one of the same ordering key, because the handler looks at the key as a whole.
    ByAnyOfItsKey,
}

/// A handler, the kinds that it wants, and what else it needs.
///
/// ```
/// # use std::sync::Arc;
/// # use k8s_openapi::api::core::v1::Pod;
/// # use staffetta_handler::{Registration, ResourceEventHandler};
/// # struct Plug;
/// # impl ResourceEventHandler<Pod> for Plug { type Error = std::convert::Infallible; }
/// let registration = Registration::new(Plug).on::<Pod>();
/// assert_eq!(registration.kinds().next().map(|kind| &*kind.name), Some("Pod"));
/// ```
pub struct Registration<H = ()> {
    handler: Arc<H>,
    routes: Vec<Route>,
    indexes: Vec<KindIndex>,
    superseded: Superseded,
    sweep: Option<Box<dyn ErasedSweep>>,
    sources: Vec<Box<dyn ErasedSource>>,
}

struct Route {
    /// The type by which what it takes travels.
    type_id: TypeId,
    /// The kind, where that is one: it is to be watched.
    kind: Option<Kind>,
    handler: Box<dyn Erased>,
}

/// An index and the kind by which it is fed.
pub struct KindIndex {
    /// The kind.
    pub kind: Kind,
    /// Takes in what happened to an object of that kind.
    pub apply: Box<dyn Fn(&AnyEvent) + Send + Sync>,
}

impl<H: Send + Sync + 'static> Registration<H> {
    /// A handler that wants nothing yet.
    pub fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            routes: Vec::new(),
            indexes: Vec::new(),
            superseded: Superseded::default(),
            sweep: None,
            sources: Vec::new(),
        }
    }

    /// The handler gets the events of kind `K`.
    #[must_use]
    pub fn on<K>(mut self) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
        H: ResourceEventHandler<K>,
    {
        let handler = Box::new(Typed::<K, H>::new(Arc::clone(&self.handler)));
        self.routes.push(Route { type_id: TypeId::of::<K>(), kind: Some(Kind::of::<K>()), handler });
        self
    }

    /// The handler gets the signals of type `S`, whoever they come from.
    #[must_use]
    pub fn on_signal<S: Signal>(mut self) -> Self
    where
        H: SignalHandler<S>,
    {
        let handler = Box::new(Signalled::<S, H>::new(Arc::clone(&self.handler)));
        self.routes.push(Route { type_id: TypeId::of::<S>(), kind: None, handler });
        self
    }

    /// Runs `source` as long as this process leads; its signals go to all who registered for them.
    #[must_use]
    pub fn source(mut self, source: impl Source) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Adds what another handler wants: both share queues and bounds, and count as one. Of both, one at most sweeps.
    #[must_use]
    pub fn join(mut self, other: Registration) -> Self {
        self.routes.extend(other.routes);
        self.indexes.extend(other.indexes);
        self.sources.extend(other.sources);
        self.sweep = self.sweep.or(other.sweep);
        self
    }

    /// Feeds `index` with kind `K`; the handler gets no event before the index is complete.
    #[must_use]
    pub fn index<K>(mut self, index: Arc<impl Index<K>>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        let apply = Box::new(move |event: &AnyEvent| {
            if let Some(typed) = event.downcast_ref::<K>() {
                guarded(event, || index.apply(typed));
            }
        });
        self.indexes.push(KindIndex { kind: Kind::of::<K>(), apply });
        self
    }

    /// Says which newer message makes the retries of an older one pointless.
    #[must_use]
    pub fn superseded(mut self, superseded: Superseded) -> Self {
        self.superseded = superseded;
        self
    }

    /// The handler marks what it makes outside, and wants to hear of what no object owns any more.
    #[must_use]
    pub fn sweep(mut self) -> Self
    where
        H: Sweep,
    {
        self.sweep = Some(Box::new(SweepOf(Arc::clone(&self.handler))));
        self
    }

    /// The kinds of which the handler gets the events.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.routes.iter().filter_map(|route| route.kind.as_ref())
    }

    /// The registration without the type of its handler, as the pipeline takes it.
    pub fn erase(self) -> Registration {
        let Self { routes, indexes, superseded, sweep, sources, .. } = self;
        Registration { handler: Arc::new(()), routes, indexes, superseded, sweep, sources }
    }
}

impl Registration {
    /// The sources of the handler; none is left.
    pub fn take_sources(&mut self) -> Vec<Box<dyn ErasedSource>> {
        std::mem::take(&mut self.sources)
    }

    /// Takes the registration apart.
    pub fn into_parts(self) -> (ErasedHandler, Vec<KindIndex>, Option<Box<dyn ErasedSweep>>) {
        (ErasedHandler { routes: self.routes, superseded: self.superseded }, self.indexes, self.sweep)
    }
}

/// The innermost link of every chain: a handler of one or more kinds, its types erased.
pub struct ErasedHandler {
    routes: Vec<Route>,
    superseded: Superseded,
}

impl ErasedHandler {
    /// The kinds of which the handler gets the events.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.routes.iter().filter_map(|route| route.kind.as_ref())
    }

    /// The types of the signals that the handler gets.
    pub fn signals(&self) -> impl Iterator<Item = TypeId> {
        self.routes.iter().filter(|route| route.kind.is_none()).map(|route| route.type_id)
    }

    /// Which newer message makes the retries of an older one pointless.
    pub fn superseded(&self) -> Superseded {
        self.superseded
    }

    /// Whether the event concerns the handler.
    pub fn wants(&self, event: &AnyEvent) -> bool {
        let wants = |handler: &dyn Erased| guarded(event, || handler.wants(event)).unwrap_or(false);
        self.route(event.route()).is_some_and(wants)
    }

    /// The ordering key of an event.
    pub fn key(&self, event: &AnyEvent) -> OrderingKey {
        let key = self.route(event.route()).and_then(|handler| guarded(event, || handler.key(event)));
        key.unwrap_or_else(|| OrderingKey::of(event.uid()))
    }

    /// With which events this one shares the bound on what runs at a time; none for the handler's common bound.
    pub fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        self.route(event.route()).and_then(|handler| guarded(event, || handler.group(event)).flatten())
    }

    fn route(&self, type_id: TypeId) -> Option<&dyn Erased> {
        self.routes.iter().find(|route| route.type_id == type_id).map(|route| &*route.handler)
    }
}

/// Calls what an author wrote from within the watch: a panic concerns this event of this handler, and nobody else.
fn guarded<T>(event: &AnyEvent, call: impl FnOnce() -> T) -> Option<T> {
    let result = catch_unwind(AssertUnwindSafe(call));
    if result.is_err() {
        error!(?event, "a handler or its index panicked while an event was taken in");
    }
    result.ok()
}

impl EventHandler<AnyEvent> for ErasedHandler {
    async fn handle(&self, event: &AnyEvent, _: &Turn<'_>) -> Result<(), HandlerError> {
        match self.route(event.route()) {
            Some(handler) => handler.deliver(event).await,
            None => Ok(()),
        }
    }
}
