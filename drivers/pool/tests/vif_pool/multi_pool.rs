//! The pool that chooses another pool by the label of the node.

use std::collections::BTreeMap;

use staffetta_pool::MultiVifPool;

use super::*;

/// The delay after which a request for an unknown node is repeated.
const SOON: Duration = Duration::from_secs(1);

fn driver_of_class(class: &VifClass) -> Option<&'static str> {
    matches!(class, VifClass::VlanNested { .. }).then_some("nested-vlan")
}

struct World {
    drivers: [Arc<MemoryVifDriver>; 2],
    pool: MultiVifPool,
}

fn world() -> World {
    let network = Arc::new(MemoryNetwork::new(MemoryOptions::default()));
    let driver = || Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
    let drivers = [driver(), driver()];
    let pool = MultiVifPool::new(pools(&drivers), "neutron-vif", driver_of_class).unwrap();
    label_nodes(&pool);
    World { drivers, pool }
}

fn pools(drivers: &[Arc<MemoryVifDriver>; 2]) -> BTreeMap<String, Arc<dyn VifPoolDriver>> {
    let pools = ["neutron-vif", "nested-vlan"].into_iter().zip(drivers).map(|(name, driver)| {
        let pool: Arc<dyn VifPoolDriver> = Arc::new(NoopVifPool::new(Arc::clone(driver) as _));
        (name.to_owned(), pool)
    });
    pools.collect()
}

fn label_nodes(pool: &MultiVifPool) {
    for (node, label) in [("plain", None), ("nested", Some("nested-vlan")), ("odd", Some("other"))] {
        let pod_vif = label.map(str::to_owned);
        pool.node_changed(node, Some(&NodeInfo { pod_vif, ..NodeInfo::default() }));
    }
}

async fn request(world: &World, node: &str) -> Result<Vif, DriverError> {
    let request = VifRequest {
        owner: owner("web"),
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
    let drivers = ["plain", "nested"].map(|node| world.pool.vif_driver_of_node(node).unwrap());
    assert_eq!(drivers, ["neutron-vif", "nested-vlan"]);
    let error = request(&world, "odd").await.unwrap_err();
    assert!(!error.transient() && error.to_string().contains("nested-vlan, neutron-vif"), "{error}");
}

#[tokio::test]
async fn a_node_of_which_nobody_has_reported_yet_is_waited_for() {
    let world = world();
    let error = request(&world, "new").await.unwrap_err();
    assert_eq!((error.reason(), error.retry_after()), (Reason::Awaited, Some(SOON)));
    assert_eq!(calls(&world), [0, 0], "its label may name either");
    world.pool.node_changed("new", Some(&NodeInfo::default()));
    request(&world, "new").await.unwrap();
    let unwatched = MultiVifPool::new(pools(&world.drivers), "neutron-vif", driver_of_class).unwrap();
    assert_eq!(unwatched.vif_driver_of_node("new").as_deref(), Some("neutron-vif"));
    let world = World { pool: unwatched, ..world };
    assert!(request(&world, "other").await.is_ok(), "without any node, none is waited for");
}

#[tokio::test(start_paused = true)]
async fn a_pod_cannot_give_away_the_vif_of_another_pool_by_naming_it_in_another_class() {
    let World { drivers, .. } = world();
    let bulk = MemoryBulkVifDriver::new(Arc::clone(drivers[0].network()), "east".into());
    let policy = VifPoolPolicy { min: 1, max: 0, batch: 1, cool_down: Duration::from_secs(20) };
    let published = Arc::<MemoryPublishedVifs>::default();
    let vifs = Arc::clone(&drivers[0]) as _;
    let kept = WarmVifPool::new(Arc::new(bulk), vifs, published, policy, Arc::new(|| true));
    let mut pools = pools(&drivers);
    pools.insert("neutron-vif".into(), Arc::new(kept));
    let pool = MultiVifPool::new(pools, "neutron-vif", driver_of_class).unwrap();
    label_nodes(&pool);
    let world = World { drivers, pool };
    world.pool.resync().await.unwrap();
    world.pool.start();
    let vif = request(&world, "plain").await.unwrap();
    world.pool.pod_vifs(&pod("web"), Some(std::slice::from_ref(&vif)));
    let thief = owner("thief");
    let named = Vif { class: VifClass::VlanNested { vif_name: "eth0".into(), vlan_id: 7 }, ..vif.clone() };
    world.pool.pod_vifs(&pod("thief"), Some(std::slice::from_ref(&named)));
    let claims = [world.pool.claim(&owner("web"), &vif), world.pool.claim(&thief, &named)];
    assert_eq!(claims, [PoolClaim::Held, PoolClaim::Refused]);
    world.pool.activate_vif(&thief, &named).await.unwrap_err();
    world.pool.release_vif(&thief, &named).await.unwrap();
    assert_eq!(world.drivers[1].calls(), [VifCall::List(None)], "it is no VIF of that driver");
    assert!(world.drivers[0].network().port(&vif.id).is_some());
    let holds = async |owner: &Owner| world.pool.vifs(Some(owner)).await.unwrap().len();
    assert_eq!((holds(&owner("web")).await, holds(&thief).await), (1, 0));
    world.pool.release_vif(&owner("web"), &vif).await.unwrap();
    assert_eq!(holds(&owner("web")).await, 0, "whose it is may give it back");
}

#[tokio::test]
async fn a_release_goes_where_the_class_says_whatever_the_node_says_by_now() {
    let world = world();
    let vif = request(&world, "plain").await.unwrap();
    let nested = Vif { class: VifClass::VlanNested { vif_name: "eth0".into(), vlan_id: 7 }, ..vif.clone() };
    world.pool.release_vif(&owner("web"), &nested).await.unwrap();
    assert_eq!(world.drivers[1].calls(), [VifCall::Release("uid-web".into(), vif.id.clone())]);
    world.pool.activate_vif(&owner("web"), &vif).await.unwrap_err();
    assert_eq!(calls(&world), [2, 1]);
}

#[tokio::test]
async fn what_several_pools_tell_of_is_reported_once() {
    let world = world();
    request(&world, "plain").await.unwrap();
    assert_eq!(world.pool.vifs(Some(&owner("web"))).await.unwrap().len(), 1);
    assert_eq!(world.pool.vifs(None).await.unwrap().len(), 1);
}

#[test]
fn without_its_default_there_is_no_such_pool() {
    assert!(MultiVifPool::new(BTreeMap::new(), "neutron-vif", driver_of_class).is_none());
}
