//! A kind of object as a value, so that a watch needs no type parameter.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::any_event::AnyEvent;
use crate::event::{Event, Tombstone};
use crate::message::Change;
use crate::object::{Identity, Object};

/// What a watch says of objects whose type is erased.
pub type WatchResult = Result<watcher::Event<Arc<dyn Object>>, watcher::Error>;

/// A kind of object: its name and how it is watched.
#[derive(Clone)]
pub struct Kind {
    /// The Rust type.
    pub type_id: TypeId,
    /// The kind, as in the field `kind`: `Pod`.
    pub name: Cow<'static, str>,
    /// The group and version, as in the field `apiVersion`: `v1`.
    pub api_version: Cow<'static, str>,
    /// Where the API server has all objects of it: `/api/v1/pods`.
    pub path: String,
    open: fn(Client, watcher::Config) -> BoxStream<'static, WatchResult>,
    event: fn(Change, Arc<dyn Object>) -> Option<AnyEvent>,
    missed: fn(Arc<Identity>) -> AnyEvent,
}

impl Kind {
    /// The kind of `K`.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        Self {
            type_id: TypeId::of::<K>(),
            name: K::kind(&()),
            api_version: K::api_version(&()),
            path: K::url_path(&(), None),
            open: |client, config| {
                watcher(Api::<K>::all(client), config).map(|event| event.map(erase)).boxed()
            },
            event: event::<K>,
            missed: |identity| Event::<K>::Deleted(Tombstone::Missed(identity)).erase(),
        }
    }

    /// What happened to an object of this kind; none when it is of another.
    pub fn event(&self, change: Change, object: Arc<dyn Object>) -> Option<AnyEvent> {
        (self.event)(change, object)
    }

    /// The deletion of an object of this kind that nobody saw.
    pub fn missed(&self, identity: Identity) -> AnyEvent {
        (self.missed)(Arc::new(identity))
    }

    /// Watches all objects of this kind. Each is decoded once, and loses its `managedFields` at once.
    pub fn watch(&self, client: Client, config: watcher::Config) -> BoxStream<'static, WatchResult> {
        (self.open)(client, config)
    }
}

fn event<K>(change: Change, object: Arc<dyn Object>) -> Option<AnyEvent>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let object: Arc<dyn Any + Send + Sync> = object;
    let object = object.downcast::<K>().ok()?;
    let event = match change {
        Change::Added => Event::Added(object),
        Change::Modified => Event::Modified(object),
        Change::Deleted => Event::Deleted(Tombstone::Last(object)),
    };
    Some(event.erase())
}

fn erase<K>(event: watcher::Event<K>) -> watcher::Event<Arc<dyn Object>>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let share = |mut object: K| -> Arc<dyn Object> {
        object.meta_mut().managed_fields = None;
        Arc::new(object)
    };
    match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(share(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(share(object)),
        watcher::Event::InitApply(object) => watcher::Event::InitApply(share(object)),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
    }
}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.api_version, self.name)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Pod, Service};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

    use super::*;
    use crate::testing::pod;

    #[test]
    fn managed_fields_are_dropped_as_soon_as_an_object_is_decoded() {
        let mut object = pod("default", "web");
        object.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
        for said in [watcher::Event::Apply(object.clone()), watcher::Event::InitApply(object)] {
            let (watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = erase(said) else {
                panic!("it stays what it was");
            };
            assert_eq!(
                (object.meta().managed_fields.as_ref(), object.meta().name.as_deref()),
                (None, Some("web"))
            );
        }
    }

    #[test]
    fn an_object_of_another_kind_makes_no_event() {
        let object: Arc<dyn Object> = Arc::new(pod("default", "web"));
        assert!(Kind::of::<Service>().event(Change::Added, Arc::clone(&object)).is_none());
        assert!(Kind::of::<Pod>().event(Change::Added, object).is_some());
    }
}
