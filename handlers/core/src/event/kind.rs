//! A Kubernetes kind as a value, so that the code that watches objects needs no type parameter.

use std::any::TypeId;
use std::borrow::Cow;

use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::{ListParams, Request};
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::decode::{Decoded, WatchItem, WithMetadata};

/// An item of a watch stream, with objects whose type is erased, or an error of the watch.
pub type WatchResult = Result<watcher::Event<WatchItem>, watcher::Error>;

/// A Kubernetes kind: its names, and the functions that watch and decode its objects.
#[derive(Clone)]
pub struct Kind {
    /// The Rust type of the objects of this kind.
    pub type_id: TypeId,
    /// The kind, as in the field `kind`: `Pod`.
    pub name: Cow<'static, str>,
    /// The group and version, as in the field `apiVersion`: `v1`.
    pub api_version: Cow<'static, str>,
    /// The URL path of the list of all objects in all namespaces: `/api/v1/pods`.
    pub path: String,
    /// The field selector of the objects to watch, such as `spec.nodeName=node-1`; `None` for all objects.
    pub field_selector: Option<String>,
    /// The label selector of the objects to watch, such as `app=web`; `None` for all objects.
    pub label_selector: Option<String>,
    watch: fn(Client, watcher::Config) -> BoxStream<'static, WatchResult>,
    decode: fn(Value) -> serde_json::Result<WatchItem>,
}

impl Kind {
    /// Returns the [`Kind`] whose objects have the Rust type `K`.
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + Sync + 'static,
    {
        Self {
            type_id: TypeId::of::<K>(),
            name: K::kind(&()),
            api_version: K::api_version(&()),
            path: K::url_path(&(), None),
            field_selector: None,
            label_selector: None,
            watch: |client, config| {
                watcher(Api::<Decoded<K>>::all(client), config).map(|event| event.map(erase)).boxed()
            },
            decode: |object| serde_json::from_value::<Decoded<K>>(object).map(Decoded::into_item),
        }
    }

    /// Decodes one object of this kind in the same way as [`watch`](Self::watch). Returns an error only if the metadata
    /// cannot be decoded, or has no name or UID.
    pub fn decode(&self, object: Value) -> serde_json::Result<WatchItem> {
        (self.decode)(object)
    }

    /// Lists and watches the objects of this kind in all namespaces. The selectors of this kind replace those in `config`; if it has none,
    /// all objects are watched. Each object is decoded separately, without its `managedFields`.
    pub fn watch(&self, client: Client, mut config: watcher::Config) -> BoxStream<'static, WatchResult> {
        config.field_selector.clone_from(&self.field_selector);
        config.label_selector.clone_from(&self.label_selector);
        (self.watch)(client, config)
    }

    /// Returns the current resourceVersion of the API server for this kind: that of a list with at most one object. The list has the
    /// selectors of the watch, because the rights of the program may cover no other objects.
    pub async fn newest(&self, client: Client) -> Result<String, kube::Error> {
        let selected = ListParams {
            field_selector: self.field_selector.clone(),
            label_selector: self.label_selector.clone(),
            ..ListParams::default()
        };
        let request = Request::new(&*self.path).list_metadata(&selected.limit(1));
        let list =
            client.request::<WithMetadata<ListMeta>>(request.map_err(kube::Error::BuildRequest)?).await?;
        Ok(list.metadata.resource_version.unwrap_or_default())
    }
}

/// Erases the type of the object in a watch event.
fn erase<K>(event: watcher::Event<Decoded<K>>) -> watcher::Event<WatchItem>
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    match event {
        watcher::Event::Apply(object) => watcher::Event::Apply(object.into_item()),
        watcher::Event::Delete(object) => watcher::Event::Delete(object.into_item()),
        watcher::Event::InitApply(object) => watcher::Event::InitApply(object.into_item()),
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
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_decoded_as_by_a_watch() {
        let object = |spec: Value| {
            let meta = json!({ "name": "web", "uid": "u1", "managedFields": [{ "manager": "m" }] });
            Kind::of::<Pod>().decode(json!({ "metadata": meta, "spec": spec }))
        };
        let Ok(WatchItem::Object(pod)) = object(json!({ "containers": [] })) else { panic!("it is a pod") };
        assert_eq!((pod.meta().name.as_deref(), &pod.meta().managed_fields), (Some("web"), &None));
        assert!(matches!(object(json!(7)), Ok(WatchItem::Undecodable(_))));
        assert!(Kind::of::<Pod>().decode(json!({ "spec": 7 })).is_err());
    }
}
