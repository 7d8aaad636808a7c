//! The driver `memory` of public addresses.

use async_trait::async_trait;
use tokio::time::Instant;

use super::public_ips::MemoryPublicIp;
use super::{MemoryDriver, MemoryServices};
use crate::driver::driver_calls;
use staffetta_driver::{
    DriverError, Owned, Owner, PortId, PublicIp, PublicIpId, PublicIpRequest, Reason, ServicePublicIpDriver,
    Uid,
};

/// The driver `memory` of public addresses, for one cluster on [`MemoryServices`]. Its pool of addresses is small and can be exhausted.
pub type MemoryPublicIpDriver = MemoryDriver<MemoryServices, PublicIpMethod, PublicIpCall>;

driver_calls! {
    /// A method of a public address driver, for planned faults.
    PublicIpMethod,
    /// A logged call of a public address driver.
    PublicIpCall,
    /// The method [`ServicePublicIpDriver::public_ips`], for the addresses of this owner, or for all addresses (`None`).
    List(Option<Uid>);
    /// The method [`ServicePublicIpDriver::acquire`], for this owner.
    Acquire(Uid);
    /// The method [`ServicePublicIpDriver::associate`], for this address and port.
    Associate(PublicIpId, PortId);
    /// The method [`ServicePublicIpDriver::disassociate`], for this address and port.
    Disassociate(PublicIpId, PortId);
    /// The method [`ServicePublicIpDriver::release`], for this address of this owner.
    Release(Uid, PublicIpId);
}

#[async_trait]
impl ServicePublicIpDriver for MemoryPublicIpDriver {
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Owned<PublicIp>>, DriverError> {
        let work = || {
            let state = self.world.state();
            let listed = |held: &&MemoryPublicIp| {
                held.mark.is_of(&self.cluster, owner) || owner.is_none() && held.mark.cluster.is_none()
            };
            let marked = state.public_ips.by_id.values().filter(listed);
            Ok(marked
                .map(|held| Owned { owner: held.mark.owner.clone(), resource: held.public_ip.clone() })
                .collect())
        };
        let call = PublicIpCall::List(owner.map(|owner| owner.uid.clone()));
        self.calls.call(call, work).await
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError> {
        let work = || self.world.state().public_ips.acquire(&self.cluster, owner, request, Instant::now());
        self.calls.call(PublicIpCall::Acquire(owner.uid.clone()), work).await
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let work = || {
            let mut state = self.world.state();
            if !state.load_balancers.has_port(port) {
                let error = DriverError::new(Reason::NotFound, "associate a public address");
                return Err(error.detail(format!("port {port}")));
            }
            state.public_ips.associate(&public_ip.id, port)
        };
        let call = PublicIpCall::Associate(public_ip.id.clone(), port.clone());
        self.calls.call(call, work).await
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let work = || {
            self.world.state().public_ips.disassociate(&public_ip.id, port);
            Ok(())
        };
        let call = PublicIpCall::Disassociate(public_ip.id.clone(), port.clone());
        self.calls.call(call, work).await
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError> {
        let work = || {
            self.world.state().public_ips.release(&self.cluster, owner, &public_ip.id, Instant::now());
            Ok(())
        };
        let call = PublicIpCall::Release(owner.uid.clone(), public_ip.id.clone());
        self.calls.call(call, work).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use std::sync::Arc;

    use super::*;
    use crate::MemoryOptions;
    use staffetta_driver::{Allocation, LoadBalancer, ProvisioningStatus};

    /// A pool with one address, and two load balancers with the ports `p1` and `p2`.
    fn driver() -> MemoryPublicIpDriver {
        let options =
            MemoryOptions { public_ips: "203.0.113.0/30".parse().unwrap(), ..MemoryOptions::default() };
        let services = MemoryServices::new(options);
        for port in ["p1", "p2"] {
            services.insert_load_balancer(LoadBalancer {
                id: format!("lb-{port}").into(),
                project: "p".into(),
                name: "default/web".into(),
                vip: [10, 0, 0, 1].into(),
                subnet: "services".into(),
                port: port.into(),
                provider: None,
                security_groups: Vec::new(),
                disabled: false,
                status: ProvisioningStatus::Active,
                listeners: Vec::new(),
            });
        }
        MemoryPublicIpDriver::new(Arc::new(services), "c1".into())
    }

    fn owner(name: &str) -> Owner {
        Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
    }

    fn any() -> PublicIpRequest {
        PublicIpRequest { project: "p".into(), named: None, port: "port".into(), adopt: None }
    }

    #[tokio::test(start_paused = true)]
    async fn the_pool_runs_empty_and_a_released_address_rests_before_it_is_used_again() {
        let driver = driver();
        let first = driver.acquire(&owner("a"), &any()).await.unwrap();
        assert_eq!(driver.acquire(&owner("a"), &any()).await.unwrap(), first, "one owner has one address");
        assert_eq!(driver.acquire(&owner("b"), &any()).await.unwrap_err().reason(), Reason::NoAddress);

        driver.release(&owner("b"), &first).await.unwrap();
        assert_eq!(driver.public_ips(Some(&owner("a"))).await.unwrap().len(), 1, "it is another's");
        driver.release(&owner("a"), &first).await.unwrap();
        let resting = driver.acquire(&owner("b"), &any()).await.unwrap_err();
        assert_eq!(resting.retry_after(), Some(Duration::from_secs(30)));
        tokio::time::advance(Duration::from_secs(30)).await;
        assert_eq!(driver.acquire(&owner("b"), &any()).await.unwrap().ip, first.ip);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_the_user_named_must_exist_and_be_free_and_is_never_freed() {
        let driver = driver();
        let named =
            |port: &str| PublicIpRequest { named: Some([192, 0, 2, 1].into()), port: port.into(), ..any() };
        let missing = driver.acquire(&owner("a"), &named("p1")).await.unwrap_err();
        assert_eq!(missing.reason(), Reason::NotFound);
        driver.services().insert_public_ip([192, 0, 2, 1].into());
        let found = driver.acquire(&owner("a"), &named("p1")).await.unwrap();
        assert_eq!(found.allocation, Allocation::User);
        driver.associate(&found, &"p1".into()).await.unwrap();
        assert_eq!(driver.acquire(&owner("a"), &named("p1")).await.unwrap().port, Some("p1".into()));
        let busy = driver.acquire(&owner("b"), &named("p2")).await.unwrap_err();
        assert_eq!(busy.reason(), Reason::Conflict);
        assert!(driver.associate(&found, &"p2".into()).await.is_err());

        driver.disassociate(&found, &"p2".into()).await.unwrap();
        assert!(driver.services().public_ips()[0].1.port.is_some(), "it leads elsewhere");
        driver.disassociate(&found, &"p1".into()).await.unwrap();
        driver.release(&owner("a"), &found).await.unwrap();
        assert_eq!(driver.services().public_ips().len(), 1);
        assert_eq!(driver.services().public_ips()[0].1.port, None);
        assert_eq!(driver.public_ips(Some(&owner("a"))).await.unwrap(), []);
        let listed = driver.public_ips(None).await.unwrap();
        assert_eq!(
            (listed.len(), &listed[0].owner, &listed[0].resource.id),
            (1, &None, &found.id),
            "it bears no mark"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_leads_to_a_port_that_exists_or_nowhere() {
        let driver = driver();
        let taken = driver.acquire(&owner("a"), &any()).await.unwrap();
        let missing = driver.associate(&taken, &"p3".into()).await.unwrap_err();
        assert_eq!(missing.reason(), Reason::NotFound);
        driver.associate(&taken, &"p1".into()).await.unwrap();
        driver.services().remove_load_balancer(&"lb-p1".into());
        assert_eq!(driver.public_ips(Some(&owner("a"))).await.unwrap()[0].resource.port, None);
    }
}
