//! Objects whose type is erased, and the identity of an object.

use std::any::{Any, TypeId};
use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::message::ObjectRef;

/// A Kubernetes object whose type is erased.
///
/// The trait is implemented for every type that implements [`Resource`] with a static kind: `Pod`, or a custom resource with
/// `#[derive(CustomResource)]`.
pub trait Object: Any + Send + Sync {
    /// Returns the kind, as in the field `kind`: `Pod`.
    fn kind(&self) -> Cow<'static, str>;
    /// Returns the group and version, as in the field `apiVersion`: `v1`, `apps/v1`.
    fn api_version(&self) -> Cow<'static, str>;
    /// Returns the metadata of the object: names, UID, labels, annotations.
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

impl<'a> ObjectRef<'a> {
    /// Returns the kind, names and UID of `object`. A missing name or UID becomes an empty string.
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

/// The identity of an object: type, names, UID and last known resourceVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The Rust type of the object.
    pub type_id: TypeId,
    /// The kind of the object, as in its field `kind`.
    pub kind: Cow<'static, str>,
    /// The group and version of the object, as in its field `apiVersion`.
    pub api_version: Cow<'static, str>,
    /// The namespace of the object; `None` for a cluster-scoped object.
    pub namespace: Option<String>,
    /// The name of the object.
    pub name: String,
    /// The UID of the object.
    pub uid: String,
    /// The last known resourceVersion; `None` if no state of the object is known, or if the watch missed its deletion.
    pub resource_version: Option<String>,
}

impl Identity {
    /// Makes the identity of an object of kind `K`, without a resourceVersion.
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

    /// Copies the identity from the metadata of `object`. A missing name or UID becomes an empty string.
    pub fn of_object(object: &dyn Object) -> Self {
        let (meta, any): (_, &dyn Any) = (object.meta(), object);
        Self {
            type_id: any.type_id(),
            kind: object.kind(),
            api_version: object.api_version(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            resource_version: meta.resource_version.clone(),
        }
    }

    /// Returns the kind, names and UID of the object, for log lines.
    pub fn object_ref(&self) -> ObjectRef<'_> {
        ObjectRef {
            kind: self.kind.clone(),
            namespace: self.namespace.as_deref(),
            name: &self.name,
            uid: &self.uid,
        }
    }
}
