//! Conversions between an [`Owner`], which the ownership mark (tag or label) of a resource names,
//! and an [`Identity`], which identifies a Kubernetes object in the handler chain.

use std::collections::HashMap;

use kube::Resource;
use staffetta_driver::Owner;
use staffetta_handler::{Identity, Tombstone};

/// Returns the [`Owner`] that the resources of a deleted object have in their ownership marks.
pub(crate) fn owner_of<K>(tombstone: &Tombstone<K>) -> Owner
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let object_ref = tombstone.object_ref();
    Owner {
        namespace: object_ref.namespace.unwrap_or_default().to_owned(),
        name: object_ref.name.to_owned(),
        uid: object_ref.uid.into(),
    }
}

/// Returns the identity of the object of kind `K` that `owner` names. The namespace of a
/// cluster-scoped object is empty in `owner` and `None` in the identity.
pub(crate) fn identity<K: Resource<DynamicType = ()> + 'static>(owner: Owner) -> Identity {
    let namespace = Some(owner.namespace).filter(|namespace| !namespace.is_empty());
    Identity::of::<K>(namespace, owner.name, owner.uid.to_string())
}

/// Returns the identities of the objects of kind `K` that `owners` name: one for each UID, in no
/// particular order.
pub(crate) fn identities<K>(owners: impl IntoIterator<Item = Owner>) -> Vec<Identity>
where
    K: Resource<DynamicType = ()> + 'static,
{
    let by_uid: HashMap<_, _> = owners.into_iter().map(|owner| (owner.uid.clone(), owner)).collect();
    by_uid.into_values().map(identity::<K>).collect()
}
