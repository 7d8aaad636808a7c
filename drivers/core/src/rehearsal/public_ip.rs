//! Public addresses that are planned.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use async_trait::async_trait;

use super::overlay::Overlay;
use super::{PlannedCall, Planner, planned, unknown};
use crate::error::DriverError;
use crate::id::{PortId, PublicIpId};
use crate::owner::{Marked, Owner};
use crate::service_public_ip::{Allocation, PublicIp, PublicIpRequest, ServicePublicIpDriver};

/// A public address driver that reads and plans.
///
/// An address out of the pool is `0.0.0.0`; whether the user's own is free is not asked.
pub struct RehearsedPublicIpDriver {
    inner: Arc<dyn ServicePublicIpDriver>,
    planner: Planner,
    overlay: Overlay<PublicIpId, PublicIp>,
}

impl RehearsedPublicIpDriver {
    /// Reads from `inner`, and tells `planner` of the rest.
    pub fn new(inner: Arc<dyn ServicePublicIpDriver>, planner: Planner) -> Self {
        Self { inner, planner, overlay: Overlay::default() }
    }

    fn lead(&self, public_ip: &PublicIp, port: Option<PortId>) {
        // What would become of the user's own is asked no further.
        if public_ip.allocation == Allocation::Pool {
            self.overlay.change(public_ip.id.clone(), PublicIp { port, ..public_ip.clone() });
        }
    }
}

fn about(what: &'static str, public_ip: &PublicIp) -> PlannedCall {
    PlannedCall::new(what).with("address", public_ip.ip)
}

#[async_trait]
impl ServicePublicIpDriver for RehearsedPublicIpDriver {
    async fn public_ips(&self, owner: Option<&Owner>) -> Result<Vec<Marked<PublicIp>>, DriverError> {
        let read = self.inner.public_ips(owner).await?;
        Ok(self.overlay.over(read, |found| found.id.clone(), owner))
    }

    async fn acquire(&self, owner: &Owner, request: &PublicIpRequest) -> Result<PublicIp, DriverError> {
        if let Some(ip) = request.named {
            let id = planned(ip).into();
            let users = PublicIp { id, ip, allocation: Allocation::User, port: None };
            (self.planner)(about("use a public address of the user", &users).of(owner));
            return Ok(users);
        }
        if let Some(Marked { thing: found, .. }) = self.public_ips(Some(owner)).await?.into_iter().next() {
            return Ok(found);
        }
        if let Some(adopted) = &request.adopt {
            let call = PlannedCall::new("adopt a public address that bears no mark").of(owner);
            (self.planner)(call.with("id", adopted).last());
            return Err(unknown("adopt a public address"));
        }
        let call = PlannedCall::new("take a public address out of the pool").of(owner);
        (self.planner)(call.with("project", &request.project));
        let taken = PublicIp {
            id: planned(&owner.uid).into(),
            ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            allocation: Allocation::Pool,
            port: None,
        };
        self.overlay.put(taken.id.clone(), Some(owner.clone()), taken.clone());
        Ok(taken)
    }

    async fn associate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        (self.planner)(about("lead a public address to a port", public_ip).with("port", port));
        self.lead(public_ip, Some(port.clone()));
        Ok(())
    }

    async fn disassociate(&self, public_ip: &PublicIp, port: &PortId) -> Result<(), DriverError> {
        (self.planner)(about("lead a public address nowhere", public_ip).with("port", port));
        self.lead(public_ip, None);
        Ok(())
    }

    async fn release(&self, owner: &Owner, public_ip: &PublicIp) -> Result<(), DriverError> {
        if public_ip.allocation == Allocation::Pool {
            (self.planner)(about("put a public address back into the pool", public_ip).of(owner));
            self.overlay.remove(public_ip.id.clone());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Notes, owner};
    use super::*;
    use crate::memory::{MemoryOptions, MemoryPublicIpDriver, MemoryServices, PublicIpCall};

    fn world() -> (Arc<MemoryPublicIpDriver>, Notes, RehearsedPublicIpDriver) {
        let services = Arc::new(MemoryServices::new(MemoryOptions::default()));
        let real = Arc::new(MemoryPublicIpDriver::new(services, "c1".into()));
        let notes = Notes::default();
        let driver = RehearsedPublicIpDriver::new(Arc::clone(&real) as _, notes.planner());
        (real, notes, driver)
    }

    fn request(named: Option<IpAddr>, adopt: Option<PublicIpId>) -> PublicIpRequest {
        PublicIpRequest { project: "p".into(), named, port: "port".into(), adopt }
    }

    #[tokio::test]
    async fn an_address_out_of_the_pool_is_planned_once() {
        let (real, notes, driver) = world();
        let taken = driver.acquire(&owner("web"), &request(None, None)).await.unwrap();
        driver.associate(&taken, &"port".into()).await.unwrap();
        let again = driver.acquire(&owner("web"), &request(None, None)).await.unwrap();
        assert_eq!(again, PublicIp { port: Some("port".into()), ..taken.clone() });
        driver.disassociate(&again, &"port".into()).await.unwrap();
        driver.release(&owner("web"), &taken).await.unwrap();
        assert_eq!(driver.public_ips(None).await.unwrap(), []);
        let expected = [
            "default/web: take a public address out of the pool: project p",
            "lead a public address to a port: address 0.0.0.0; port port",
            "lead a public address nowhere: address 0.0.0.0; port port",
            "default/web: put a public address back into the pool: address 0.0.0.0",
        ];
        assert_eq!(notes.taken(), expected);
        assert_eq!(real.public_ips(None).await.unwrap(), []);
        assert!(real.calls().iter().all(|call| matches!(call, PublicIpCall::List(_))));
    }

    #[tokio::test]
    async fn an_address_that_is_held_already_is_no_step() {
        let (real, notes, driver) = world();
        let held = real.acquire(&owner("web"), &request(None, None)).await.unwrap();
        assert_eq!(driver.acquire(&owner("web"), &request(None, None)).await.unwrap(), held);
        assert_eq!(notes.taken(), [""; 0]);
    }

    #[tokio::test]
    async fn the_users_own_address_is_used_and_never_put_back() {
        let (_, notes, driver) = world();
        let named = "192.0.2.7".parse().unwrap();
        let users = driver.acquire(&owner("web"), &request(Some(named), None)).await.unwrap();
        assert_eq!((users.ip, users.allocation), (named, Allocation::User));
        driver.release(&owner("web"), &users).await.unwrap();
        let expected = ["default/web: use a public address of the user: address 192.0.2.7"];
        assert_eq!(notes.taken(), expected);
        assert_eq!(driver.public_ips(None).await.unwrap(), []);
    }

    #[tokio::test]
    async fn after_an_adoption_nobody_knows_how_it_goes_on() {
        let (_, notes, driver) = world();
        let adopting = request(None, Some("theirs".into()));
        assert!(!driver.acquire(&owner("web"), &adopting).await.unwrap_err().transient());
        assert_eq!(notes.taken(), ["default/web: adopt a public address that bears no mark: id theirs ..."]);
    }
}
