//! The choice of the next action for a namespace: a pure function of the event and the in-memory
//! record.

use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use staffetta_driver::{NAMESPACE_NETWORK, NamespaceNetwork};
use staffetta_handler::Tombstone;

use super::FINALIZER;
use crate::annotation::{AnnotationError, read};

/// The in-memory record of a namespace's network. It exists only while the annotation does not show
/// the state of the network.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NetworkRecord {
    /// The driver was called and the outcome is unknown: all, a part or nothing of the network may
    /// exist.
    Requested,
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
    /// Delete the in-memory record, if there is one: it is not needed, because the annotation names
    /// the network.
    DropRecord,
    /// Write this network into the annotation. `None` stands for a network that must first be created
    /// or, if it exists already, found.
    Publish(Option<NamespaceNetwork>),
    /// Release the network of the namespace, and then remove the finalizer of this handler.
    Release,
    /// Remove the finalizer of this handler, because no network is left.
    RemoveFinalizer,
}

/// Decides the next action for a namespace that exists. Returns an error if the annotation of a
/// namespace that is not being deleted is malformed.
///
/// A namespace that is being deleted keeps its network until Kubernetes has deleted all objects in
/// the namespace and removed the finalizer in its `spec`, because terminating pods still need the
/// network. A network that was never published is released at once.
pub(super) fn decide(
    namespace: &Namespace,
    record: Option<&NetworkRecord>,
) -> Result<NamespaceAction, AnnotationError> {
    use NamespaceAction as Action;
    let published = namespace.annotations().get(NAMESPACE_NETWORK);
    let published = published.map(|text| read::<NamespaceNetwork>(NAMESPACE_NETWORK, text));
    if namespace.metadata.deletion_timestamp.is_some() {
        let emptied =
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_none_or(Vec::is_empty);
        return Ok(match record {
            Some(NetworkRecord::Released) if has_finalizer(namespace) => Action::RemoveFinalizer,
            Some(NetworkRecord::Released) => Action::Nothing,
            Some(_) if published.is_none() && !has_finalizer(namespace) => Action::Release,
            _ if has_finalizer(namespace) && emptied => Action::Release,
            _ => Action::Nothing,
        });
    }
    Ok(match (published.transpose()?, record) {
        (Some(_), _) if has_finalizer(namespace) => Action::DropRecord,
        (None, Some(NetworkRecord::Created(network))) => Action::Publish(Some(network.clone())),
        // An annotation without our finalizer was copied, or the finalizer was removed by hand: the
        // network may belong to another namespace.
        _ => Action::Publish(None),
    })
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
