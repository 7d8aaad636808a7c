//! Conversions between an [`Owner`], as drivers mark resources, and an [`Identity`], as the chain
//! names objects.

use std::collections::HashMap;

use kube::Resource;
use staffetta_driver::Owner;
use staffetta_handler::{Identity, Tombstone};

/// The owner mark of a deleted object.
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

/// The identity of an object of kind `K`. The namespace of a cluster-scoped object is empty in its
/// owner mark.
pub(crate) fn identity<K: Resource<DynamicType = ()> + 'static>(owner: Owner) -> Identity {
    let namespace = Some(owner.namespace).filter(|namespace| !namespace.is_empty());
    Identity::of::<K>(namespace, owner.name, owner.uid.to_string())
}

/// The identities of these owners, each UID once.
pub(crate) fn identities<K>(owners: impl IntoIterator<Item = Owner>) -> Vec<Identity>
where
    K: Resource<DynamicType = ()> + 'static,
{
    let by_uid: HashMap<_, _> = owners.into_iter().map(|owner| (owner.uid.clone(), owner)).collect();
    by_uid.into_values().map(identity::<K>).collect()
}
