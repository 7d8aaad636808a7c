//! Handlers whose Rust types are erased (trait objects), as a registration holds them.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::interest::Interest;
use super::resource::{ResourceEventHandler, TriggerHandler, deliver};
use crate::chain::Action;
use crate::event::{AnyEvent, Kind, Object, OrderingKey, Trigger};
use crate::failure::HandlerError;

/// The type of a function that returns [`Interest::Taken`] if a handler may get an event, otherwise the reason why not.
pub(super) type EventFilter = Arc<dyn Fn(&AnyEvent) -> Interest + Send + Sync>;

/// The handler of all messages with the same [route](crate::Message::route).
pub(super) struct HandlerRoute {
    /// The Rust type of the objects or triggers.
    pub(super) type_id: TypeId,
    /// The kind to watch; `None` for triggers.
    pub(super) kind: Option<Kind>,
    /// The handler, whose type is erased.
    pub(super) handler: Box<dyn RouteHandler>,
    /// The filters that must accept an event, too, before the handler gets it.
    pub(super) filters: Vec<EventFilter>,
}

/// A handler of the events of one kind, or of the triggers of one type, whose types are erased. Its methods panic for an event of another
/// type.
pub(super) trait RouteHandler: Send + Sync {
    /// Returns [`Interest::Taken`] if the handler takes the event, otherwise the reason why not.
    fn wants(&self, event: &AnyEvent) -> Interest;
    /// Returns the ordering key of the event: events with the same key are handled one after the other.
    fn key(&self, event: &AnyEvent) -> OrderingKey;
    /// Returns the group of the event, whose events together have their own concurrency limit; `None` if the event belongs to no group.
    fn group(&self, event: &AnyEvent) -> Option<OrderingKey>;
    /// Calls the methods of the handler for the event.
    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> BoxFuture<'a, Result<Action, HandlerError>>;
}

/// Adapts a [`ResourceEventHandler`] of kind `K` to [`RouteHandler`].
pub(super) struct OfKind<K, H>(pub(super) Arc<H>, pub(super) PhantomData<fn(K)>);

impl<K: Object, H: ResourceEventHandler<K>> RouteHandler for OfKind<K, H> {
    fn wants(&self, event: &AnyEvent) -> Interest {
        self.0.wants(&event.typed().expect(ROUTED))
    }

    fn key(&self, event: &AnyEvent) -> OrderingKey {
        self.0.key(&event.typed().expect(ROUTED))
    }

    fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        self.0.group(&event.typed().expect(ROUTED))
    }

    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> BoxFuture<'a, Result<Action, HandlerError>> {
        let event = event.typed().expect(ROUTED);
        async move { deliver(&*self.0, &event).await.map_err(HandlerError::from) }.boxed()
    }
}

/// Adapts a [`TriggerHandler`] of the trigger type `S` to [`RouteHandler`].
pub(super) struct OfTrigger<S, H>(pub(super) Arc<H>, pub(super) PhantomData<fn(S)>);

impl<S: Trigger, H: TriggerHandler<S>> RouteHandler for OfTrigger<S, H> {
    fn wants(&self, _: &AnyEvent) -> Interest {
        Interest::Taken
    }

    fn key(&self, event: &AnyEvent) -> OrderingKey {
        self.0.key(event.trigger_ref().expect(ROUTED))
    }

    fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        self.0.group(event.trigger_ref().expect(ROUTED))
    }

    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> BoxFuture<'a, Result<Action, HandlerError>> {
        let trigger = event.trigger_ref().expect(ROUTED);
        async move { self.0.on_trigger(trigger).await.map_err(HandlerError::from) }.boxed()
    }
}

/// The panic message for an event that does not have the type of its route, which would be a bug.
const ROUTED: &str = "the route was found by the type of the event";
