//! What to do for a namespace: a function of what the event shows and what this process knows besides.

use k8s_openapi::api::core::v1::Namespace;
use staffetta_driver::{NAMESPACE_NETWORK, NamespaceNetwork};
use staffetta_handler::Tombstone;

use super::FINALIZER;
use super::claims::Claim;
use crate::annotation::{AnnotationError, read};

/// The next thing to do for a namespace.
#[derive(Debug, PartialEq)]
pub(super) enum Action {
    /// Nothing.
    Nothing,
    /// Nothing, and what was known beside the annotation is of no use any more.
    Settled,
    /// Make the network, or find the one that was made, and write it down.
    Make,
    /// Write down a network that was made before.
    Write(NamespaceNetwork),
    /// Release the network, and then write that it was done.
    Release,
    /// Write that it was released.
    Finish,
}

/// What to do for a namespace that exists.
///
/// One that is to be deleted keeps its network until Kubernetes has emptied it, which it tells by taking its own finalizer
/// from the spec: a pod that still ends needs its network. What no pod ever learned of goes at once.
pub(super) fn decide(namespace: &Namespace, claim: Option<&Claim>) -> Result<Action, AnnotationError> {
    let shown = annotation(namespace).map(|text| read::<NamespaceNetwork>(NAMESPACE_NETWORK, text));
    if namespace.metadata.deletion_timestamp.is_some() {
        let emptied =
            namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref()).is_none_or(Vec::is_empty);
        return Ok(match claim {
            Some(Claim::Released) if has_finalizer(namespace) => Action::Finish,
            Some(Claim::Released) => Action::Nothing,
            Some(Claim::Asked | Claim::Made(_)) if shown.is_none() && !has_finalizer(namespace) => {
                Action::Release
            }
            _ if has_finalizer(namespace) && emptied => Action::Release,
            _ => Action::Nothing,
        });
    }
    Ok(match (shown.transpose()?, claim) {
        (Some(_), _) if has_finalizer(namespace) => Action::Settled,
        (None, Some(Claim::Made(network))) => Action::Write(network.clone()),
        // Where there is an annotation, somebody copied it, or took the finalizer away: what it names may be another
        // namespace's.
        (None | Some(_), _) => Action::Make,
    })
}

/// Whether there may be something to release for a namespace that is gone.
pub(super) fn after_deletion(tombstone: &Tombstone<Namespace>, claim: Option<&Claim>) -> bool {
    match (claim, tombstone) {
        (Some(Claim::Released), _) => false,
        (Some(Claim::Asked | Claim::Made(_)), _) | (None, Tombstone::Missed(_)) => true,
        (None, Tombstone::Last(namespace)) => has_finalizer(namespace) || annotation(namespace).is_some(),
    }
}

fn annotation(namespace: &Namespace) -> Option<&str> {
    namespace.metadata.annotations.as_ref()?.get(NAMESPACE_NETWORK).map(String::as_str)
}

fn has_finalizer(namespace: &Namespace) -> bool {
    namespace.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}
