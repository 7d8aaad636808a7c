//! The owners of resources: the Kubernetes objects for which drivers created them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::Uid;

/// The Kubernetes object for which a resource was created. A driver records it in the ownership mark of the resource, in OpenStack
/// a tag or a description. Two owners with the same UID are the same object. The default value has an empty UID and is no object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// The namespace of the object; empty for objects of the cluster, such as a Namespace.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The UID of the object. It is never reused, unlike the name.
    pub uid: Uid,
}

impl Owner {
    /// Returns the owner with the namespace, name and UID in `meta`. A part that is missing there is empty.
    pub fn of(meta: &ObjectMeta) -> Self {
        Self {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default().into(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// A resource with its owner, which normally is the one that the resource's ownership mark names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owned<T> {
    /// The owner; `None` if the ownership mark names no owner, as on a pooled resource, or if the resource has no mark.
    pub owner: Option<Owner>,
    /// The resource itself.
    pub resource: T,
}
