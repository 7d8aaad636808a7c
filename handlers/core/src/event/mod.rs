//! Events: a change of an object, decoded once and shared by all handlers.

mod any_event;
mod decode;
mod kind;
mod message;
mod object;
mod trigger;

pub use any_event::AnyEvent;
pub(crate) use decode::WithMetadata;
pub use decode::{Undecodable, WatchItem, truncated};
pub use kind::{Kind, WatchResult};
pub(crate) use message::KeyHasher;
pub use message::{Change, Message, ObjectRef, OrderingKey, full_name};
pub use object::{Identity, Object};
pub use trigger::Trigger;

use std::sync::Arc;

/// A change of an object of kind `K`.
///
/// Events of all kinds travel through the chain as [`AnyEvent`].
#[derive(Clone)]
pub enum Event<K> {
    /// The object is new to this process: it was created, or it existed when the process started.
    Added(Arc<K>),
    /// The object differs from the state that was delivered last.
    Modified(Arc<K>),
    /// The object was deleted.
    Deleted(Tombstone<K>),
}

/// The last known state of a deleted object.
#[derive(Clone)]
pub enum Tombstone<K> {
    /// The last state, as the API server sent it with the deletion.
    Last(Arc<K>),
    /// Only the identity, because the deletion happened while the watch was interrupted.
    Missed(Arc<Identity>),
}

impl<K: Object> Event<K> {
    /// Returns the object; `None` for a deletion during an interruption of the watch, of which only the identity is known.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(Tombstone::Last(object)) => {
                Some(object)
            }
            Self::Deleted(Tombstone::Missed(_)) => None,
        }
    }

    /// Returns the kind, names and UID of the object, for log lines.
    pub fn object_ref(&self) -> ObjectRef<'_> {
        match self {
            Self::Added(object) | Self::Modified(object) => ObjectRef::of(&**object),
            Self::Deleted(tombstone) => tombstone.object_ref(),
        }
    }

    /// Returns the UID of the object.
    pub fn uid(&self) -> &str {
        self.object_ref().uid
    }

    /// Erases the type of the object.
    pub fn erase(self) -> AnyEvent {
        match self {
            Self::Added(object) => AnyEvent::Object(Change::Added, object),
            Self::Modified(object) => AnyEvent::Object(Change::Modified, object),
            Self::Deleted(Tombstone::Last(object)) => AnyEvent::Object(Change::Deleted, object),
            Self::Deleted(Tombstone::Missed(identity)) => AnyEvent::Missed(identity),
        }
    }
}

impl<K: Object> Tombstone<K> {
    /// Returns the kind, names and UID of the deleted object, for log lines.
    pub fn object_ref(&self) -> ObjectRef<'_> {
        match self {
            Self::Last(object) => ObjectRef::of(&**object),
            Self::Missed(identity) => identity.object_ref(),
        }
    }
}
