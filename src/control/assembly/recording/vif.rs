//! Records calls to VIF drivers and VIF pools.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Map;
use staffetta_driver::{
    Activation, DriverError, MacAddress, Network, NodeInfo, Owned, Owner, PodVifDriver, Uid, Vif, VifClass,
    VifId, VifPoolDriver, VifPoolObserver, VifRequest,
};

use super::{Recording, list, planned};

/// Passes reads to the real VIF driver or VIF pool, and records changes. If the calls to a pool are recorded, those that the pool would
/// make to its VIF driver are not.
#[async_trait]
impl<D: PodVifDriver + ?Sized> PodVifDriver for Recording<D> {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        let VifRequest { owner, node_name, project, subnets, security_groups, .. } = request;
        let call = self
            .call("request a VIF")
            .with("subnets", list(subnets.iter().map(|subnet| subnet.cidr)))
            .with("security groups", list(security_groups))
            .with("project", project)
            .with("node", node_name);
        self.record(Some(owner), call);
        Ok(planned_vif(request))
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        let call = self.call("release a VIF").with("VIF", &vif.id).with("addresses", list(vif.ips()));
        self.record(Some(owner), call);
        Ok(())
    }

    async fn activate_vif(&self, owner: &Owner, vif: &Vif) -> Result<Activation, DriverError> {
        self.record(Some(owner), self.call("activate a VIF").with("VIF", &vif.id));
        Ok(Activation::Active(Vif { active: true, ..vif.clone() }))
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.driver.vifs(owner).await
    }

    async fn unmarked_vifs(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.driver.unmarked_vifs().await
    }

    fn vif_returned(&self, vif: &VifId) {
        self.driver.vif_returned(vif);
    }
}

#[async_trait]
impl VifPoolDriver for Recording<dyn VifPoolDriver> {
    fn contains_vif(&self, vif: &VifId) -> bool {
        self.driver.contains_vif(vif)
    }

    fn vif_driver_of_node(&self, node: &str) -> Option<String> {
        self.driver.vif_driver_of_node(node)
    }

    fn observer(&self) -> Option<&dyn VifPoolObserver> {
        self.driver.observer().map(|_| self as &dyn VifPoolObserver)
    }
}

/// Passes changes of nodes on to the real pool, because its responses depend on them. The pool itself is not started, because it would
/// create VIFs.
#[async_trait]
impl VifPoolObserver for Recording<dyn VifPoolDriver> {
    async fn resync(&self) -> Result<Vec<Owned<Vif>>, DriverError> {
        self.driver.vifs(None).await
    }

    fn pod_vifs(&self, _: &Pod, _: Option<&[Vif]>) {}

    fn pod_ended(&self, _: &Uid) {}

    fn start(&self) {}

    fn node_changed(&self, name: &str, facts: Option<&NodeInfo>) {
        if let Some(observer) = self.driver.observer() {
            observer.node_changed(name, facts);
        }
    }
}

/// Returns the VIF that a real driver would create, with a planned id and the addresses `0.0.0.0` or `::`.
fn planned_vif(VifRequest { owner, subnets, .. }: &VifRequest) -> Vif {
    let network = subnets.first().map(|subnet| subnet.network.clone());
    let address = |cidr: IpAddr| match cidr {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    Vif {
        id: planned(&owner.uid).into(),
        address: MacAddress([0; 6]),
        active: true,
        plugin: "planned".into(),
        class: VifClass::Other { name: "VIFPlanned".into(), version: "1.0".into(), fields: Map::new() },
        network: network.unwrap_or_else(|| Network::new(planned("network").into())),
        subnets: subnets.iter().map(|subnet| subnet.with_ips(vec![address(subnet.cidr.addr())])).collect(),
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use staffetta_memory::{
        MemoryBulkVifDriver, MemoryNetwork, MemoryOptions, MemoryPublishedVifs, MemoryVifDriver, VifCall,
    };
    use staffetta_pool::{MultiVifPool, NoopVifPool, VifPoolPolicy, WarmVifPool};

    use super::super::testing::{Calls, owner};
    use super::*;

    fn request(network: &MemoryNetwork, name: &str) -> VifRequest {
        let cidrs = ["10.10.0.0/16", "fd00::/64"].map(|cidr| cidr.parse().unwrap());
        VifRequest {
            owner: owner(name),
            node_name: "n1".into(),
            host_ip: None,
            project: "memory".into(),
            subnets: cidrs.map(|cidr| network.subnet(cidr)).to_vec(),
            security_groups: vec!["web".into(), "all".into()],
        }
    }

    fn memory() -> Arc<MemoryVifDriver> {
        let subnets = ["10.10.0.0/16", "fd00::/64"].map(|cidr| cidr.parse().unwrap()).to_vec();
        let options = MemoryOptions { pod_subnets: subnets, ..MemoryOptions::default() };
        Arc::new(MemoryVifDriver::new(Arc::new(MemoryNetwork::new(options)), "east".into()))
    }

    #[tokio::test]
    async fn a_request_is_recorded_and_returns_a_planned_vif() {
        let (real, calls) = (memory(), Calls::default());
        let driver = calls.record::<dyn PodVifDriver>(Arc::clone(&real) as _);
        let vif = driver.request_vif(&request(real.network(), "web")).await.unwrap();
        assert_eq!((vif.id.as_str(), vif.active), ("planned-uid-web", true));
        assert_eq!(vif.ips().map(|ip| ip.to_string()).collect::<Vec<_>>(), ["0.0.0.0", "::"]);
        let expected = "default/web: request a VIF: subnets 10.10.0.0/16, fd00::/64; security groups web, all; \
            project memory; node n1";
        assert_eq!(calls.take(), [expected]);
        assert!(real.network().ports().is_empty());
    }

    #[tokio::test]
    async fn a_release_and_an_activation_are_recorded_and_not_made() {
        let (real, calls) = (memory(), Calls::default());
        let vif = real.request_vif(&request(real.network(), "web")).await.unwrap();
        let before = real.calls().len();
        let driver = calls.record::<dyn PodVifDriver>(Arc::clone(&real) as _);
        let Activation::Active(active) = driver.activate_vif(&owner("web"), &vif).await.unwrap() else {
            panic!("a planned VIF is active at once")
        };
        assert!(active.active && !vif.active);
        assert_eq!(driver.vifs(None).await.unwrap()[0].owner, Some(owner("web")));
        driver.release_vif(&owner("web"), &vif).await.unwrap();
        let addresses = vif.ips().map(|ip| ip.to_string()).collect::<Vec<_>>().join(", ");
        let expected = [
            format!("default/web: activate a VIF: VIF {}", vif.id),
            format!("default/web: release a VIF: VIF {}; addresses {addresses}", vif.id),
        ];
        assert_eq!(calls.take(), expected);
        let made = real.calls().split_off(before);
        assert!(made.iter().all(|call| matches!(call, VifCall::List(_))), "{made:?}");
        assert_eq!(real.network().ports().len(), 1);
    }

    #[tokio::test]
    async fn the_calls_of_a_pool_are_recorded_and_not_those_of_the_driver_behind_it() {
        let (real, behind, before) = (memory(), Calls::default(), Calls::default());
        let driver = behind.record::<dyn PodVifDriver>(Arc::clone(&real) as _);
        let pool = before.record::<dyn VifPoolDriver>(Arc::new(NoopVifPool::new(Arc::new(driver))));
        let vif = pool.request_vif(&request(real.network(), "web")).await.unwrap();
        pool.activate_vif(&owner("web"), &vif).await.unwrap();
        pool.release_vif(&owner("web"), &vif).await.unwrap();
        assert_eq!(pool.vifs(None).await.unwrap(), []);
        assert_eq!((before.take().len(), behind.take().len()), (3, 0));
        assert!(pool.observer().is_none(), "the pool behind it has none");
    }

    #[tokio::test]
    async fn a_pool_learns_of_nodes_and_is_not_filled() {
        let real = memory();
        let bulk = Arc::new(MemoryBulkVifDriver::new(Arc::clone(real.network()), "east".into()));
        let policy = VifPoolPolicy { min: 1, max: 0, batch: 1, cool_down: Duration::from_secs(20) };
        let (stock, published) = (Arc::clone(&bulk) as _, Arc::<MemoryPublishedVifs>::default());
        let kept = WarmVifPool::new(stock, Arc::clone(&real) as _, published, policy, Arc::new(|| true));
        let nested: Arc<dyn VifPoolDriver> = Arc::new(NoopVifPool::new(Arc::clone(&real) as _));
        let pools = [("neutron-vif".to_owned(), Arc::new(kept) as _), ("nested-vlan".to_owned(), nested)];
        let several = Arc::new(MultiVifPool::new(pools.into(), "neutron-vif", |_| None).unwrap());
        let pool = Calls::default().record::<dyn VifPoolDriver>(several);
        let observer = pool.observer().unwrap();
        let nested = NodeInfo { pod_vif: Some("nested-vlan".into()), ..NodeInfo::default() };
        observer.node_changed("n1", Some(&nested));
        observer.resync().await.unwrap();
        observer.start();
        let drivers = || ["n1", "n2"].map(|node| pool.vif_driver_of_node(node).unwrap());
        assert_eq!(drivers(), ["nested-vlan", "neutron-vif"]);
        pool.request_vif(&request(real.network(), "web")).await.unwrap();
        observer.node_changed("n1", None);
        assert_eq!(drivers(), ["neutron-vif", "neutron-vif"]);
        assert_eq!(bulk.calls(), []);
    }
}
