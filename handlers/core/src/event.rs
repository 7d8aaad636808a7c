//! What happened to an object, decoded once and shared by every handler.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use crate::message::{Change, Message, Subject};
use crate::object::{Identity, Object};

/// What happened to one object of kind `K`.
///
/// Events of all kinds travel through the chain as [`AnyEvent`](crate::AnyEvent).
pub enum Event<K> {
    /// The object is new to this process: it was created, or it existed when the process started.
    Added(Arc<K>),
    /// The object differs from the state that was delivered before.
    Modified(Arc<K>),
    /// The object is gone.
    Deleted(Tombstone<K>),
}

/// What is left of an object that is gone.
pub enum Tombstone<K> {
    /// The API server told of the deletion and sent the last state.
    Last(Arc<K>),
    /// The deletion happened while nobody watched; only this is known.
    Missed(Arc<Identity>),
}

impl<K> Event<K> {
    /// The object; none when it is gone and its last state was missed.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(Tombstone::Last(object)) => {
                Some(object)
            }
            Self::Deleted(Tombstone::Missed(_)) => None,
        }
    }
}

impl<K: Object> Tombstone<K> {
    /// The namespace, name and UID of what is gone.
    pub fn subject(&self) -> Subject<'_> {
        match self {
            Self::Last(object) => Subject::of(&**object),
            Self::Missed(identity) => identity.subject(),
        }
    }
}

impl<K: Object> Message for Event<K> {
    fn change(&self) -> Change {
        match self {
            Self::Added(_) => Change::Added,
            Self::Modified(_) => Change::Modified,
            Self::Deleted(_) => Change::Deleted,
        }
    }

    fn finalizing(&self) -> bool {
        match self {
            Self::Added(object) | Self::Modified(object) => object.meta().deletion_timestamp.is_some(),
            Self::Deleted(_) => true,
        }
    }

    fn subject(&self) -> Subject<'_> {
        match self {
            Self::Added(object) | Self::Modified(object) => Subject::of(&**object),
            Self::Deleted(tombstone) => tombstone.subject(),
        }
    }

    fn uid(&self) -> &str {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(Tombstone::Last(object)) => {
                object.meta().uid.as_deref().unwrap_or_default()
            }
            Self::Deleted(Tombstone::Missed(identity)) => &identity.uid,
        }
    }

    fn route(&self) -> TypeId {
        TypeId::of::<K>()
    }

    fn into_added(self) -> Self {
        match self {
            Self::Modified(object) => Self::Added(object),
            other => other,
        }
    }
}

impl<K> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(Arc::clone(object)),
            Self::Modified(object) => Self::Modified(Arc::clone(object)),
            Self::Deleted(tombstone) => Self::Deleted(tombstone.clone()),
        }
    }
}

impl<K> Clone for Tombstone<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Last(object) => Self::Last(Arc::clone(object)),
            Self::Missed(identity) => Self::Missed(Arc::clone(identity)),
        }
    }
}

impl<K: Object> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.change(), self.subject())
    }
}
