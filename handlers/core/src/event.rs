//! What happened to an object, decoded once and shared by every handler.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::message::{Change, Message, Subject};

/// A Kubernetes object whose type has been erased.
///
/// It is implemented for every typed resource (`Pod`, a custom resource with `#[derive(CustomResource)]`, ...), so
/// nobody implements it by hand.
pub trait Object: Any + Send + Sync {
    /// The kind, as in the field `kind`: `Pod`.
    fn kind(&self) -> Cow<'static, str>;
    /// The group and version, as in the field `apiVersion`: `v1`, `apps/v1`.
    fn api_version(&self) -> Cow<'static, str>;
    /// The object's metadata.
    fn meta(&self) -> &ObjectMeta;
}

impl<K> Object for K
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    fn kind(&self) -> Cow<'static, str> {
        K::kind(&())
    }

    fn api_version(&self) -> Cow<'static, str> {
        K::api_version(&())
    }

    fn meta(&self) -> &ObjectMeta {
        Resource::meta(self)
    }
}

impl<'a> Subject<'a> {
    /// The subject of a message about `object`.
    pub fn of(object: &'a (impl Object + ?Sized)) -> Self {
        let meta = object.meta();
        Self {
            kind: object.kind(),
            namespace: meta.namespace.as_deref(),
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
        }
    }
}

/// What happened to one object of kind `K`.
///
/// Events of all kinds travel through the chain as [`AnyEvent`]; [`Event::erase`] and [`AnyEvent::downcast`] lead from
/// one to the other.
pub enum Event<K: ?Sized> {
    /// The object is new to this process: it was created, or it existed when the process started.
    Added(Arc<K>),
    /// The object differs from the state that was delivered before.
    Modified(Arc<K>),
    /// The object is gone.
    Deleted(Tombstone<K>),
}

/// What is left of an object that is gone.
pub enum Tombstone<K: ?Sized> {
    /// The API server told of the deletion and sent the last state.
    Last(Arc<K>),
    /// The deletion happened while nobody watched; only this is known.
    Missed(Arc<Identity>),
}

/// Which object it was, when the object itself is not at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The Rust type of the object.
    pub type_id: TypeId,
    /// The kind, as in the field `kind`.
    pub kind: Cow<'static, str>,
    /// The namespace; none for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// The last resourceVersion that was seen.
    pub resource_version: Option<String>,
}

impl Identity {
    /// The identity of an object of kind `K`.
    pub fn of<K>(namespace: Option<String>, name: String, uid: String) -> Self
    where
        K: Resource<DynamicType = ()> + 'static,
    {
        Self { type_id: TypeId::of::<K>(), kind: K::kind(&()), namespace, name, uid, resource_version: None }
    }
}

impl<K: ?Sized> Event<K> {
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

impl<K> Event<K>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    /// The same event in the form in which it travels.
    pub fn erase(self) -> AnyEvent {
        AnyEvent(match self {
            Self::Added(object) => Event::Added(object),
            Self::Modified(object) => Event::Modified(object),
            Self::Deleted(Tombstone::Last(object)) => Event::Deleted(Tombstone::Last(object)),
            Self::Deleted(Tombstone::Missed(identity)) => Event::Deleted(Tombstone::Missed(identity)),
        })
    }
}

/// What happened to one object of any kind.
#[derive(Clone)]
pub struct AnyEvent(Event<dyn Object>);

impl AnyEvent {
    /// The object; none when it is gone and its last state was missed.
    pub fn object(&self) -> Option<&Arc<dyn Object>> {
        self.0.object()
    }

    /// The typed event; none when it is of another kind. This is the one place where a type is recovered.
    pub fn downcast<K>(&self) -> Option<Event<K>>
    where
        K: Resource<DynamicType = ()> + Send + Sync + 'static,
    {
        fn typed<K: Send + Sync + 'static>(object: &Arc<dyn Object>) -> Option<Arc<K>> {
            let any: Arc<dyn Any + Send + Sync> = Arc::<dyn Object>::clone(object);
            any.downcast().ok()
        }
        match &self.0 {
            Event::Added(object) => typed(object).map(Event::Added),
            Event::Modified(object) => typed(object).map(Event::Modified),
            Event::Deleted(Tombstone::Last(object)) => {
                typed(object).map(|object| Event::Deleted(Tombstone::Last(object)))
            }
            Event::Deleted(Tombstone::Missed(identity)) => (identity.type_id == TypeId::of::<K>())
                .then(|| Event::Deleted(Tombstone::Missed(Arc::clone(identity)))),
        }
    }
}

impl From<Event<dyn Object>> for AnyEvent {
    fn from(event: Event<dyn Object>) -> Self {
        Self(event)
    }
}

impl<K: ?Sized + Object> Tombstone<K> {
    /// The namespace, name and UID of what is gone.
    pub fn subject(&self) -> Subject<'_> {
        match self {
            Self::Last(object) => Subject::of(&**object),
            Self::Missed(identity) => Subject {
                kind: identity.kind.clone(),
                namespace: identity.namespace.as_deref(),
                name: &identity.name,
                uid: &identity.uid,
            },
        }
    }
}

impl<K: ?Sized + Object> Message for Event<K> {
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
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(Tombstone::Last(object)) => {
                Any::type_id(&**object)
            }
            Self::Deleted(Tombstone::Missed(identity)) => identity.type_id,
        }
    }

    fn into_added(self) -> Self {
        match self {
            Self::Modified(object) => Self::Added(object),
            other => other,
        }
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
        Self(self.0.into_added())
    }
}

impl fmt::Debug for AnyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<K: ?Sized> Clone for Event<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(Arc::clone(object)),
            Self::Modified(object) => Self::Modified(Arc::clone(object)),
            Self::Deleted(tombstone) => Self::Deleted(tombstone.clone()),
        }
    }
}

impl<K: ?Sized> Clone for Tombstone<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Last(object) => Self::Last(Arc::clone(object)),
            Self::Missed(identity) => Self::Missed(Arc::clone(identity)),
        }
    }
}

impl<K: ?Sized + Object> fmt::Debug for Event<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.change(), self.subject())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};

    use super::*;

    fn pod(uid: &str) -> Arc<Pod> {
        let metadata =
            ObjectMeta { uid: Some(uid.into()), name: Some("web".into()), ..ObjectMeta::default() };
        Arc::new(Pod { metadata, ..Pod::default() })
    }

    #[test]
    fn an_erased_event_is_recovered_as_its_own_kind_only() {
        let event = Event::Added(pod("u1")).erase();
        assert!(event.downcast::<Service>().is_none());
        let typed = event.downcast::<Pod>().expect("it is a pod");
        assert_eq!(typed.uid(), "u1");
    }

    #[test]
    fn a_missed_deletion_keeps_its_kind() {
        let identity = Identity::of::<Pod>(Some("default".into()), "web".into(), "u1".into());
        let event = Event::<Pod>::Deleted(Tombstone::Missed(Arc::new(identity))).erase();
        assert!(event.downcast::<Pod>().is_some());
        assert!(event.downcast::<Service>().is_none());
        assert_eq!(format!("{event:?}"), "Deleted Pod default/web (u1)");
    }
}
