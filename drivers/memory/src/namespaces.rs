//! The driver `memory` of namespace networks.

use std::sync::Arc;

use async_trait::async_trait;

use super::{MemoryDriver, MemoryNamespaceNetwork, MemoryNetwork, MemoryOptions};
use crate::driver::driver_calls;
use staffetta_driver::{
    DriverError, NamespaceNetwork, NamespaceSubnetDriver, Owned, Owner, ProjectId, Reason, Uid,
};

/// The driver `memory` of namespace networks, for one cluster. Its networks consist of their ids only; no subnet allocates addresses.
pub type MemoryNamespaceSubnets = MemoryDriver<MemoryNetwork, NamespaceMethod, NamespaceCall>;

driver_calls! {
    /// A method of a driver of namespace networks, for planned faults.
    NamespaceMethod,
    /// A logged call of a driver of namespace networks.
    NamespaceCall,
    /// The method [`NamespaceSubnetDriver::ensure_network`], for this owner.
    Ensure(Uid);
    /// The method [`NamespaceSubnetDriver::release_network`], for this owner.
    Release(Uid);
    /// The method [`NamespaceSubnetDriver::networks`].
    List;
}

impl Default for MemoryNamespaceSubnets {
    fn default() -> Self {
        Self::new(Arc::new(MemoryNetwork::new(MemoryOptions::default())), "kubernetes".into())
    }
}

impl MemoryNamespaceSubnets {
    /// Returns the namespaces that own the existing networks of the cluster, ordered by the ids of the networks.
    pub fn owners(&self) -> Vec<Owner> {
        let networks = self.world.namespace_networks().into_iter();
        networks
            .filter(|made| made.cluster.as_ref() == Some(&self.cluster))
            .filter_map(|made| made.owner)
            .collect()
    }

    /// Marks the network of the owner with this UID as in use, so that its release fails with [`Reason::Conflict`], or as unused.
    pub fn set_used(&self, uid: &Uid, used: bool) {
        for made in self.world.namespaces().values_mut().filter(|made| made.is_of(&self.cluster, uid)) {
            made.used = used;
        }
    }
}

#[async_trait]
impl NamespaceSubnetDriver for MemoryNamespaceSubnets {
    async fn ensure_network(&self, owner: &Owner, _: &ProjectId) -> Result<NamespaceNetwork, DriverError> {
        let work = || {
            let mut networks = self.world.namespaces();
            if let Some(made) = networks.values().find(|made| made.is_of(&self.cluster, &owner.uid)) {
                return Ok(made.network.clone());
            }
            let network = NamespaceNetwork {
                network: format!("network-{}", owner.uid).into(),
                subnet: format!("subnet-{}", owner.uid).into(),
            };
            let made = MemoryNamespaceNetwork {
                network: network.clone(),
                name: owner.name.clone(),
                cluster: Some(self.cluster.clone()),
                owner: Some(owner.clone()),
                used: false,
            };
            networks.insert(network.network.clone(), made);
            Ok(network)
        };
        self.calls.call(NamespaceCall::Ensure(owner.uid.clone()), work).await
    }

    async fn release_network(&self, owner: &Owner) -> Result<(), DriverError> {
        let work = || {
            let mut networks = self.world.namespaces();
            let is_of = |made: &MemoryNamespaceNetwork| made.is_of(&self.cluster, &owner.uid);
            if networks.values().any(|made| made.used && is_of(made)) {
                return Err(DriverError::new(Reason::Conflict, "delete a network").detail("it is used"));
            }
            networks.retain(|_, made| !is_of(made));
            Ok(())
        };
        self.calls.call(NamespaceCall::Release(owner.uid.clone()), work).await
    }

    async fn networks(&self) -> Result<Vec<Owned<Vec<NamespaceNetwork>>>, DriverError> {
        let work = || {
            let made = self.world.namespace_networks().into_iter();
            let ours = made.filter(|made| made.cluster.as_ref() == Some(&self.cluster));
            Ok(ours.map(|made| Owned { owner: made.owner, resource: vec![made.network] }).collect())
        };
        self.calls.call(NamespaceCall::List, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_network_is_made_once_and_goes_when_nobody_uses_it() {
        let driver = MemoryNamespaceSubnets::default();
        let owner = Owner { namespace: String::new(), name: "shop".into(), uid: "u1".into() };
        let first = driver.ensure_network(&owner, &"p".into()).await.unwrap();
        assert_eq!(driver.ensure_network(&owner, &"p".into()).await.unwrap(), first);
        let expected = [Owned { owner: Some(owner.clone()), resource: vec![first] }];
        assert_eq!(driver.networks().await.unwrap(), expected);
        driver.set_used(&owner.uid, true);
        assert_eq!(driver.release_network(&owner).await.unwrap_err().reason(), Reason::Conflict);
        driver.set_used(&owner.uid, false);
        for _ in 0..2 {
            driver.release_network(&owner).await.unwrap();
        }
        assert!(driver.owners().is_empty());
    }
}
