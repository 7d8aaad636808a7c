//! Changes of policies and namespaces, which concern some of the pods.

use std::sync::Arc;

use super::pod::PodFields;
use super::terms::{ParsedPolicy, PeerScope, PeerSelector};

/// A change after which pods may need other security groups.
pub(super) enum ModelChange {
    /// A policy with these terms was added or removed.
    Policy(Arc<ParsedPolicy>),
    /// The namespace with this name changed.
    Namespace(String),
}

impl ModelChange {
    /// Returns `true` if the pod may need other security groups after the change.
    pub(super) fn may_concern(&self, pod: &PodFields) -> bool {
        let namespace = &pod.owner.namespace;
        match self {
            Self::Namespace(name) => name == namespace,
            Self::Policy(terms) => {
                let is_peer = |peers: &PeerSelector| {
                    let is_elsewhere = matches!(&peers.scope, PeerScope::Own(own) if own != namespace);
                    !is_elsewhere && peers.pods.matches(&pod.labels)
                };
                terms.owner.namespace == *namespace && terms.selector.matches(&pod.labels)
                    || terms.peers.values().any(|peers| is_peer(peers))
            }
        }
    }
}
