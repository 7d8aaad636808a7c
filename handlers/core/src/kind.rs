//! A kind of object as a value, so that a watch needs no type parameter.

use std::any::{Any, TypeId};
use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryFutureExt};
use kube::api::ListParams;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

use crate::any_event::AnyEvent;
use crate::event::{Event, Tombstone};
use crate::message::Change;
use crate::object::{Identity, Object};
use crate::sighting::{Decoded, Sighting};

/// What a watch says of objects whose type is erased.
pub type WatchResult = Result<watcher::Event<Sighting>, watcher::Error>;

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
    newest: fn(Client) -> BoxFuture<'static, Result<String, kube::Error>>,
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
                watcher(Api::<Decoded<K>>::all(client), config).map(|event| event.map(erase)).boxed()
            },
            newest: |client| {
                let first = ListParams::default().limit(1);
                let list = async move { Api::<K>::all(client).list_metadata(&first).await };
                list.map_ok(|list| list.metadata.resource_version.unwrap_or_default()).boxed()
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

    /// Watches all objects of this kind. Each is decoded once, by itself, and loses its `managedFields` at once.
    pub fn watch(&self, client: Client, config: watcher::Config) -> BoxStream<'static, WatchResult> {
        (self.open)(client, config)
    }

    /// The resourceVersion at which the server is now.
    pub async fn newest(&self, client: Client) -> Result<String, kube::Error> {
        (self.newest)(client).await
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

fn erase<K>(event: watcher::Event<Decoded<K>>) -> watcher::Event<Sighting>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(object.share()),
        watcher::Event::Delete(object) => watcher::Event::Delete(object.share()),
        watcher::Event::InitApply(object) => watcher::Event::InitApply(object.share()),
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

    use super::*;
    use crate::testing::pod;

    #[test]
    fn an_object_of_another_kind_makes_no_event() {
        let object: Arc<dyn Object> = Arc::new(pod("default", "web"));
        assert!(Kind::of::<Service>().event(Change::Added, Arc::clone(&object)).is_none());
        assert!(Kind::of::<Pod>().event(Change::Added, object).is_some());
    }
}
