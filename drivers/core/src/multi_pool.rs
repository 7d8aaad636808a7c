//! A pool for each kind of node.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{DriverError, Reason};
use crate::id::{NetworkId, SecurityGroupId, Uid, VifId};
use crate::nodes::{NodeFacts, Nodes};
use crate::owner::{Marked, Owner};
use crate::pod_vif::{Activation, VifRequest};
use crate::pool_ledger::PoolLedger;
use crate::vif::{Vif, VifClass};
use crate::vif_pool::VifPoolDriver;

/// When to ask again for a node of which nobody has told yet.
const SOON: Duration = Duration::from_secs(1);

/// The pool `multi_pool`: each node has the pool of the VIF driver that its label `pod_vif` names, or else that of the
/// default one. A VIF that a pool keeps is that pool's, whatever a pod says of it; any other is known by its class.
pub struct MultiPool {
    pools: BTreeMap<String, Arc<dyn VifPoolDriver>>,
    default: String,
    nodes: Nodes,
}

impl MultiPool {
    /// The pools by the name of the VIF driver in front of which each stands; `default` is one of these names.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use staffetta_driver::{MultiPool, NoopPool, PodVifDriver, VifPoolDriver};
    ///
    /// fn both(ports: Arc<dyn PodVifDriver>, nested: Arc<dyn PodVifDriver>) -> Option<MultiPool> {
    ///     let ports: Arc<dyn VifPoolDriver> = Arc::new(NoopPool::new(ports));
    ///     let nested: Arc<dyn VifPoolDriver> = Arc::new(NoopPool::new(nested));
    ///     MultiPool::new([("neutron-vif".into(), ports), ("nested-vlan".into(), nested)].into(), "neutron-vif")
    /// }
    /// ```
    pub fn new(pools: BTreeMap<String, Arc<dyn VifPoolDriver>>, default: &str) -> Option<Self> {
        let known = pools.contains_key(default);
        known.then(|| Self { pools, default: default.to_owned(), nodes: Nodes::default() })
    }

    /// The pool of the node's pods.
    fn of_node(&self, name: &str) -> Result<&Arc<dyn VifPoolDriver>, DriverError> {
        if !self.nodes.may_have(name) {
            let detail = format!("node {name} is not known yet");
            return Err(DriverError::new(Reason::Awaited, "choose a pool").detail(detail).after(SOON));
        }
        let driver = self.driver(name);
        self.pools.get(&driver).ok_or_else(|| {
            let known: Vec<_> = self.pools.keys().map(String::as_str).collect();
            DriverError::new(Reason::Refused, "choose a pool").detail(format!(
                "the label `pod_vif` of node {name} names `{driver}`; `vif_pool.vif_pool_mapping` has {}",
                known.join(", ")
            ))
        })
    }

    /// The name of the VIF driver of the node's pods.
    fn driver(&self, node: &str) -> String {
        self.nodes.pod_vif(node).unwrap_or_else(|| self.default.clone())
    }

    /// The pool from which the VIF came: the one that keeps it or, where none does, the one that its class names. The class
    /// is what a pod says, and whoever may annotate a pod could name another pod's VIF in another class.
    fn of_vif(&self, vif: &Vif) -> &Arc<dyn VifPoolDriver> {
        if let Some(keeper) = self.pools.values().find(|pool| pool.keeps(&vif.id)) {
            return keeper;
        }
        let makers: &[&str] = match vif.class {
            VifClass::OpenVSwitch { .. } | VifClass::Bridge { .. } | VifClass::VHostUser { .. } => {
                &["neutron-vif"]
            }
            VifClass::VlanNested { .. } => &["nested-vlan"],
            VifClass::MacvlanNested { .. } => &["nested-macvlan"],
            VifClass::DpdkNested { .. } => &["nested-dpdk"],
            VifClass::Other { .. } => &[],
        };
        let made = makers.iter().find_map(|maker| self.pools.get(*maker));
        made.unwrap_or_else(|| &self.pools[&self.default])
    }

    fn ledgers(&self) -> impl Iterator<Item = &dyn PoolLedger> {
        self.pools.values().filter_map(|pool| pool.ledger())
    }
}

#[async_trait]
impl VifPoolDriver for MultiPool {
    async fn request_vif(&self, request: &VifRequest) -> Result<Vif, DriverError> {
        self.of_node(&request.node_name)?.request_vif(request).await
    }

    async fn release_vif(&self, owner: &Owner, vif: &Vif) -> Result<(), DriverError> {
        self.of_vif(vif).release_vif(owner, vif).await
    }

    async fn activate_vif(&self, vif: &Vif) -> Result<Activation, DriverError> {
        self.of_vif(vif).activate_vif(vif).await
    }

    /// What several pools tell of is told once, by that from which it came.
    async fn vifs(&self, owner: Option<&Owner>) -> Result<Vec<Marked<Vif>>, DriverError> {
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for pool in self.pools.values() {
            for marked in pool.vifs(owner).await? {
                let is_own = Arc::ptr_eq(pool, self.of_vif(&marked.thing));
                if is_own { &mut own } else { &mut others }.push(marked);
            }
        }
        own.append(&mut others);
        let mut told = HashSet::new();
        own.retain(|marked| told.insert(marked.thing.id.clone()));
        Ok(own)
    }

    fn keeps(&self, vif: &VifId) -> bool {
        self.pools.values().any(|pool| pool.keeps(vif))
    }

    fn vif_driver(&self, node: &str) -> Option<String> {
        Some(self.driver(node))
    }

    /// All are told: an id does not say from which pool it came.
    fn regrouped(&self, vif: &VifId, security_groups: Option<&[SecurityGroupId]>) {
        self.pools.values().for_each(|pool| pool.regrouped(vif, security_groups));
    }

    fn ledger(&self) -> Option<&dyn PoolLedger> {
        Some(self)
    }

    async fn vacate(&self, network: &NetworkId) -> Result<(), DriverError> {
        for pool in self.pools.values() {
            pool.vacate(network).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl PoolLedger for MultiPool {
    async fn read(&self) -> Result<(), DriverError> {
        for ledger in self.ledgers() {
            ledger.read().await?;
        }
        Ok(())
    }

    fn shows(&self, owner: &Owner, vifs: &[Vif]) {
        for vif in vifs {
            if let Some(ledger) = self.of_vif(vif).ledger() {
                ledger.shows(owner, std::slice::from_ref(vif));
            }
        }
    }

    fn contested(&self, uid: &Uid) -> bool {
        self.ledgers().any(|ledger| ledger.contested(uid))
    }

    fn begin(&self) {
        self.ledgers().for_each(PoolLedger::begin);
    }

    fn node(&self, name: &str, facts: Option<&NodeFacts>) {
        self.nodes.note(name, facts);
        self.ledgers().for_each(|ledger| ledger.node(name, facts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryNetwork, MemoryOptions, MemoryVifDriver, MemoryVifStock, VifCall};
    use crate::noop::NoopPool;
    use crate::pooled::{PoolPolicy, PooledVifs};

    struct World {
        drivers: [Arc<MemoryVifDriver>; 2],
        pool: MultiPool,
    }

    fn world() -> World {
        let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
        let driver = || Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
        let drivers = [driver(), driver()];
        let pools = ["neutron-vif", "nested-vlan"].into_iter().zip(&drivers).map(|(name, driver)| {
            let pool: Arc<dyn VifPoolDriver> = Arc::new(NoopPool::new(Arc::clone(driver) as _));
            (name.to_owned(), pool)
        });
        let pool = MultiPool::new(pools.collect(), "neutron-vif").unwrap();
        for (node, label) in [("plain", None), ("nested", Some("nested-vlan")), ("odd", Some("other"))] {
            let pod_vif = label.map(str::to_owned);
            pool.node(node, Some(&NodeFacts { pod_vif, ..NodeFacts::default() }));
        }
        World { drivers, pool }
    }

    fn owner() -> Owner {
        Owner { namespace: "default".into(), name: "web".into(), uid: "uid-web".into() }
    }

    async fn request(world: &World, node: &str) -> Result<Vif, DriverError> {
        let request = VifRequest {
            owner: owner(),
            node_name: node.into(),
            host_ip: None,
            project: "memory".into(),
            subnets: vec![world.drivers[0].network().subnet("10.10.0.0/16".parse().unwrap())],
            security_groups: Vec::new(),
        };
        world.pool.request_vif(&request).await
    }

    fn calls(world: &World) -> [usize; 2] {
        world.drivers.each_ref().map(|driver| driver.calls().len())
    }

    #[tokio::test]
    async fn the_label_of_the_node_chooses_and_the_default_where_there_is_none() {
        let world = world();
        for _ in 0..2 {
            request(&world, "plain").await.unwrap();
        }
        assert_eq!(calls(&world), [2, 0]);
        request(&world, "nested").await.unwrap();
        assert_eq!(calls(&world), [2, 1]);
        let drivers = ["plain", "nested"].map(|node| world.pool.vif_driver(node).unwrap());
        assert_eq!(drivers, ["neutron-vif", "nested-vlan"]);
        let error = request(&world, "odd").await.unwrap_err();
        assert!(!error.transient() && error.to_string().contains("nested-vlan, neutron-vif"), "{error}");
    }

    #[tokio::test]
    async fn a_node_of_which_nobody_has_told_yet_is_waited_for() {
        let world = world();
        let error = request(&world, "new").await.unwrap_err();
        assert_eq!((error.reason(), error.retry_after()), (Reason::Awaited, Some(SOON)));
        assert_eq!(calls(&world), [0, 0], "its label may name either");
        world.pool.node("new", Some(&NodeFacts::default()));
        request(&world, "new").await.unwrap();
        let nobody_tells = MultiPool { nodes: Nodes::default(), ..world.pool };
        assert!(nobody_tells.of_node("new").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_cannot_give_away_the_vif_of_another_pool_by_naming_it_in_another_class() {
        let World { drivers, pool: MultiPool { pools, default, nodes } } = world();
        let stock = MemoryVifStock::new(Arc::clone(drivers[0].network()), "east".into());
        let policy = PoolPolicy { min: 1, max: 0, batch: 1, cool_down: Duration::from_secs(20) };
        let kept = PooledVifs::new(Arc::new(stock), Arc::clone(&drivers[0]) as _, policy, Arc::new(|| true));
        let mut pools = pools;
        pools.insert("neutron-vif".into(), Arc::new(kept));
        let world = World { drivers, pool: MultiPool { pools, default, nodes } };
        world.pool.read().await.unwrap();
        world.pool.begin();
        let vif = request(&world, "plain").await.unwrap();
        world.pool.shows(&owner(), std::slice::from_ref(&vif));
        let thief = Owner { name: "thief".into(), uid: "uid-thief".into(), ..owner() };
        let named =
            Vif { class: VifClass::VlanNested { vif_name: "eth0".into(), vlan_id: 7 }, ..vif.clone() };
        world.pool.shows(&thief, std::slice::from_ref(&named));
        world.pool.release_vif(&thief, &named).await.unwrap();
        assert_eq!(world.drivers[1].calls(), [], "it is no VIF of that driver");
        assert!(world.drivers[0].network().port(&vif.id).is_some());
        let holds = async |owner: &Owner| world.pool.vifs(Some(owner)).await.unwrap().len();
        assert_eq!((holds(&owner()).await, holds(&thief).await), (1, 0));
        world.pool.release_vif(&owner(), &vif).await.unwrap();
        assert_eq!(holds(&owner()).await, 0, "whose it is may give it back");
    }

    #[tokio::test]
    async fn a_release_goes_where_the_class_says_whatever_the_node_says_by_now() {
        let world = world();
        let vif = request(&world, "plain").await.unwrap();
        let nested =
            Vif { class: VifClass::VlanNested { vif_name: "eth0".into(), vlan_id: 7 }, ..vif.clone() };
        world.pool.release_vif(&owner(), &nested).await.unwrap();
        assert_eq!(world.drivers[1].calls(), [VifCall::Release("uid-web".into(), vif.id.clone())]);
        world.pool.activate_vif(&vif).await.unwrap_err();
        assert_eq!(calls(&world), [2, 1]);
    }

    #[tokio::test]
    async fn what_several_pools_tell_of_is_told_once() {
        let world = world();
        request(&world, "plain").await.unwrap();
        assert_eq!(world.pool.vifs(Some(&owner())).await.unwrap().len(), 1);
        assert_eq!(world.pool.vifs(None).await.unwrap().len(), 1);
    }

    #[test]
    fn without_its_default_there_is_no_such_pool() {
        assert!(MultiPool::new(BTreeMap::new(), "neutron-vif").is_none());
    }
}
