//! VIFs that are planned.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Map;

use super::overlay::Overlay;
use super::{PlannedCall, Planner, listed, planned, unspecified};
use crate::error::DriverError;
use crate::id::{Uid, VifId};
use crate::network::{Network, Subnet};
use crate::nodes::NodeFacts;
use crate::owner::{Marked, Owner};
use crate::pod_vif::{Activation, PodVifDriver, VifRequest};
use crate::pool_ledger::PoolLedger;
use crate::vif::{MacAddress, Vif, VifClass};
use crate::vif_pool::VifPoolDriver;

/// The class of a VIF that only the driver could describe.
const CLASS: &str = "VIFPlanned";

/// A VIF driver that reads and plans.
///
/// A planned VIF counts as active, and so does one that would be activated: when that is the case, time alone would tell.
pub struct RehearsedVifDriver {
    inner: Arc<dyn PodVifDriver>,
    vifs: Vifs,
}

/// A VIF pool that reads and plans. What the pool would ask of the driver behind it is the pool's own business, and not
/// in the plan.
pub struct RehearsedVifPool {
    inner: Arc<dyn VifPoolDriver>,
    vifs: Vifs,
}

impl RehearsedVifDriver {
    /// Reads from `inner`, and tells `planner` of the rest.
    pub fn new(inner: Arc<dyn PodVifDriver>, planner: Planner) -> Self {
        Self { inner, vifs: Vifs::new(planner) }
    }
}

impl RehearsedVifPool {
    /// Reads from `inner`, and tells `planner` of the rest.
    pub fn new(inner: Arc<dyn VifPoolDriver>, planner: Planner) -> Self {
        Self { inner, vifs: Vifs::new(planner) }
    }
}

#[async_trait]
impl PodVifDriver for RehearsedVifDriver {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        Ok(self.vifs.request(request))
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.vifs.release(owner, vif);
        Ok(())
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        Ok(self.vifs.activate(vif))
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        Ok(self.vifs.over(self.inner.vifs(owner).await?, owner))
    }
}

#[async_trait]
impl VifPoolDriver for RehearsedVifPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        Ok(self.vifs.request(request))
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.vifs.release(owner, vif);
        Ok(())
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        Ok(self.vifs.activate(vif))
    }

    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        Ok(self.vifs.over(self.inner.vifs(owner).await?, owner))
    }

    fn keeps(&self, vif: &VifId) -> bool {
        self.inner.keeps(vif)
    }

    fn vif_driver(&self, node: &str) -> Option<String> {
        self.inner.vif_driver(node)
    }

    fn ledger(&self) -> Option<&dyn PoolLedger> {
        self.inner.ledger().map(|_| self as &dyn PoolLedger)
    }
}

/// The pool behind it learns which nodes there are, by which it answers. It hands nothing out, so that it need not know what pods
/// use; and it never begins, for then it would make what it keeps ready.
#[async_trait]
impl PoolLedger for RehearsedVifPool {
    async fn read(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn shows(&self, _: &Owner, _: &[Vif]) {}

    fn contested(&self, _: &Uid) -> bool {
        false
    }

    fn begin(&self) {}

    fn node(&self, name: &str, facts: Option<&NodeFacts>) {
        if let Some(ledger) = self.inner.ledger() {
            ledger.node(name, facts);
        }
    }
}

/// What both have in common.
struct Vifs {
    planner: Planner,
    overlay: Overlay<VifId, Vif>,
}

impl Vifs {
    fn new(planner: Planner) -> Self {
        Self { planner, overlay: Overlay::default() }
    }

    fn request(&self, request: &VifRequest) -> Vif {
        let VifRequest { owner, node_name, project, subnets, security_groups, .. } = request;
        (self.planner)(
            PlannedCall::new("request a VIF")
                .of(owner)
                .with("subnets", listed(subnets.iter().map(|subnet| subnet.cidr)))
                .with("security groups", listed(security_groups))
                .with("project", project)
                .with("node", node_name),
        );
        let vif = vif(owner, subnets);
        self.overlay.put(vif.id.clone(), Some(owner.clone()), vif.clone());
        vif
    }

    fn release(&self, owner: &Owner, vif: &Vif) {
        (self.planner)(
            PlannedCall::new("release a VIF")
                .of(owner)
                .with("VIF", &vif.id)
                .with("addresses", listed(vif.ips())),
        );
        self.overlay.remove(vif.id.clone());
    }

    fn activate(&self, vif: &Vif) -> Activation {
        (self.planner)(PlannedCall::new("activate a VIF").with("VIF", &vif.id));
        let active = Vif { active: true, ..vif.clone() };
        self.overlay.change(vif.id.clone(), active.clone());
        Activation::Active(active)
    }

    fn over(&self, read: Vec<Marked<Vif>>, owner: Option<&Owner>) -> Vec<Marked<Vif>> {
        self.overlay.over(read, |vif| vif.id.clone(), owner)
    }
}

fn vif(owner: &Owner, subnets: &[Subnet]) -> Vif {
    let network = subnets.first().map(|subnet| subnet.network.clone());
    Vif {
        id: planned(&owner.uid).into(),
        address: MacAddress([0; 6]),
        active: true,
        plugin: "planned".into(),
        class: VifClass::Other { name: CLASS.into(), version: "1.0".into(), fields: Map::new() },
        network: network.unwrap_or_else(|| Network::new(planned("network").into())),
        subnets: subnets
            .iter()
            .map(|subnet| subnet.with_ips(vec![unspecified(subnet.cidr.addr())]))
            .collect(),
        has_traffic_filtering: false,
        preserve_on_delete: false,
        port_profile: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::testing::{Notes, owner};
    use super::*;
    use crate::memory::{MemoryNetwork, MemoryOptions, MemoryVifDriver, MemoryVifStock, VifCall};
    use crate::multi_pool::MultiPool;
    use crate::noop::NoopPool;
    use crate::pooled::{PoolPolicy, PooledVifs};

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

    fn world() -> Arc<MemoryVifDriver> {
        let subnets = ["10.10.0.0/16", "fd00::/64"].map(|cidr| cidr.parse().unwrap()).to_vec();
        let options = MemoryOptions { pod_subnets: subnets, ..MemoryOptions::default() };
        Arc::new(MemoryVifDriver::new(Arc::new(MemoryNetwork::new(options)), "east".into()))
    }

    #[tokio::test]
    async fn a_request_is_written_down_and_answered_with_a_placeholder_that_later_reads_show() {
        let (real, notes) = (world(), Notes::default());
        let driver = RehearsedVifDriver::new(Arc::clone(&real) as _, notes.planner());
        let vif = driver.request_vif(&request(real.network(), "web")).await.unwrap();
        assert_eq!((vif.id.as_str(), vif.active), ("planned-uid-web", true));
        assert_eq!(vif.ips().map(|ip| ip.to_string()).collect::<Vec<_>>(), ["0.0.0.0", "::"]);
        assert_eq!(
            notes.taken(),
            [
                "default/web: request a VIF: subnets 10.10.0.0/16, fd00::/64; security groups web, all; project memory; node n1"
            ]
        );
        assert_eq!(driver.vifs(Some(&owner("web"))).await.unwrap().len(), 1);
        assert!(real.network().ports().is_empty());
    }

    #[tokio::test]
    async fn a_release_and_an_activation_are_written_down_and_not_made() {
        let (real, notes) = (world(), Notes::default());
        let vif = real.request_vif(&request(real.network(), "web")).await.unwrap();
        let before = real.calls().len();
        let driver = RehearsedVifDriver::new(Arc::clone(&real) as _, notes.planner());
        let Activation::Active(active) = driver.activate_vif(&vif).await.unwrap() else {
            panic!("time alone would tell when")
        };
        assert!(active.active && !vif.active);
        assert_eq!(driver.vifs(None).await.unwrap()[0].owner, Some(owner("web")));
        driver.release_vif(&owner("web"), &vif).await.unwrap();
        assert_eq!(driver.vifs(None).await.unwrap(), []);
        let addresses = vif.ips().map(|ip| ip.to_string()).collect::<Vec<_>>().join(", ");
        let expected = [
            format!("activate a VIF: VIF {}", vif.id),
            format!("default/web: release a VIF: VIF {}; addresses {addresses}", vif.id),
        ];
        assert_eq!(notes.taken(), expected);
        assert!(
            real.calls()[before..].iter().all(|call| matches!(call, VifCall::List(_))),
            "{:?}",
            real.calls()
        );
        assert_eq!(real.network().ports().len(), 1);
    }

    #[tokio::test]
    async fn a_pool_is_rehearsed_as_a_whole() {
        let (real, behind, before) = (world(), Notes::default(), Notes::default());
        let driver = Arc::new(RehearsedVifDriver::new(Arc::clone(&real) as _, behind.planner()));
        let pool = RehearsedVifPool::new(Arc::new(NoopPool::new(driver)), before.planner());
        let vif = pool.request_vif(&request(real.network(), "web")).await.unwrap();
        pool.activate_vif(&vif).await.unwrap();
        pool.release_vif(&owner("web"), &vif).await.unwrap();
        assert_eq!(pool.vifs(None).await.unwrap(), []);
        assert_eq!((before.taken().len(), behind.taken().len()), (3, 0));
    }

    #[tokio::test]
    async fn a_rehearsed_pool_knows_the_drivers_of_nodes_and_neither_reads_nor_makes_what_it_would_keep() {
        let real = world();
        let stock = Arc::new(MemoryVifStock::new(Arc::clone(real.network()), "east".into()));
        let policy = PoolPolicy { min: 1, max: 0, batch: 1, cool_down: Duration::from_secs(20) };
        let kept =
            PooledVifs::new(Arc::clone(&stock) as _, Arc::clone(&real) as _, policy, Arc::new(|| true));
        let nested: Arc<dyn VifPoolDriver> = Arc::new(NoopPool::new(Arc::clone(&real) as _));
        let pools = [("neutron-vif".to_owned(), Arc::new(kept) as _), ("nested-vlan".to_owned(), nested)];
        let inner = Arc::new(MultiPool::new(pools.into(), "neutron-vif").unwrap());
        let pool = RehearsedVifPool::new(inner, Notes::default().planner());
        let ledger = pool.ledger().unwrap();
        let nested = NodeFacts { pod_vif: Some("nested-vlan".into()), ..NodeFacts::default() };
        ledger.node("n1", Some(&nested));
        ledger.read().await.unwrap();
        ledger.begin();
        let drivers = || ["n1", "n2"].map(|node| pool.vif_driver(node).unwrap());
        assert_eq!(drivers(), ["nested-vlan", "neutron-vif"]);
        pool.request_vif(&request(real.network(), "web")).await.unwrap();
        ledger.node("n1", None);
        assert_eq!(drivers(), ["neutron-vif", "neutron-vif"]);
        assert_eq!(stock.calls(), []);
    }

    #[test]
    fn a_pool_that_need_not_be_told_of_the_cluster_is_rehearsed_as_one() {
        let pool = RehearsedVifPool::new(Arc::new(NoopPool::new(world())), Notes::default().planner());
        assert!(pool.ledger().is_none());
    }
}
