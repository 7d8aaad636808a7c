//! News from elsewhere than a watch: a tunnel's heartbeat, a device that was looked at, a time that has come.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use crate::any_event::AnyEvent;
use crate::failure::{Failure, HandlerError};
use crate::message::OrderingKey;
use crate::object::Identity;
use crate::resource::{Delivery, Erased};

/// News of one object that no watch tells: only that there is a reason to look at it. What is to be seen there, the handler
/// finds where it keeps it; so a newer signal may stand for an older one, as a `Modified` does.
///
/// It travels as an [`AnyEvent`] through the same chain as the events of objects, from a [`Source`](crate::Source) to each
/// handler that registered for it ([`Registration::on_signal`](crate::Registration::on_signal)).
pub trait Signal: Clone + Send + Sync + 'static {
    /// The object, as a person finds it: a Kubernetes Event about it is about that object. Two signals with one UID are
    /// about one object.
    fn identity(&self) -> &Identity;
}

/// A handler of signals of one type.
pub trait SignalHandler<S: Signal>: Send + Sync + 'static {
    /// What can go wrong.
    type Error: Failure;

    /// What decides which events are handled one after the other; by default each object has a queue of its own.
    fn key(&self, signal: &S) -> OrderingKey {
        OrderingKey::of(&*signal.identity().uid)
    }

    /// With which events this one shares the bound on what runs at a time; see [`ResourceEventHandler::group`](crate::ResourceEventHandler::group).
    fn group(&self, signal: &S) -> Option<OrderingKey> {
        let _ = signal;
        None
    }

    /// There is a reason to look at the object.
    fn on_signal(&self, signal: &S) -> impl Future<Output = Result<(), Self::Error>> + Send;
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
