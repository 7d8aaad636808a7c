//! The driver `memory` of VIFs.

use async_trait::async_trait;
use tokio::time::Instant;

use super::{MemoryDriver, MemoryNetwork, MemoryPort};
use crate::driver::driver_calls;
use staffetta_driver::{Activation, DriverError, Owned, Owner, PodVifDriver, Uid, Vif, VifId, VifRequest};

/// The driver `memory` of VIFs, for one cluster on a [`MemoryNetwork`].
pub type MemoryVifDriver = MemoryDriver<MemoryNetwork, VifMethod, VifCall>;

driver_calls! {
    /// A method of a VIF driver, for planned faults.
    VifMethod,
    /// A logged call of a VIF driver.
    VifCall,
    /// The method [`PodVifDriver::request_vif`], for this owner.
    Request(Uid);
    /// The method [`PodVifDriver::release_vif`], for this VIF of this owner.
    Release(Uid, VifId);
    /// The method [`PodVifDriver::activate_vif`], for this VIF.
    Activate(VifId);
    /// The method [`PodVifDriver::vifs`], for the VIFs of this owner, or for all VIFs (`None`).
    List(Option<Uid>);
}

#[async_trait]
impl PodVifDriver for MemoryVifDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let work = || self.world.create_port(&self.cluster, request, Some(&request.owner), Instant::now());
        self.calls.call(VifCall::Request(request.owner.uid.clone()), work).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let work = || {
            self.world.delete_port(&self.cluster, owner, &vif.id, Instant::now());
            Ok(())
        };
        self.calls.call(VifCall::Release(owner.uid.clone(), vif.id.clone()), work).await
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        let call = VifCall::Activate(vif.id.clone());
        let work = || self.world.activation(&self.cluster, owner, &vif.id, Instant::now());
        self.calls.call(call, work).await
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        let work = || {
            let ports = self.world.ports().into_iter();
            let of_cluster = ports.filter(|port| port.cluster.as_ref() == Some(&self.cluster));
            let is_of = |port: &MemoryPort, owner: &Owner| port.belongs_to(&self.cluster, owner);
            let wanted = of_cluster.filter(|port| owner.is_none_or(|owner| is_of(port, owner)));
            let now = Instant::now();
            Ok(wanted.map(|port| Owned { resource: port.vif_at(now), owner: port.owner }).collect())
        };
        self.calls.call(VifCall::List(owner.map(|owner| owner.uid.clone())), work).await
    }

    /// Lists the ports without a cluster that name a pod, which represent those of Kuryr.
    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        let ports = self.world.ports().into_iter();
        let unmarked = ports.filter(|port| port.cluster.is_none() && port.owner.is_some());
        let now = Instant::now();
        Ok(unmarked.map(|port| Owned { resource: port.vif_at(now), owner: port.owner }).collect())
    }

    fn vif_returned(&self, vif: &VifId) {
        self.world.record_return(vif);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ipnet::IpNet;

    use std::sync::Arc;

    use super::*;
    use crate::{Fault, MemoryOptions};
    use staffetta_driver::Reason;

    fn world(options: MemoryOptions) -> MemoryVifDriver {
        MemoryVifDriver::new(Arc::new(MemoryNetwork::new(options)), "east".into())
    }

    fn small() -> (MemoryOptions, IpNet) {
        let cidr = "10.0.0.0/24".parse().unwrap();
        let options = MemoryOptions {
            pod_subnets: vec![cidr],
            addresses_per_subnet: Some(1),
            ..MemoryOptions::default()
        };
        (options, cidr)
    }

    fn owner(name: &str) -> Owner {
        Owner { namespace: "default".into(), name: name.into(), uid: format!("uid-{name}").into() }
    }

    fn request(driver: &MemoryVifDriver, name: &str) -> VifRequest {
        let network = driver.network();
        VifRequest {
            owner: owner(name),
            node_name: "node-1".into(),
            host_ip: None,
            project: "memory".into(),
            subnets: network.options().pod_subnets.iter().map(|cidr| network.subnet(*cidr)).collect(),
            security_groups: vec!["default".into()],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_port_starts_down_and_becomes_active_after_the_delay() {
        let driver = world(MemoryOptions { activation_delay_ms: 700, ..MemoryOptions::default() });
        let vif = driver.request_vif(&request(&driver, "web")).await.unwrap();
        assert!(!vif.active);
        assert_eq!(vif.address.to_string(), "fa:16:3e:00:00:01");
        let wait = Duration::from_millis(700);
        assert_eq!(
            driver.activate_vif(&owner("web"), &vif).await.unwrap(),
            Activation::NotYet { poll_after: wait }
        );
        tokio::time::advance(wait).await;
        let active = Vif { active: true, ..vif.clone() };
        assert_eq!(driver.activate_vif(&owner("web"), &vif).await.unwrap(), Activation::Active(active));
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_delay_a_port_is_active_at_once() {
        let driver = world(MemoryOptions { activation_delay_ms: 0, ..MemoryOptions::default() });
        assert!(driver.request_vif(&request(&driver, "web")).await.unwrap().active);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_subnet_says_when_an_address_will_have_rested() {
        let (options, _) = small();
        let driver = world(options);
        let vif = driver.request_vif(&request(&driver, "a")).await.unwrap();
        let full = driver.request_vif(&request(&driver, "b")).await.unwrap_err();
        assert_eq!((full.reason(), full.retry_after()), (Reason::NoAddress, None));
        driver.release_vif(&owner("a"), &vif).await.unwrap();
        let full = driver.request_vif(&request(&driver, "b")).await.unwrap_err();
        assert_eq!(full.retry_after(), Some(Duration::from_secs(30)));
        tokio::time::advance(Duration::from_secs(30)).await;
        let again = driver.request_vif(&request(&driver, "b")).await.unwrap();
        assert_eq!(again.ips().collect::<Vec<_>>(), vif.ips().collect::<Vec<_>>());
        assert_ne!(again.id, vif.id);
    }

    #[tokio::test]
    async fn a_full_subnet_can_be_mended() {
        let (options, cidr) = small();
        let driver = world(options);
        driver.request_vif(&request(&driver, "a")).await.unwrap();
        assert!(driver.request_vif(&request(&driver, "b")).await.is_err());
        driver.network().set_address_limit(cidr, None);
        assert!(driver.request_vif(&request(&driver, "b")).await.is_ok());
    }

    #[tokio::test]
    async fn a_request_gets_an_address_in_each_subnet_or_none_at_all() {
        let (mut options, four) = small();
        let six: IpNet = "fd00::/64".parse().unwrap();
        options.pod_subnets.push(six);
        let driver = world(options);
        let vif = driver.request_vif(&request(&driver, "a")).await.unwrap();
        assert_eq!(vif.ips().map(|ip| ip.to_string()).collect::<Vec<_>>(), ["10.0.0.2", "fd00::2"]);
        driver.network().set_address_limit(four, None);
        let full = driver.request_vif(&request(&driver, "b")).await.unwrap_err();
        assert!(full.to_string().contains("fd00::/64"), "{full}");
        assert_eq!(driver.network().ports().len(), 1);
        driver.network().set_address_limit(six, None);
        let next = driver.request_vif(&request(&driver, "b")).await.unwrap();
        assert_eq!(next.ips().map(|ip| ip.to_string()).collect::<Vec<_>>(), ["10.0.0.3", "fd00::3"]);
    }

    #[tokio::test]
    async fn the_quota_counts_every_port_and_can_be_raised() {
        let driver = world(MemoryOptions { port_quota: Some(1), ..MemoryOptions::default() });
        driver.request_vif(&request(&driver, "a")).await.unwrap();
        let refused = driver.request_vif(&request(&driver, "b")).await.unwrap_err();
        assert_eq!((refused.reason(), refused.transient()), (Reason::Quota, true));
        driver.network().set_port_quota(Some(2));
        assert!(driver.request_vif(&request(&driver, "b")).await.is_ok());
    }

    #[tokio::test]
    async fn a_release_is_idempotent_and_leaves_alone_what_belongs_to_another() {
        let driver = world(MemoryOptions::default());
        let vif = driver.request_vif(&request(&driver, "a")).await.unwrap();
        driver.release_vif(&owner("b"), &vif).await.unwrap();
        let west = MemoryVifDriver::new(Arc::clone(driver.network()), "west".into());
        west.release_vif(&owner("a"), &vif).await.unwrap();
        assert_eq!(driver.network().ports().len(), 1);
        driver.release_vif(&owner("a"), &vif).await.unwrap();
        driver.release_vif(&owner("a"), &vif).await.unwrap();
        assert!(driver.network().ports().is_empty());
    }

    #[tokio::test]
    async fn a_pooled_vif_is_not_released_by_a_pod() {
        let driver = world(MemoryOptions::default());
        let vif = driver.request_vif(&request(&driver, "a")).await.unwrap();
        let mut pooled = driver.network().remove_port(&vif.id).unwrap();
        pooled.owner = None;
        driver.network().insert_port(pooled);
        driver.release_vif(&owner("a"), &vif).await.unwrap();
        assert_eq!(driver.network().ports().len(), 1);
    }

    #[tokio::test]
    async fn marks_are_those_of_one_cluster_and_where_asked_of_one_owner() {
        let east = world(MemoryOptions::default());
        let west = MemoryVifDriver::new(Arc::clone(east.network()), "west".into());
        let vif = east.request_vif(&request(&east, "a")).await.unwrap();
        east.request_vif(&request(&east, "b")).await.unwrap();
        west.request_vif(&request(&west, "a")).await.unwrap();
        assert_eq!(east.vifs(None).await.unwrap().len(), 2);
        let marked = Owned { owner: Some(owner("a")), resource: vif };
        assert_eq!(east.vifs(Some(&owner("a"))).await.unwrap(), [marked]);
    }

    #[tokio::test]
    async fn a_lost_answer_leaves_a_port_that_its_mark_finds() {
        let driver = world(MemoryOptions::default());
        let lost = DriverError::new(Reason::Unavailable, "make a port");
        driver.faults().inject(VifMethod::Request, 1, Fault::DoneThenFail(lost));
        assert!(driver.request_vif(&request(&driver, "a")).await.unwrap_err().ambiguous());
        assert_eq!(driver.vifs(Some(&owner("a"))).await.unwrap().len(), 1);
        let uid: Uid = "uid-a".into();
        assert_eq!(driver.calls(), [VifCall::Request(uid.clone()), VifCall::List(Some(uid))]);
    }

    #[tokio::test]
    async fn a_port_that_vanished_is_not_found() {
        let driver = world(MemoryOptions::default());
        let vif = driver.request_vif(&request(&driver, "a")).await.unwrap();
        driver.network().remove_port(&vif.id);
        assert_eq!(driver.activate_vif(&owner("web"), &vif).await.unwrap_err().reason(), Reason::NotFound);
    }
}
