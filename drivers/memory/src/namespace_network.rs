//! A network of a namespace in the simulated network, as tests see it.

use super::mark::Mark;
use staffetta_driver::{ClusterId, NamespaceNetwork, Owner, Uid};

/// A network of a namespace in the simulated network, with its ownership mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryNamespaceNetwork {
    /// The ids of the network and of its subnet.
    pub network: NamespaceNetwork,
    /// The name of the network.
    pub name: String,
    /// The cluster in the ownership mark of the network; `None` for a network that another controller
    /// created.
    pub cluster: Option<ClusterId>,
    /// The namespace in the ownership mark of the network; `None` for a network that another controller created.
    pub owner: Option<Owner>,
    /// `true` if the network is in use, so that it cannot be deleted.
    pub used: bool,
}

impl MemoryNamespaceNetwork {
    /// Returns the ownership mark of the network.
    pub(super) fn mark(&self) -> Mark {
        Mark { cluster: self.cluster.clone(), owner: self.owner.clone() }
    }

    /// Returns `true` if the network is that of the namespace with this UID in `cluster`.
    pub(super) fn is_of(&self, cluster: &ClusterId, uid: &Uid) -> bool {
        self.cluster.as_ref() == Some(cluster) && self.owner.as_ref().is_some_and(|owner| owner.uid == *uid)
    }
}
