//! Handlers without their types, as a registration keeps them.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;

use kube::Resource;

use crate::any_event::AnyEvent;
use crate::failure::HandlerError;
use crate::message::{Message, OrderingKey};
use crate::resource::{ResourceEventHandler, deliver};
use crate::signal::{Signal, SignalHandler};

/// A handler of events of one kind, or of signals of one type, whose types are erased.
pub(crate) trait Erased: Send + Sync {
    fn wants(&self, event: &AnyEvent) -> bool;
    fn key(&self, event: &AnyEvent) -> OrderingKey;
    fn group(&self, event: &AnyEvent) -> Option<OrderingKey>;
    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> Delivery<'a>;
}

pub(crate) type Delivery<'a> = Pin<Box<dyn Future<Output = Result<(), HandlerError>> + Send + 'a>>;

/// A handler together with the kind for which it is registered.
pub(crate) struct Typed<K, H> {
    handler: Arc<H>,
    kind: PhantomData<fn(K)>,
}

impl<K, H> Typed<K, H> {
    pub(crate) fn new(handler: Arc<H>) -> Self {
        Self { handler, kind: PhantomData }
    }
}

impl<K, H> Erased for Typed<K, H>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
    H: ResourceEventHandler<K>,
{
    fn wants(&self, event: &AnyEvent) -> bool {
        event.downcast_ref().is_some_and(|event| self.handler.wants(event))
    }

    fn key(&self, event: &AnyEvent) -> OrderingKey {
        event.downcast_ref().map_or_else(|| OrderingKey::of(event.uid()), |event| self.handler.key(event))
    }

    fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        event.downcast_ref().and_then(|event| self.handler.group(event))
    }

    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> Delivery<'a> {
        Box::pin(async move {
            match event.downcast_ref() {
                Some(event) => deliver(&*self.handler, event).await.map_err(HandlerError::from),
                None => Ok(()),
            }
        })
    }
}

/// A [`SignalHandler`] together with the signal for which it is registered.
pub(crate) struct Signalled<S, H> {
    handler: Arc<H>,
    signal: PhantomData<fn(S)>,
}

impl<S, H> Signalled<S, H> {
    pub(crate) fn new(handler: Arc<H>) -> Self {
        Self { handler, signal: PhantomData }
    }
}

impl<S: Signal, H: SignalHandler<S>> Erased for Signalled<S, H> {
    fn wants(&self, event: &AnyEvent) -> bool {
        event.signal_ref::<S>().is_some()
    }

    fn key(&self, event: &AnyEvent) -> OrderingKey {
        event.signal_ref().map_or_else(|| OrderingKey::of(""), |signal| self.handler.key(signal))
    }

    fn group(&self, event: &AnyEvent) -> Option<OrderingKey> {
        event.signal_ref().and_then(|signal| self.handler.group(signal))
    }

    fn deliver<'a>(&'a self, event: &'a AnyEvent) -> Delivery<'a> {
        Box::pin(async move {
            match event.signal_ref() {
                Some(signal) => self.handler.on_signal(signal).await.map_err(HandlerError::from),
                None => Ok(()),
            }
        })
    }
}
