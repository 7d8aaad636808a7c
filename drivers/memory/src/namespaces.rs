//! The networks of namespaces in the simulated world.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;

use super::Faults;
use crate::driver::Calls;
use crate::lock::lock;
use staffetta_driver::{
    DriverError, NamespaceNetwork, NamespaceSubnetDriver, Owned, Owner, ProjectId, Reason, Uid,
};

/// The driver `memory` of namespace networks: they are names only.
#[derive(Default)]
pub struct MemoryNamespaceSubnets {
    networks: Mutex<BTreeMap<Uid, MemoryNamespaceNetwork>>,
    calls: Calls<NamespaceMethod, NamespaceCall>,
}

/// A network that exists.
struct MemoryNamespaceNetwork {
    owner: Owner,
    network: NamespaceNetwork,
    used: bool,
}

/// A method of a driver of namespace networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NamespaceMethod {
    /// [`NamespaceSubnetDriver::ensure_network`].
    Ensure,
    /// [`NamespaceSubnetDriver::release_network`].
    Release,
    /// [`NamespaceSubnetDriver::networks`].
    List,
}

/// A call of a driver of namespace networks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceCall {
    /// The network of this owner was requested.
    Ensure(Uid),
    /// The network of this owner was released.
    Release(Uid),
    /// All were listed.
    List,
}

impl MemoryNamespaceSubnets {
    /// Returns the faults of the next calls.
    pub fn faults(&self) -> &Faults<NamespaceMethod> {
        &self.calls.faults
    }

    /// Returns the calls so far, including failed ones.
    pub fn calls(&self) -> Vec<NamespaceCall> {
        self.calls.log()
    }

    /// Returns the owners of the networks that exist.
    pub fn owners(&self) -> Vec<Owner> {
        lock(&self.networks).values().map(|made| made.owner.clone()).collect()
    }

    /// Marks the network of this owner as in use, or not.
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
