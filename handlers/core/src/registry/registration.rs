//! The registration of a handler: the handler, and all that the program needs to run it.

use std::any::TypeId;
use std::collections::HashSet;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use tracing::error;

use super::garbage_collector::GarbageCollector;
use super::index::Index;
use super::interest::Interest;
use super::resource::{ResourceEventHandler, TriggerHandler};
use super::route::{EventFilter, HandlerRoute, OTHER_TYPE, OfKind, OfTrigger, RouteHandler};
use super::setup::DriverId;
use super::source::Source;
use crate::chain::{Context, EventHandler, Superseded};
use crate::event::{AnyEvent, Kind, Message, OrderingKey, Trigger};
use crate::failure::{BothFailed, HandlerError, Panicked};

/// A handler with the kinds of its events, and its indexes, sources of triggers and garbage collector.
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
    routes: Vec<HandlerRoute>,
    /// The types for which `handler` itself is registered. If it is registered twice for one, it gets each event once.
    types: HashSet<TypeId>,
    indexes: Vec<KindIndex>,
    superseded: Superseded,
    collector: Option<Arc<dyn GarbageCollector>>,
    sources: Vec<Box<dyn Source>>,
    filter: Option<EventFilter>,
    drivers: Vec<DriverId>,
}

/// Combines two optional filters: the result accepts an event if both accept it. A missing filter accepts everything.
fn both(one: Option<EventFilter>, other: Option<EventFilter>) -> Option<EventFilter> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Arc::new(move |event| one(event).and(|| other(event)))),
        (one, other) => one.or(other),
    }
}

/// An index, and the kind whose events update the index.
pub struct KindIndex {
    /// The kind of the objects in the index.
    pub kind: Kind,
    /// Updates the index with an event. Events of other kinds are ignored. A panic of the index is logged and returned; it ends only
    /// this update.
    pub apply: ApplyIndex,
}

/// The type of a function that updates an index with an event.
pub type ApplyIndex = Box<dyn Fn(&AnyEvent) -> Result<(), Panicked> + Send + Sync>;

impl<H: Send + Sync + 'static> Registration<H> {
    /// Registers a handler, at first without any kind or trigger.
    pub fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            routes: Vec::new(),
            types: HashSet::new(),
            indexes: Vec::new(),
            superseded: Superseded::default(),
            collector: None,
            sources: Vec::new(),
            filter: None,
            drivers: Vec::new(),
        }
    }

    /// Passes the events of kind `K` to the handler.
    #[must_use]
    pub fn on<K>(mut self) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        H: ResourceEventHandler<K>,
    {
        let handler = Box::new(OfKind::<K, H>(Arc::clone(&self.handler), PhantomData));
        self.route(TypeId::of::<K>(), Some(Kind::of::<K>()), handler);
        self
    }

    /// Watches only the objects of kind `K` whose fields match `selector`, such as `spec.nodeName=node-1`. If another handler uses this
    /// kind with another selector or none, all objects of the kind are watched, and this handler may get events of all of them. Only
    /// earlier calls of [`on`](Self::on) and [`index`](Self::index) are affected.
    #[must_use]
    pub fn field_selector<K: 'static>(mut self, selector: &str) -> Self {
        self.kinds_of::<K>().for_each(|kind| kind.field_selector = Some(selector.to_owned()));
        self
    }

    /// Watches only the objects of kind `K` whose labels match `selector`, such as `app=web`. If another handler uses this kind with
    /// another selector or none, all objects of the kind are watched, and this handler may get events of all of them. Only earlier calls
    /// of [`on`](Self::on) and [`index`](Self::index) are affected.
    #[must_use]
    pub fn label_selector<K: 'static>(mut self, selector: &str) -> Self {
        self.kinds_of::<K>().for_each(|kind| kind.label_selector = Some(selector.to_owned()));
        self
    }

    /// Returns each registered [`Kind`] whose objects have the Rust type `K`.
    fn kinds_of<K: 'static>(&mut self) -> impl Iterator<Item = &mut Kind> {
        let routes = self.routes.iter_mut().filter_map(|route| route.kind.as_mut());
        let kinds = routes.chain(self.indexes.iter_mut().map(|index| &mut index.kind));
        kinds.filter(|kind| kind.type_id == TypeId::of::<K>())
    }

    /// Passes the triggers of type `S` to the handler. They may come from the sources of any handler that runs in the same
    /// replicas: in the leader only, or in every replica.
    #[must_use]
    pub fn on_trigger<S: Trigger>(mut self) -> Self
    where
        H: TriggerHandler<S>,
    {
        let handler = Box::new(OfTrigger::<S, H>(Arc::clone(&self.handler), PhantomData));
        self.route(TypeId::of::<S>(), None, handler);
        self
    }

    /// Adds the route of the events or triggers of one type to the handler, unless there is one already.
    fn route(&mut self, type_id: TypeId, kind: Option<Kind>, handler: Box<dyn RouteHandler>) {
        if self.types.insert(type_id) {
            self.routes.push(HandlerRoute { type_id, kind, handler, filter: None });
        }
    }

    /// Runs `source` while the handler runs. The triggers of the source go to all handlers that are registered for their type
    /// and run in the same replicas: in the leader only, or in every replica.
    #[must_use]
    pub fn source(mut self, source: impl Source) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Adds the kinds, triggers, indexes and sources of another registration. Both handlers then share queues and limits and count as one
    /// handler. If both are registered for the same type, each gets the events that it wants, and `self` determines the ordering key and
    /// the group. The setting of [`superseded`](Self::superseded) of `other` is ignored. A filter that was added before the join applies to
    /// its own handler only; a filter that is added later applies to both. At most one of them may have a garbage collector; that of
    /// `other` is ignored if both have one.
    #[must_use]
    pub fn join(mut self, other: Registration) -> Self {
        let filtered = |filter: Option<EventFilter>| {
            move |route: HandlerRoute| HandlerRoute { filter: both(route.filter, filter.clone()), ..route }
        };
        let own = self.routes.into_iter().map(filtered(self.filter.take()));
        self.routes = own.chain(other.routes.into_iter().map(filtered(other.filter))).collect();
        self.indexes.extend(other.indexes);
        self.sources.extend(other.sources);
        self.collector = self.collector.or(other.collector);
        self
    }

    /// Updates `index` with the events of kind `K`. The handler gets no event before the index is complete.
    #[must_use]
    pub fn index<K>(mut self, index: Arc<impl Index<K>>) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        let apply = Box::new(move |event: &AnyEvent| {
            event.typed::<K>().map_or(Ok(()), |typed| catch_panic(event, || index.apply(&typed)))
        });
        self.indexes.push(KindIndex { kind: Kind::of::<K>(), apply });
        self
    }

    /// Selects the newer messages that end the retries of an older one.
    #[must_use]
    pub fn superseded(mut self, superseded: Superseded) -> Self {
        self.superseded = superseded;
        self
    }

    /// Enables garbage collection: the handler itself is the [`GarbageCollector`].
    #[must_use]
    pub fn garbage_collector(mut self) -> Self
    where
        H: GarbageCollector,
    {
        self.collector = Some(Arc::<H>::clone(&self.handler));
        self
    }

    /// Returns the kinds whose events the handler gets.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.routes.iter().filter_map(|route| route.kind.as_ref())
    }

    /// Erases the type of the handler, so that handlers of different types can be kept in one collection.
    pub fn erase(self) -> Registration {
        let Self { routes, types, indexes, superseded, collector, sources, filter, drivers, .. } = self;
        let handler = Arc::new(());
        Registration { handler, routes, types, indexes, superseded, collector, sources, filter, drivers }
    }
}

impl Registration {
    /// Passes to the handler only the events that `filter` accepts. `filter` is called only for events that neither the handler nor
    /// earlier filters decline. Indexes get all events.
    #[must_use]
    pub fn filter(mut self, filter: impl Fn(&AnyEvent) -> Interest + Send + Sync + 'static) -> Self {
        self.filter = both(self.filter.take(), Some(Arc::new(filter)));
        self
    }

    /// Sets the drivers that the handler uses.
    pub(super) fn with_drivers(self, drivers: Vec<DriverId>) -> Self {
        Self { drivers, ..self }
    }

    /// Removes and returns the sources of the handler.
    pub fn take_sources(&mut self) -> Vec<Box<dyn Source>> {
        std::mem::take(&mut self.sources)
    }

    /// Returns the handler, its indexes and its garbage collector.
    pub fn into_parts(self) -> (ErasedHandler, Vec<KindIndex>, Option<Arc<dyn GarbageCollector>>) {
        let Self { routes, superseded, filter, drivers, .. } = self;
        (ErasedHandler { routes, superseded, filter, drivers }, self.indexes, self.collector)
    }
}

/// A handler of one or more kinds and triggers whose types are erased: the innermost part of every chain.
pub struct ErasedHandler {
    routes: Vec<HandlerRoute>,
    superseded: Superseded,
    filter: Option<EventFilter>,
    drivers: Vec<DriverId>,
}

impl ErasedHandler {
    /// Returns the drivers that the handler requested when it was built.
    pub fn drivers(&self) -> &[DriverId] {
        &self.drivers
    }

    /// Returns the kinds whose events the handler gets.
    pub fn kinds(&self) -> impl Iterator<Item = &Kind> {
        self.routes.iter().filter_map(|route| route.kind.as_ref())
    }

    /// Returns the types of the triggers that the handler gets.
    pub fn triggers(&self) -> impl Iterator<Item = TypeId> {
        self.routes.iter().filter(|route| route.kind.is_none()).map(|route| route.type_id)
    }

    /// Returns the setting that selects the newer messages that end the retries of an older one.
    pub fn superseded(&self) -> Superseded {
        self.superseded
    }

    /// Returns whether the handler and its filter take the event; of joined handlers, one of them. If the handler or the filter
    /// panics, the handler does not get the event.
    pub fn wants(&self, event: &AnyEvent) -> Interest {
        let mut routes = self.routes(event);
        let first = routes.next().map_or(OTHER_TYPE, |route| route.wants(event));
        let answer = routes.fold(first, |answer, other| answer.or(|| other.wants(event)));
        answer.and(|| filtered(self.filter.as_ref(), event))
    }

    /// Returns the ordering key of an event. If the handler panics, or does not handle this type of event, the key is that of the UID.
    pub fn key(&self, event: &AnyEvent) -> OrderingKey {
        let key = self
            .routes(event)
            .next()
            .and_then(|route| catch_panic(event, || route.handler.key(event)).ok().flatten());
        key.unwrap_or_else(|| OrderingKey::of(event.uid()))
    }

    /// Returns the group of an event, which has permits of its own in [`Limit`](crate::Limit); `None` if it uses the common permits.
    pub fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        let route = self.routes(event).next()?;
        catch_panic(event, || route.handler.group(event)).ok().flatten()
    }

    /// Returns the handlers of this type of event: more than one only if registrations were joined.
    fn routes(&self, event: &AnyEvent) -> impl Iterator<Item = &HandlerRoute> {
        let type_id = event.route();
        self.routes.iter().filter(move |route| route.type_id == type_id)
    }
}

impl HandlerRoute {
    /// Returns whether the handler and its filter take the event.
    fn wants(&self, event: &AnyEvent) -> Interest {
        asked(event, || self.handler.wants(event)).and(|| filtered(self.filter.as_ref(), event))
    }
}

/// Returns the answer of the filter to `event`; without a filter, the event is taken.
fn filtered(filter: Option<&EventFilter>, event: &AnyEvent) -> Interest {
    filter.map_or(Interest::Taken, |filter| asked(event, || filter(event)))
}

/// Returns the answer of a handler or of its filter to `event`. If the code panics, the event is deferred,
/// because it is unknown if the handler still wants the object.
fn asked(event: &AnyEvent, wants: impl FnOnce() -> Interest) -> Interest {
    let panicked = Interest::Deferred("the handler panicked when it was asked; see the log");
    catch_panic(event, wants).unwrap_or(panicked)
}

/// Calls code of a handler from within the watch. If the code panics, the panic is logged and returned, so that the watch and other
/// handlers are not affected.
fn catch_panic<T>(event: &AnyEvent, call: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
        let (panicked, object_ref) = (Panicked::new(&*payload), event.object_ref());
        error!(kind = %object_ref.kind, namespace = object_ref.namespace, name = object_ref.name, uid = object_ref.uid,
            error = %panicked, "a handler or its index panicked when an event arrived");
        panicked
    })
}

impl EventHandler<AnyEvent> for ErasedHandler {
    async fn handle(&self, event: &AnyEvent, _: &Context<'_>) -> Result<(), HandlerError> {
        // One of joined handlers may want an event that another one does not.
        let is_joined = self.routes(event).nth(1).is_some();
        let mut result = Ok(());
        for route in self.routes(event).filter(|route| !is_joined || route.wants(event).is_taken()) {
            result = match (result, route.handler.deliver(event).await) {
                (Err(one), Err(other)) => Err(BothFailed::new(one, other).into()),
                (one, other) => one.and(other),
            };
        }
        result
    }
}
