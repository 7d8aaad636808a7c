//! Objects whose type has been erased, and what is left of one that is not at hand.

use std::any::{Any, TypeId};
use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use crate::message::Subject;

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

/// Which object it was, when the object itself is not at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The Rust type of the object.
    pub type_id: TypeId,
    /// The kind, as in the field `kind`.
    pub kind: Cow<'static, str>,
    /// The group and version, as in the field `apiVersion`.
    pub api_version: Cow<'static, str>,
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
        Self {
            type_id: TypeId::of::<K>(),
            kind: K::kind(&()),
            api_version: K::api_version(&()),
            namespace,
            name,
            uid,
            resource_version: None,
        }
    }

    /// The identity of an object that is at hand.
    pub fn of_object<K: Object>(object: &K) -> Self {
        let meta = object.meta();
        Self {
            type_id: TypeId::of::<K>(),
            kind: object.kind(),
            api_version: object.api_version(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone(),
        }
    }

    /// Whom it is, for people.
    pub fn subject(&self) -> Subject<'_> {
        Subject {
            kind: self.kind.clone(),
            namespace: self.namespace.as_deref(),
            name: &self.name,
            uid: &self.uid,
        }
    }
}
