//! A kind of object as a value, so that a watch needs no type parameter.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

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
    open: fn(Client, watcher::Config) -> BoxStream<'static, WatchResult>,
    decode: fn(Value) -> serde_json::Result<Arc<dyn Object>>,
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
            open: |client, config| {
                watcher(Api::<K>::all(client), config).map(|event| event.map(erase)).boxed()
            },
            decode: |object| Ok(share(serde_json::from_value::<K>(object)?)),
            event: event::<K>,
            missed: |identity| Event::<K>::Deleted(Tombstone::Missed(identity)).erase(),
        }
    }

    /// An object of this kind, as the watch would deliver it.
    pub fn decode(&self, object: Value) -> serde_json::Result<Arc<dyn Object>> {
        (self.decode)(object)
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
    match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(share(object)),
        watcher::Event::Delete(object) => watcher::Event::Delete(share(object)),
        watcher::Event::InitApply(object) => watcher::Event::InitApply(share(object)),
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitDone => watcher::Event::InitDone,
    }
}

/// Nobody here needs the `managedFields`, which are often the larger half of an object.
fn share<K>(mut object: K) -> Arc<dyn Object>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    object.meta_mut().managed_fields = None;
    Arc::new(object)
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
    fn an_object_is_decoded_as_the_watch_would_deliver_it() {
        let object =
            serde_json::json!({ "metadata": { "name": "web", "managedFields": [{ "manager": "m" }] } });
        let decoded = Kind::of::<Pod>().decode(object).unwrap();
        assert_eq!(
            (decoded.meta().name.as_deref(), decoded.meta().managed_fields.as_ref()),
            (Some("web"), None)
        );
        assert!(Kind::of::<Pod>().event(Change::Modified, decoded).is_some());
        assert!(Kind::of::<Pod>().decode(serde_json::json!({ "spec": 7 })).is_err());
    }

    #[test]
    fn an_object_of_another_kind_makes_no_event() {
        let object: Arc<dyn Object> = Arc::new(pod("default", "web"));
        assert!(Kind::of::<Service>().event(Change::Added, Arc::clone(&object)).is_none());
        assert!(Kind::of::<Pod>().event(Change::Added, object).is_some());
    }
}
