//! Records calls to drivers of public addresses.

use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use staffetta_driver::{
    Allocation, DriverError, Owned, Owner, PortId, PublicIp, PublicIpRequest, ServicePublicIpDriver,
};

use super::{Recording, planned};

/// Passes reads to the real driver, and records changes. A new address is `0.0.0.0`. An address that the user requests is used without
/// a check in the external system.
#[async_trait]
impl ServicePublicIpDriver for Recording<dyn ServicePublicIpDriver> {
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Owned<PublicIp>>, DriverError> {
        self.driver.public_ips(owner).await
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError> {
        if let Some(ip) = request.named {
            self.record(Some(owner), self.call("use a public address of the user").with("address", ip));
            return Ok(PublicIp { id: planned(ip).into(), ip, allocation: Allocation::User, port: None });
        }
        if let Some(found) = self.public_ips(Some(owner)).await?.into_iter().next() {
            return Ok(found.resource);
        }
        if let Some(adopted) = &request.adopt {
            let call = self.call("adopt an unmarked public address").with("id", adopted);
            return Err(self.end(owner, call, "adopt a public address"));
        }
        self.record(Some(owner), self.call("allocate a public address").with("project", &request.project));
        let (id, ip) = (planned(&owner.uid).into(), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        Ok(PublicIp { id, ip, allocation: Allocation::Pool, port: None })
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let call = self.call("associate a public address with a port");
        self.record(None, call.with("address", public_ip.ip).with("port", port));
        Ok(())
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        let call = self.call("disassociate a public address from a port");
        self.record(None, call.with("address", public_ip.ip).with("port", port));
        Ok(())
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError> {
        if public_ip.allocation == Allocation::Pool {
            self.record(Some(owner), self.call("release a public address").with("address", public_ip.ip));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use staffetta_driver::PublicIpId;
    use staffetta_memory::{MemoryOptions, MemoryPublicIpDriver, MemoryServices, PublicIpCall};

    use super::super::testing::{Calls, owner};
    use super::*;

    fn world() -> (Arc<MemoryPublicIpDriver>, Calls, Recording<dyn ServicePublicIpDriver>) {
        let services = Arc::new(MemoryServices::new(MemoryOptions::default()));
        let real = Arc::new(MemoryPublicIpDriver::new(services, "c1".into()));
        let calls = Calls::default();
        let driver = calls.record(Arc::clone(&real) as _);
        (real, calls, driver)
    }

    fn request(named: Option<IpAddr>, adopt: Option<PublicIpId>) -> PublicIpRequest {
        PublicIpRequest { project: "p".into(), named, port: "port".into(), adopt }
    }

    #[tokio::test]
    async fn all_changes_of_an_address_are_recorded_and_not_made() {
        let (real, calls, driver) = world();
        let planned = driver.acquire(&owner("web"), &request(None, None)).await.unwrap();
        driver.associate(&planned, &"port".into()).await.unwrap();
        driver.disassociate(&planned, &"port".into()).await.unwrap();
        driver.release(&owner("web"), &planned).await.unwrap();
        let expected = [
            "default/web: allocate a public address: project p",
            "associate a public address with a port: address 0.0.0.0; port port",
            "disassociate a public address from a port: address 0.0.0.0; port port",
            "default/web: release a public address: address 0.0.0.0",
        ];
        assert_eq!(calls.take(), expected);
        assert_eq!(real.public_ips(None).await.unwrap(), []);
        assert!(real.calls().iter().all(|call| matches!(call, PublicIpCall::List(_))));
    }

    #[tokio::test]
    async fn an_address_that_the_owner_has_is_not_recorded() {
        let (real, calls, driver) = world();
        let held = real.acquire(&owner("web"), &request(None, None)).await.unwrap();
        assert_eq!(driver.acquire(&owner("web"), &request(None, None)).await.unwrap(), held);
        assert_eq!(calls.take(), [""; 0]);
    }

    #[tokio::test]
    async fn an_address_of_the_user_is_used_and_never_released() {
        let (_, calls, driver) = world();
        let named = "192.0.2.7".parse().unwrap();
        let used = driver.acquire(&owner("web"), &request(Some(named), None)).await.unwrap();
        assert_eq!((used.ip, used.allocation), (named, Allocation::User));
        driver.release(&owner("web"), &used).await.unwrap();
        assert_eq!(calls.take(), ["default/web: use a public address of the user: address 192.0.2.7"]);
    }

    #[tokio::test]
    async fn an_adoption_ends_the_plan() {
        let (_, calls, driver) = world();
        let adopting = request(None, Some("theirs".into()));
        assert!(!driver.acquire(&owner("web"), &adopting).await.unwrap_err().transient());
        assert_eq!(calls.take(), ["default/web: adopt an unmarked public address: id theirs ..."]);
    }
}
