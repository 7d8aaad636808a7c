//! Networks of namespaces that are planned.

use std::sync::Arc;

use async_trait::async_trait;

use super::overlay::Overlay;
use super::{PlannedCall, Planner, planned};
use crate::error::DriverError;
use crate::id::{ProjectId, Uid};
use crate::namespace_subnet::{NamespaceNetwork, NamespaceSubnetDriver};
use crate::owner::{Marked, Owner};

/// A driver of namespace networks that reads and plans.
pub struct RehearsedNamespaceSubnets {
    inner: Arc<dyn NamespaceSubnetDriver>,
    planner: Planner,
    networks: Overlay<Uid, Uid>,
}

impl RehearsedNamespaceSubnets {
    /// Reads from `inner`, and tells `planner` of the rest.
    pub fn new(inner: Arc<dyn NamespaceSubnetDriver>, planner: Planner) -> Self {
        Self { inner, planner, networks: Overlay::default() }
    }
}

#[async_trait]
impl NamespaceSubnetDriver for RehearsedNamespaceSubnets {
    async fn ensure_network(
        &self,
        owner: &Owner,
        project: &ProjectId,
    ) -> Result<NamespaceNetwork, DriverError> {
        let call = PlannedCall::new("make a network, or find the one that was made");
        (self.planner)(call.of(owner).with("project", project));
        self.networks.put(owner.uid.clone(), Some(owner.clone()), owner.uid.clone());
        Ok(NamespaceNetwork {
            network: planned(format_args!("network-{}", owner.uid)).into(),
            subnet: planned(format_args!("subnet-{}", owner.uid)).into(),
        })
    }

    async fn release_network(&self, owner: &Owner) -> Result<(), DriverError> {
        (self.planner)(PlannedCall::new("release a network").of(owner));
        self.networks.remove(owner.uid.clone());
        Ok(())
    }

    async fn networks(&self) -> Result<Vec<Marked<()>>, DriverError> {
        let read = self.inner.networks().await?.into_iter().filter_map(|marked| {
            let owner = marked.owner?;
            Some(Marked { thing: owner.uid.clone(), owner: Some(owner) })
        });
        let over = self.networks.over(read.collect(), Clone::clone, None);
        Ok(over.into_iter().map(|marked| Marked { owner: marked.owner, thing: () }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Notes, owner};
    use super::*;
    use crate::memory::MemoryNamespaceSubnets;

    #[tokio::test]
    async fn networks_are_written_down_and_not_made_and_reads_show_them() {
        let (real, notes) = (Arc::new(MemoryNamespaceSubnets::default()), Notes::default());
        real.ensure_network(&owner("old"), &"p".into()).await.unwrap();
        let driver = RehearsedNamespaceSubnets::new(Arc::clone(&real) as _, notes.planner());
        let network = driver.ensure_network(&owner("new"), &"p".into()).await.unwrap();
        assert_eq!(network.subnet.as_str(), "planned-subnet-uid-new");
        driver.release_network(&owner("old")).await.unwrap();
        let shown: Vec<_> = driver.networks().await.unwrap().into_iter().map(|marked| marked.owner).collect();
        assert_eq!(shown, [Some(owner("new"))]);
        let expected = [
            "default/new: make a network, or find the one that was made: project p",
            "default/old: release a network: ",
        ];
        assert_eq!(notes.taken(), expected);
        assert_eq!(real.owners(), [owner("old")]);
    }
}
