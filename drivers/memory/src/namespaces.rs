//! The driver `memory` of namespace networks.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;

use super::Faults;
use crate::driver::Calls;
use crate::lock::lock;
use staffetta_driver::{
    DriverError, NamespaceNetwork, NamespaceSubnetDriver, Owned, Owner, ProjectId, Reason, Uid,
};

/// The driver `memory` of namespace networks. Its networks consist of their ids only; no subnet allocates addresses.
#[derive(Default)]
pub struct MemoryNamespaceSubnets {
    networks: Mutex<BTreeMap<Uid, MemoryNamespaceNetwork>>,
    calls: Calls<NamespaceMethod, NamespaceCall>,
}

/// An existing network of a namespace.
struct MemoryNamespaceNetwork {
    owner: Owner,
    network: NamespaceNetwork,
    /// `true` if the network cannot be deleted.
    used: bool,
}

/// A method of a driver of namespace networks, for planned faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceMethod {
    /// The method [`NamespaceSubnetDriver::ensure_network`].
    Ensure,
    /// The method [`NamespaceSubnetDriver::release_network`].
    Release,
    /// The method [`NamespaceSubnetDriver::networks`].
    List,
}

/// A logged call of a driver of namespace networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceCall {
    /// A call to create or find the network of this owner.
    Ensure(Uid),
    /// A call to release the network of this owner.
    Release(Uid),
    /// A call that listed the networks of all namespaces.
    List,
}

impl MemoryNamespaceSubnets {
    /// Returns the planned faults, to which others can be added.
    pub fn faults(&self) -> &Faults<NamespaceMethod> {
        &self.calls.faults
    }

    /// Returns the last ten thousand calls, oldest first, including failed ones.
    pub fn calls(&self) -> Vec<NamespaceCall> {
        self.calls.log()
    }

    /// Returns the owners of the existing networks.
    pub fn owners(&self) -> Vec<Owner> {
        lock(&self.networks).values().map(|made| made.owner.clone()).collect()
    }

    /// Marks the network of the owner with this UID as in use, so that its release fails with [`Reason::Conflict`], or as unused.
    pub fn set_used(&self, uid: &Uid, used: bool) {
        if let Some(made) = lock(&self.networks).get_mut(uid) {
            made.used = used;
        }
    }
}

#[async_trait]
impl NamespaceSubnetDriver for MemoryNamespaceSubnets {
    async fn ensure_network(&self, owner: &Owner, _: &ProjectId) -> Result<NamespaceNetwork, DriverError> {
        let work = || {
            let made = || MemoryNamespaceNetwork {
                owner: owner.clone(),
                network: NamespaceNetwork {
                    network: format!("network-{}", owner.uid).into(),
                    subnet: format!("subnet-{}", owner.uid).into(),
                },
                used: false,
            };
            Ok(lock(&self.networks).entry(owner.uid.clone()).or_insert_with(made).network.clone())
        };
        self.calls.call(NamespaceMethod::Ensure, NamespaceCall::Ensure(owner.uid.clone()), work).await
    }

    async fn release_network(&self, owner: &Owner) -> Result<(), DriverError> {
        let work = || {
            let mut networks = lock(&self.networks);
            if networks.get(&owner.uid).is_some_and(|made| made.used) {
                return Err(DriverError::new(Reason::Conflict, "delete a network").detail("it is used"));
            }
            networks.remove(&owner.uid);
            Ok(())
        };
        self.calls.call(NamespaceMethod::Release, NamespaceCall::Release(owner.uid.clone()), work).await
    }

    async fn networks(&self) -> Result<Vec<Owned<()>>, DriverError> {
        let work =
            || Ok(self.owners().into_iter().map(|owner| Owned { owner: Some(owner), thing: () }).collect());
        self.calls.call(NamespaceMethod::List, NamespaceCall::List, work).await
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
        assert_eq!(driver.networks().await.unwrap(), [Owned { owner: Some(owner.clone()), thing: () }]);
        driver.set_used(&owner.uid, true);
        assert_eq!(driver.release_network(&owner).await.unwrap_err().reason(), Reason::Conflict);
        driver.set_used(&owner.uid, false);
        for _ in 0..2 {
            driver.release_network(&owner).await.unwrap();
        }
        assert!(driver.owners().is_empty());
    }
}
