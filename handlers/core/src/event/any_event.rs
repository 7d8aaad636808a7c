//! Events of all kinds, and triggers, as one type. [`Event::erase`], [`AnyEvent::trigger`] and the decoding of a watched object erase
//! the type of an object or trigger; only [`AnyEvent::typed`] and [`AnyEvent::trigger_ref`] recover that type.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use super::message::{Change, Message, ObjectRef};
use super::object::{Identity, Object};
use super::trigger::Trigger;
use super::{Event, Tombstone};

/// An [`Event`] of an object of any kind, or a [`Trigger`]: the message type of the chain.
///
/// Clones are cheap: they share the object.
#[derive(Clone)]
pub enum AnyEvent {
    /// A change of an object, with the state of the object after the change. For [`Change::Deleted`], this is the last state.
    Object(Change, Arc<dyn Object>),
    /// The deletion of an object whose last state is not known, because the deletion happened while the watch was interrupted.
    Missed(Arc<Identity>),
    /// A request to reconcile an object. It does not come from a watch.
    Trigger(Arc<dyn Trigger>),
}

impl AnyEvent {
    /// Wraps a trigger and erases its type.
    pub fn trigger(trigger: impl Trigger) -> Self {
        Self::Trigger(Arc::new(trigger))
    }

    /// Returns the event with its type if it concerns an object of kind `K`; `None` for another kind or a trigger.
    pub fn typed<K: Object>(&self) -> Option<Event<K>> {
        match self {
            Self::Object(change, object) => {
                let object: Arc<dyn Any + Send + Sync> = Arc::<dyn Object>::clone(object);
                let object = object.downcast().ok()?;
                Some(match change {
                    Change::Added => Event::Added(object),
                    Change::Modified => Event::Modified(object),
                    Change::Deleted => Event::Deleted(Tombstone::Last(object)),
                })
            }
            Self::Missed(identity) if identity.type_id == TypeId::of::<K>() => {
                Some(Event::Deleted(Tombstone::Missed(Arc::clone(identity))))
            }
            Self::Missed(_) | Self::Trigger(_) => None,
        }
    }

    /// Returns the trigger if it has the type `S`; `None` for another type of trigger or the event of an object.
    pub fn trigger_ref<S: Trigger>(&self) -> Option<&S> {
        let Self::Trigger(trigger) = self else { return None };
        let trigger: &dyn Any = &**trigger;
        trigger.downcast_ref()
    }

    /// Returns the object; `None` for a deletion whose last state was missed, and for a trigger.
    pub fn object(&self) -> Option<&dyn Object> {
        if let Self::Object(_, object) = self { Some(&**object) } else { None }
    }

    /// Returns the identity of the object that the event or the trigger concerns.
    pub fn identity(&self) -> Identity {
        match self {
            Self::Object(_, object) => Identity::of_object(&**object),
            Self::Missed(identity) => Identity::clone(identity),
            Self::Trigger(trigger) => trigger.identity().clone(),
        }
    }
}

impl Message for AnyEvent {
    fn change(&self) -> Change {
        match self {
            Self::Object(change, _) => *change,
            Self::Missed(_) => Change::Deleted,
            Self::Trigger(_) => Change::Modified,
        }
    }

    fn finalizing(&self) -> bool {
        self.change() == Change::Deleted
            || self.object().is_some_and(|object| object.meta().deletion_timestamp.is_some())
    }

    fn is_trigger(&self) -> bool {
        matches!(self, Self::Trigger(_))
    }

    fn object_ref(&self) -> ObjectRef<'_> {
        match self {
            Self::Object(_, object) => ObjectRef::of(&**object),
            Self::Missed(identity) => identity.object_ref(),
            Self::Trigger(trigger) => trigger.identity().object_ref(),
        }
    }

    fn route(&self) -> TypeId {
        let any: &dyn Any = match self {
            Self::Object(_, object) => &**object,
            Self::Missed(identity) => return identity.type_id,
            Self::Trigger(trigger) => &**trigger,
        };
        any.type_id()
    }

    fn replacing(self, older: &Self) -> Self {
        match (self, older) {
            (Self::Object(Change::Modified, object), Self::Object(Change::Added, _)) => {
                Self::Object(Change::Added, object)
            }
            (Self::Missed(_), Self::Object(Change::Deleted, last)) => {
                Self::Object(Change::Deleted, Arc::clone(last))
            }
            (newer, _) => newer,
        }
    }
}

impl fmt::Debug for AnyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.change(), self.object_ref())
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
        assert!(event.typed::<Service>().is_none());
        assert_eq!(event.typed::<Pod>().expect("it is a pod").uid(), event.uid());
    }

    #[test]
    fn a_missed_deletion_keeps_its_kind() {
        let identity = Identity::of::<Pod>(Some("default".into()), "web".into(), "u1".into());
        let event = Event::<Pod>::Deleted(Tombstone::Missed(Arc::new(identity))).erase();
        assert!(event.typed::<Pod>().is_some());
        assert!(event.typed::<Service>().is_none());
        assert_eq!(format!("{event:?}"), "Deleted Pod default/web (u1)");
    }

    #[test]
    fn every_event_has_the_identity_of_its_object() {
        let object = Arc::new(pod("default", "web"));
        let identity = Event::Added(object).erase().identity();
        assert_eq!((&*identity.kind, &*identity.api_version), ("Pod", "v1"));
        assert_eq!((&*identity.name, identity.resource_version.as_deref()), ("web", Some("1")));
        let missed = Event::<Pod>::Deleted(Tombstone::Missed(Arc::new(identity.clone()))).erase();
        assert_eq!(missed.identity(), identity);
    }

    #[test]
    fn a_message_keeps_what_the_older_one_in_whose_place_it_is_handled_has_to_say() {
        let object = Arc::new(pod("default", "web"));
        let (added, modified) = (Event::Added(Arc::clone(&object)), Event::Modified(Arc::clone(&object)));
        let (added, modified) = (added.erase(), modified.erase());
        let missed = AnyEvent::Missed(Arc::new(added.identity()));
        let deleted = Event::Deleted(Tombstone::Last(object)).erase();
        assert_eq!(modified.clone().replacing(&added).change(), Change::Added);
        assert_eq!(modified.clone().replacing(&modified).change(), Change::Modified);
        assert_eq!(deleted.clone().replacing(&added).change(), Change::Deleted);
        assert!(missed.clone().replacing(&deleted).object().is_some(), "the last state is not lost");
        assert!(missed.clone().replacing(&modified).object().is_none(), "that was not the last state");
    }
}
