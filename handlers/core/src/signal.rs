//! News from elsewhere than a watch: a tunnel's heartbeat, a device that was looked at, a time that has come.

use std::future::Future;

use crate::failure::Failure;
use crate::message::OrderingKey;
use crate::object::Identity;

/// News of one object that no watch tells: only that there is a reason to look at it. What is to be seen there, the handler
/// finds where it keeps it; so a newer signal may stand for an older one, as a `Modified` does.
///
/// It travels as an [`AnyEvent`](crate::AnyEvent) through the same chain as the events of objects, from a [`Source`](crate::Source) to each
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
