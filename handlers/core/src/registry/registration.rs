//! The registration of a handler: the handler, and all that the program needs to run it.

use std::any::TypeId;
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
use super::resolved::Resolved;
use super::resource::{ResourceEventHandler, TriggerHandler};
use super::route::{EventFilter, HandlerRoute, OfKind, OfTrigger, RouteHandler};
use super::setup::DriverId;
use super::source::Source;
use crate::chain::{Action, Context, EventHandler};
use crate::event::{AnyEvent, Kind, Message, OrderingKey, Trigger};
use crate::failure::{HandlerError, Panicked};

/// A handler with the kinds of its events, and its indexes, sources of triggers and garbage collector. Once its type is
/// [erased](Self::erase), it is the innermost part of a chain.
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
    /// The handlers of events and triggers: at most one for each Rust type of object or trigger.
    routes: Vec<HandlerRoute>,
    /// `true` if a newer watch event with the same ordering key replaces an attempted one of any object.
    pub superseded_by_key: bool,
    /// `true` if the handler gets the events of objects that this installation manages and the configuration does not select any more.
    pub keeps_unselected: bool,
    /// The drivers that the handler requested when it was built.
    pub drivers: Vec<DriverId>,
    /// The indexes of the handler, which must be complete before it gets its first event.
    pub indexes: Vec<KindIndex>,
    /// The garbage collector, if the handler creates external resources.
    pub collector: Option<Arc<dyn GarbageCollector>>,
    /// The sources of triggers, which run while the handler does.
    pub sources: Vec<Box<dyn Source>>,
}

/// An index, and the kind whose events update the index.
pub struct KindIndex {
    /// The kind of the objects in the index.
    pub kind: Kind,
    /// The function that updates the index with an event. It ignores events of other kinds. A panic of the index is logged and returned; it
    /// ends only this update.
    pub apply: ApplyIndex,
}

/// The type of a function that updates an index with an event.
type ApplyIndex = Box<dyn Fn(&AnyEvent) -> Result<(), Panicked> + Send + Sync>;

impl<H: Send + Sync + 'static> Registration<H> {
    /// Creates the registration of a handler, at first without any kind or trigger.
    pub fn new(handler: H) -> Self {
        Self {
            handler: Arc::new(handler),
            routes: Vec::new(),
            superseded_by_key: false,
            keeps_unselected: false,
            drivers: Vec::new(),
            indexes: Vec::new(),
            collector: None,
            sources: Vec::new(),
        }
    }

    /// Registers the handler for the events of kind `K`, whose objects are then watched.
    #[must_use]
    pub fn on<K>(mut self) -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        H: ResourceEventHandler<K>,
    {
        let handler = Box::new(OfKind::<K, H>(Arc::clone(&self.handler), PhantomData));
        self.add_route(TypeId::of::<K>(), Some(Kind::of::<K>()), handler);
        self
    }

    /// Limits the watch of kind `K` to the objects that match the selectors which `set` writes into the [`Kind`]. If another handler uses
    /// this kind with another selector or none, all objects of the kind are watched, and this handler may get events of all of them. Only
    /// earlier calls of [`on`](Self::on) and [`index`](Self::index) are affected.
    #[must_use]
    pub fn select<K: 'static>(mut self, set: impl Fn(&mut Kind)) -> Self {
        let routes = self.routes.iter_mut().filter_map(|route| route.kind.as_mut());
        let kinds = routes.chain(self.indexes.iter_mut().map(|index| &mut index.kind));
        kinds.filter(|kind| kind.type_id == TypeId::of::<K>()).for_each(set);
        self
    }

    /// Registers the handler for the triggers of type `S`. They may come from the sources of any handler that runs in the same replicas: in
    /// the leader only, or in every replica.
    #[must_use]
    pub fn on_trigger<S: Trigger>(mut self) -> Self
    where
        H: TriggerHandler<S>,
    {
        let handler = Box::new(OfTrigger::<S, H>(Arc::clone(&self.handler), PhantomData));
        self.add_route(TypeId::of::<S>(), None, handler);
        self
    }

    /// Adds the route of the events or triggers of one type to the handler, unless there is one already.
    fn add_route(&mut self, type_id: TypeId, kind: Option<Kind>, handler: Box<dyn RouteHandler>) {
        if self.route(type_id).is_none() {
            self.routes.push(HandlerRoute { type_id, kind, handler, filters: Vec::new() });
        }
    }

    /// Adds `source`, which runs while the handler runs. The triggers of the source go to all handlers that are registered for their type
    /// and run in the same replicas: in the leader only, or in every replica.
    #[must_use]
    pub fn source(mut self, source: impl Source) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Adds the kinds, triggers, indexes and sources of another registration. Both handlers then share queues and limits and count as one
    /// handler. The settings [`superseded_by_key`](Self::superseded_by_key) and
    /// [`keeps_unselected`](Self::keeps_unselected) of `other` are ignored. A filter that was added before the join
    /// applies to its own handler only; a filter that is added later applies to both. At most one of them may have a garbage collector;
    /// that of `other` is ignored if both have one.
    ///
    /// # Panics
    ///
    /// Panics if both are registered for the same kind or trigger: an error of the program, not of its configuration.
    #[must_use]
    pub fn join(mut self, other: Registration) -> Self {
        for route in other.routes {
            let of = route.kind.as_ref().map_or("trigger".into(), |kind| format!("kind {}", kind.name));
            assert!(
                self.route(route.type_id).is_none(),
                "two joined handlers have the same {of}: only one of them may be registered for it"
            );
            self.routes.push(route);
        }
        self.indexes.extend(other.indexes);
        self.sources.extend(other.sources);
        self.collector = self.collector.or(other.collector);
        self
    }

    /// Adds `index`, which is updated with the events of kind `K`. The handler gets no event before the index is complete.
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

    /// Lets all newer messages with the same ordering key end the retries of an older one, not only those about the same object, because
    /// the handler reconciles everything that belongs to the key together.
    #[must_use]
    pub fn superseded_by_key(mut self) -> Self {
        self.superseded_by_key = true;
        self
    }

    /// Lets the handler get the events of objects that the configuration does not select, if they have the cluster id of this installation
    /// and the finalizer of an enabled handler. Whoever may write these can bring any object to the handler: it must check what was made
    /// for the object, and make nothing new for it.
    #[must_use]
    pub fn keeps_unselected(mut self) -> Self {
        self.keeps_unselected = true;
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

    /// Returns the route to the handler for the events of objects, or for the triggers, of the Rust type `type_id`; `None` if the handler
    /// is not registered for that type.
    fn route(&self, type_id: TypeId) -> Option<&HandlerRoute> {
        self.routes.iter().find(|route| route.type_id == type_id)
    }

    /// Erases the type of the handler, so that handlers of different types can be kept in one collection.
    pub fn erase(self) -> Registration {
        let Self {
            routes, superseded_by_key, keeps_unselected, drivers, indexes, collector, sources, ..
        } = self;
        Registration {
            handler: Arc::new(()),
            routes,
            superseded_by_key,
            keeps_unselected,
            drivers,
            indexes,
            collector,
            sources,
        }
    }
}

impl Registration {
    /// Adds a filter: the handler gets only the events that `filter` accepts. `filter` is called only for events that neither the handler
    /// nor earlier filters decline. Indexes get all events.
    #[must_use]
    pub fn filter(mut self, filter: impl Fn(&AnyEvent) -> Interest + Send + Sync + 'static) -> Self {
        let filter: EventFilter = Arc::new(filter);
        self.routes.iter_mut().for_each(|route| route.filters.push(Arc::clone(&filter)));
        self
    }

    /// Returns the types of the triggers that the handler gets.
    pub fn triggers(&self) -> impl Iterator<Item = TypeId> {
        self.routes.iter().filter(|route| route.kind.is_none()).map(|route| route.type_id)
    }

    /// Returns the answer of the handler and its filters to the event: `Declined` if the handler does not handle its kind, and `Deferred`
    /// if the handler or a filter panics.
    pub fn wants(&self, event: &AnyEvent) -> Interest {
        let Some(route) = self.route(event.route()) else {
            return Interest::Declined("the handler does not handle this kind");
        };
        let answer = asked(event, || route.handler.wants(event));
        route.filters.iter().fold(answer, |answer, filter| answer.and(|| asked(event, || filter(event))))
    }

    /// Returns the event with what the handler says of it: the route to it, the ordering key and the group. If the handler panics, or does
    /// not handle this type of event, the key is that of the UID, and the group is `None`.
    pub fn resolve(&self, event: &AnyEvent) -> Resolved {
        let event_type = event.route();
        let route = self.routes.iter().position(|route| route.type_id == event_type);
        let handler = route.map(|route| &self.routes[route].handler);
        let key = handler.and_then(|handler| catch_panic(event, || handler.key(event)).ok());
        let group = handler.and_then(|handler| catch_panic(event, || handler.group(event)).ok());
        Resolved {
            event: event.clone(),
            route,
            key: key.unwrap_or_else(|| OrderingKey::of(event.uid())),
            group: group.flatten(),
        }
    }
}

impl EventHandler<Resolved> for Registration {
    async fn handle(&self, event: &Resolved, _: &Context<'_>) -> Result<Action, HandlerError> {
        let Some(route) = event.route.and_then(|route| self.routes.get(route)) else {
            return Ok(Action::done());
        };
        route.handler.deliver(&event.event).await
    }
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
