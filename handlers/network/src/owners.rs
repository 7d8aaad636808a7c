//! One object under its two names: the owner, as drivers mark it, and the identity, as the relay knows it.

use std::collections::HashMap;

use kube::Resource;
use staffetta_driver::Owner;
use staffetta_handler::{Identity, Tombstone};

/// The owner of what was made for an object that is gone.
pub(crate) fn owner_of<K>(tombstone: &Tombstone<K>) -> Owner
where
    K: Resource<DynamicType = ()> + Send + Sync + 'static,
{
    let subject = tombstone.subject();
    Owner {
        namespace: subject.namespace.unwrap_or_default().to_owned(),
        name: subject.name.to_owned(),
        uid: subject.uid.into(),
    }
}

/// The objects of kind `K` that are these owners, each once. Those of a cluster-scoped kind have no namespace.
pub(crate) fn identities<K>(owners: impl IntoIterator<Item = Owner>) -> Vec<Identity>
where
    K: Resource<DynamicType = ()> + 'static,
{
    let by_uid: HashMap<_, _> = owners.into_iter().map(|owner| (owner.uid.clone(), owner)).collect();
    let identity = |owner: Owner| {
        let namespace = Some(owner.namespace).filter(|namespace| !namespace.is_empty());
        Identity::of::<K>(namespace, owner.name, owner.uid.to_string())
    };
    by_uid.into_values().map(identity).collect()
}
