//! Ownership by controllers.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::{Resource, ResourceExt};

/// The reference that a dependent carries.
pub(crate) fn controlled_by<K: Resource<DynamicType = ()>>(owner: &K) -> Vec<OwnerReference> {
    let reference = owner.controller_owner_ref(&());
    reference
        .map(|reference| OwnerReference { block_owner_deletion: Some(true), ..reference })
        .into_iter()
        .collect()
}

/// Those of `all` that `owner` controls.
pub(crate) fn dependents<K: Resource, O: Resource>(owner: &O, all: &[Arc<K>]) -> Vec<Arc<K>> {
    let of_owner = |object: &&Arc<K>| {
        let mut references = object.owner_references().iter();
        let controller = references.find(|reference| reference.controller == Some(true));
        controller.is_some_and(|controller| Some(&controller.uid) == owner.meta().uid.as_ref())
    };
    all.iter().filter(of_owner).cloned().collect()
}

/// The age of an object, for sorting; one without a time is the youngest.
pub(crate) fn created(object: &impl Resource) -> (bool, Option<Time>) {
    let created = object.meta().creation_timestamp.clone();
    (created.is_none(), created)
}
