//! The choice of the next action for a namespace: a pure function of the event and the in-memory
//! record.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use staffetta_driver::{NAMESPACE_NETWORK, NamespaceNetwork};
use staffetta_handler::Tombstone;

use super::FINALIZER;

/// The in-memory record of a namespace's network. The annotation is believed only if it agrees with the record, because others may
/// have written it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NetworkRecord {
    /// The networks and subnets that belong to the namespace according to ownership marks, or to the annotation that this process wrote.
    /// Without any, a driver was called and the outcome is unknown: all, a part or nothing of the network may exist.
    Owned(Vec<NamespaceNetwork>),
    /// The network was created, and no event has shown it in the annotation yet.
    Created(NamespaceNetwork),
    /// The network was released, but the annotation may still name it.
    Released,
}

/// The next action for a namespace and its network.
#[derive(Debug, PartialEq)]
pub(super) enum NamespaceAction {
    /// Do nothing: the namespace is being deleted, and it is not empty yet or there is nothing left to release.
    Nothing,
    /// Record that the annotation names this network of the namespace.
    Confirm(NamespaceNetwork),
    /// Write this network into the annotation. `None` stands for a network that must first be created
    /// or, if it exists already, found.
    Publish(Option<NamespaceNetwork>),
    /// Release the network of the namespace, and then remove the finalizer of this handler.
    Release,
    /// Remove the finalizer of this handler, because no network is left.
    RemoveFinalizer,
}

/// Decides the next action for a namespace that exists.
///
/// A namespace that is being deleted keeps its network until Kubernetes has deleted all objects in
/// the namespace and removed the finalizer in its `spec`, because terminating pods still need the
/// network. A network that was never published is released at once.
pub(super) fn decide(namespace: &Namespace, record: Option<&NetworkRecord>) -> NamespaceAction {
    use NamespaceAction as Action;
    let published = namespace.annotations().get(NAMESPACE_NETWORK);
    if namespace.metadata.deletion_timestamp.is_some() {
        let emptied =
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_none_or(Vec::is_empty);
        return match record {
            Some(NetworkRecord::Released) if has_finalizer(namespace) => Action::RemoveFinalizer,
            Some(NetworkRecord::Released) => Action::Nothing,
            Some(_) if published.is_none() && !has_finalizer(namespace) => Action::Release,
            _ if has_finalizer(namespace) && emptied => Action::Release,
            _ => Action::Nothing,
        };
    }
    let named = published.and_then(|text| NamespaceNetwork::read(text).ok());
    match (named.filter(|_| has_finalizer(namespace)), record) {
        (Some(named), Some(NetworkRecord::Owned(owned))) if owned.contains(&named) => Action::Confirm(named),
        (Some(named), Some(NetworkRecord::Created(created))) if *created == named => Action::Confirm(named),
        (None, Some(NetworkRecord::Created(created))) => Action::Publish(Some(created.clone())),
        // The annotation or the finalizer was changed or removed: the ownership marks decide.
        _ => Action::Publish(None),
    }
}

/// Returns `true` if somebody else changed or removed the annotation, which now names `network` again.
pub(super) fn was_restored(
    namespace: &Namespace,
    record: Option<&NetworkRecord>,
    network: &NamespaceNetwork,
) -> bool {
    match namespace.annotations().get(NAMESPACE_NETWORK) {
        Some(text) => NamespaceNetwork::read(text).ok().as_ref() != Some(network),
        None => matches!(record, Some(NetworkRecord::Owned(owned)) if owned.contains(network)),
    }
}

/// Returns `true` if a deleted namespace may still have a network that must be released.
pub(super) fn may_have_network(tombstone: &Tombstone<Namespace>, record: Option<&NetworkRecord>) -> bool {
    match (record, tombstone) {
        (Some(record), _) => *record != NetworkRecord::Released,
        (None, Tombstone::Missed(_)) => true,
        (None, Tombstone::Last(namespace)) => {
            has_finalizer(namespace) || namespace.annotations().contains_key(NAMESPACE_NETWORK)
        }
    }
}

/// Returns `true` if the namespace has the finalizer of this handler.
fn has_finalizer(namespace: &Namespace) -> bool {
    namespace.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}
