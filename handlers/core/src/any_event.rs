//! Events of all kinds, and signals, as one type.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use crate::event::{Event, Tombstone};
use crate::message::{Change, Message, Subject};
use crate::object::{Identity, Object};
use crate::signal::Signal;

/// What happened to one object of any kind, or a [`Signal`] about one: the form in which events travel through the chain.
///
/// A copy is a reference; whoever looks at the event looks at the one that the watch made.
#[derive(Clone)]
pub struct AnyEvent(Arc<dyn Erased>);

impl AnyEvent {
    /// The typed event; none when it is of another kind, or a signal. Here and below are the only places where a type is recovered.
    pub fn downcast_ref<K: 'static>(&self) -> Option<&Event<K>> {
        self.0.any().downcast_ref()
    }

    /// A signal in the form in which it travels.
    pub fn signal(signal: impl Signal) -> Self {
        Self(Arc::new(Signalled(signal)))
    }

    /// The typed signal; none when it is of another type, or the event of an object.
    pub fn signal_ref<S: Signal>(&self) -> Option<&S> {
        self.0.any().downcast_ref::<Signalled<S>>().map(|signalled| &signalled.0)
    }

    /// The object; none when it is gone and its last state was missed, and for a signal.
    pub fn object(&self) -> Option<&dyn Object> {
        self.0.object()
    }

    /// Which object it is about.
    pub fn identity(&self) -> Identity {
        self.0.identity()
    }
}

impl<K: Object> Event<K> {
    /// The same event in the form in which it travels.
    pub fn erase(self) -> AnyEvent {
        AnyEvent(Arc::new(self))
    }
}

/// An event whose type is erased: what [`Message`] asks, and the way back.
trait Erased: Send + Sync {
    fn any(&self) -> &dyn Any;
    fn object(&self) -> Option<&dyn Object>;
    fn identity(&self) -> Identity;
    fn change(&self) -> Change;
    fn finalizing(&self) -> bool;
    fn subject(&self) -> Subject<'_>;
    fn uid(&self) -> &str;
    fn route(&self) -> TypeId;
    fn added(&self) -> AnyEvent;
}

impl<K: Object> Erased for Event<K> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn object(&self) -> Option<&dyn Object> {
        Event::object(self).map(|object| &**object as &dyn Object)
    }

    fn identity(&self) -> Identity {
        match self {
            Event::Added(object) | Event::Modified(object) | Event::Deleted(Tombstone::Last(object)) => {
                Identity::of_object(&**object)
            }
            Event::Deleted(Tombstone::Missed(identity)) => Identity::clone(identity),
        }
    }

    fn change(&self) -> Change {
        Message::change(self)
    }

    fn finalizing(&self) -> bool {
        Message::finalizing(self)
    }

    fn subject(&self) -> Subject<'_> {
        Message::subject(self)
    }

    fn uid(&self) -> &str {
        Message::uid(self)
    }

    fn route(&self) -> TypeId {
        Message::route(self)
    }

    fn added(&self) -> AnyEvent {
        self.clone().into_added().erase()
    }
}

/// A signal on its way. It is always a `Modified`: what was seen before may be forgotten for it.
struct Signalled<S>(S);

impl<S: Signal> Erased for Signalled<S> {
    fn any(&self) -> &dyn Any {
        self
    }

    fn object(&self) -> Option<&dyn Object> {
        None
    }

    fn identity(&self) -> Identity {
        self.0.identity().clone()
    }

    fn change(&self) -> Change {
        Change::Modified
    }

    fn finalizing(&self) -> bool {
        false
    }

    fn subject(&self) -> Subject<'_> {
        self.0.identity().subject()
    }

    fn uid(&self) -> &str {
        &self.0.identity().uid
    }

    fn route(&self) -> TypeId {
        TypeId::of::<S>()
    }

    fn added(&self) -> AnyEvent {
        AnyEvent::signal(self.0.clone())
    }
}

impl Message for AnyEvent {
    fn change(&self) -> Change {
        self.0.change()
    }

    fn finalizing(&self) -> bool {
        self.0.finalizing()
    }

    fn subject(&self) -> Subject<'_> {
        self.0.subject()
    }

    fn uid(&self) -> &str {
        self.0.uid()
    }

    fn route(&self) -> TypeId {
        self.0.route()
    }

    fn into_added(self) -> Self {
        if self.change() == Change::Modified { self.0.added() } else { self }
    }
}

impl fmt::Debug for AnyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.change(), self.subject())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};

    use super::*;
    use crate::testing::pod;

    #[test]
    fn an_erased_event_is_recovered_as_its_own_kind_only() {
        let event = Event::Added(Arc::new(pod("default", "web"))).erase();
        assert!(event.downcast_ref::<Service>().is_none());
        let typed = event.downcast_ref::<Pod>().expect("it is a pod");
        assert_eq!(Message::uid(typed), event.uid());
    }

    #[test]
    fn a_missed_deletion_keeps_its_kind() {
        let identity = Identity::of::<Pod>(Some("default".into()), "web".into(), "u1".into());
        let event = Event::<Pod>::Deleted(Tombstone::Missed(Arc::new(identity))).erase();
        assert!(event.downcast_ref::<Pod>().is_some());
        assert!(event.downcast_ref::<Service>().is_none());
        assert_eq!(format!("{event:?}"), "Deleted Pod default/web (u1)");
    }

    #[test]
    fn every_event_knows_which_object_it_is_about() {
        let object = Arc::new(pod("default", "web"));
        let identity = Event::Added(object).erase().identity();
        assert_eq!((&*identity.kind, &*identity.api_version), ("Pod", "v1"));
        assert_eq!((&*identity.name, identity.resource_version.as_deref()), ("web", Some("1")));
        let missed = Event::<Pod>::Deleted(Tombstone::Missed(Arc::new(identity.clone()))).erase();
        assert_eq!(missed.identity(), identity);
    }

    #[test]
    fn only_a_modified_becomes_an_added() {
        let object = Arc::new(pod("default", "web"));
        assert_eq!(Event::Modified(Arc::clone(&object)).erase().into_added().change(), Change::Added);
        assert_eq!(Event::Deleted(Tombstone::Last(object)).erase().into_added().change(), Change::Deleted);
    }
}
