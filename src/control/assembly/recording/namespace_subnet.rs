//! Records calls to drivers of namespace networks.

use async_trait::async_trait;
use staffetta_driver::{DriverError, NamespaceNetwork, NamespaceSubnetDriver, Owned, Owner, ProjectId};

use super::{Recording, planned};

#[async_trait]
impl NamespaceSubnetDriver for Recording<dyn NamespaceSubnetDriver> {
    async fn ensure_network(
        &self,
        owner: &Owner,
        project: &ProjectId,
    ) -> Result<NamespaceNetwork, DriverError> {
        self.record(
            Some(owner),
            self.call("create a network, or find an existing one").with("project", project),
        );
        Ok(NamespaceNetwork {
            network: planned(format_args!("network-{}", owner.uid)).into(),
            subnet: planned(format_args!("subnet-{}", owner.uid)).into(),
        })
    }

    async fn release_network(&self, owner: &Owner) -> Result<(), DriverError> {
        self.record(Some(owner), self.call("release a network"));
        Ok(())
    }

    async fn networks(&self) -> Result<Vec<Owned<Vec<NamespaceNetwork>>>, DriverError> {
        self.driver.networks().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use staffetta_memory::MemoryNamespaceSubnets;

    use super::super::testing::{Calls, owner};
    use super::*;

    #[tokio::test]
    async fn networks_are_recorded_and_not_made() {
        let (real, calls) = (Arc::new(MemoryNamespaceSubnets::default()), Calls::default());
        real.ensure_network(&owner("old"), &"p".into()).await.unwrap();
        let driver = calls.record::<dyn NamespaceSubnetDriver>(Arc::clone(&real) as _);
        let network = driver.ensure_network(&owner("new"), &"p".into()).await.unwrap();
        assert_eq!(network.subnet.as_str(), "planned-subnet-uid-new");
        driver.release_network(&owner("old")).await.unwrap();
        let expected = [
            "default/new: create a network, or find an existing one: project p",
            "default/old: release a network: ",
        ];
        assert_eq!(calls.take(), expected);
        assert_eq!(real.owners(), [owner("old")]);
    }
}
