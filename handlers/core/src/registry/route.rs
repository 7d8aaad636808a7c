//! Handlers whose types are erased, as a registration holds them.

use std::any::TypeId;
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use kube::Resource;

use super::interest::Interest;
use super::resource::{ResourceEventHandler, TriggerHandler, deliver};
use crate::event::{AnyEvent, Kind, OrderingKey, Trigger};
use crate::failure::HandlerError;

/// The answer to an event of a type that the handler does not handle.
pub(super) const OTHER_TYPE: Interest = Interest::Declined("the handler does not handle this kind");

/// The type of a function that returns whether a handler may get an event.
pub(super) type EventFilter = Arc<dyn Fn(&AnyEvent) -> Interest + Send + Sync>;

/// The handler of all messages with the same [route](crate::Message::route).
pub(super) struct HandlerRoute {
    /// The Rust type of the objects or triggers.
    pub(super) type_id: TypeId,
    /// The kind to watch; `None` for triggers.
    pub(super) kind: Option<Kind>,
    /// The handler, whose type is erased.
    pub(super) handler: Box<dyn RouteHandler>,
    /// The filters of the events that the handler takes.
    pub(super) filters: Vec<EventFilter>,
}

/// A handler of the events of one kind, or of the triggers of one type, whose types are erased.
pub(super) trait RouteHandler: Send + Sync {
    /// Returns whether the handler takes the event. Events of another type are declined.
    fn wants(&self, event: &AnyEvent) -> Interest;
    /// Returns the ordering key; `None` for another type of event.
    fn key(&self, event: &AnyEvent) -> Option<OrderingKey>;
    /// Returns the group of the event; `None` if it has none, or for another type of event.
    fn group(&self, event: &AnyEvent) -> Option<OrderingKey>;
    /// Calls the methods of the handler for the event; does nothing for another type of event.
    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> BoxFuture<'a, Result<(), HandlerError>>;
}

/// Adapts a [`ResourceEventHandler`] of kind `K` to [`RouteHandler`].
pub(super) struct OfKind<K, H>(pub(super) Arc<H>, pub(super) PhantomData<fn(K)>);

impl<K, H> RouteHandler for OfKind<K, H>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    H: ResourceEventHandler<K>,
{
    fn wants(&self, event: &AnyEvent) -> Interest {
        event.typed().map_or(OTHER_TYPE, |event| self.0.wants(&event))
    }

    fn key(&self, event: &AnyEvent) -> Option<OrderingKey> {
        event.typed().map(|event| self.0.key(&event))
    }

    fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        event.typed().and_then(|event| self.0.group(&event))
    }

    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> BoxFuture<'a, Result<(), HandlerError>> {
        let Some(event) = event.typed() else { return async { Ok(()) }.boxed() };
        async move { deliver(&*self.0, &event).await.map_err(HandlerError::from) }.boxed()
    }
}

/// Adapts a [`TriggerHandler`] of the trigger type `S` to [`RouteHandler`].
pub(super) struct OfTrigger<S, H>(pub(super) Arc<H>, pub(super) PhantomData<fn(S)>);

impl<S: Trigger, H: TriggerHandler<S>> RouteHandler for OfTrigger<S, H> {
    fn wants(&self, event: &AnyEvent) -> Interest {
        event.trigger_ref::<S>().map_or(OTHER_TYPE, |_| Interest::Taken)
    }

    fn key(&self, event: &AnyEvent) -> Option<OrderingKey> {
        event.trigger_ref().map(|trigger| self.0.key(trigger))
    }

    fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        event.trigger_ref().and_then(|trigger| self.0.group(trigger))
    }

    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> BoxFuture<'a, Result<(), HandlerError>> {
        let Some(trigger) = event.trigger_ref() else { return async { Ok(()) }.boxed() };
        async move { self.0.on_trigger(trigger).await.map_err(HandlerError::from) }.boxed()
    }
}
