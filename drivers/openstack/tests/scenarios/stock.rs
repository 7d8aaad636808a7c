//! The stocks of the pools `neutron` and `nested`.

use std::collections::BTreeSet;

use serde_json::json;
use staffetta_driver::{
    BulkVifDriver, BulkVifRequest, PodVifDriver, PooledVif, PooledVifList, Reason, Vif, VifClass, VifId,
    VifPoolKey, VifRequest,
};
use staffetta_openstack::NestedVlanDriver;

use super::world::{Machine, World, activated, text};

/// An order of ports that answer `request`.
pub(crate) fn order(stock: &dyn BulkVifDriver, request: &VifRequest, count: usize) -> BulkVifRequest {
    BulkVifRequest {
        key: VifPoolKey::new(stock.host(request).unwrap(), request),
        subnets: request.subnets.clone(),
        security_groups: request.security_groups.clone(),
        count,
    }
}

fn ids(vifs: &[Vif]) -> BTreeSet<VifId> {
    vifs.iter().map(|vif| vif.id.clone()).collect()
}

fn vifs(stocked: &[PooledVif]) -> BTreeSet<VifId> {
    stocked.iter().map(|stocked| stocked.vif.id.clone()).collect()
}

/// The usable pooled VIFs.
async fn usable(stock: &dyn BulkVifDriver) -> Vec<PooledVif> {
    stock.list_vifs().await.unwrap().usable
}

pub(crate) async fn ports_in_stock_are_listed_as_they_were_ordered_and_destroyed(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    let order = order(&stock, &world.request("any", &host, &subnet), 5);
    let made = stock.create_vifs(&order).await;
    assert!(made.failure.is_none() && ids(&made.vifs).len() == 5);
    assert!(made.vifs.iter().all(|vif| matches!(vif.class, VifClass::OpenVSwitch { .. })));
    // As another process sees it.
    let other = world.bound("east");
    let listed = usable(&other).await;
    assert!(listed.iter().all(|stocked| stocked.key == order.key));
    let listed: Vec<Vif> = listed.into_iter().map(|stocked| stocked.vif).collect();
    assert_eq!(ids(&listed), ids(&made.vifs));
    assert!(listed.iter().all(|vif| made.vifs.contains(vif)));
    let reported = world.bound("east").vifs(None).await.unwrap();
    assert!(
        reported.len() == made.vifs.len() && reported.iter().all(|marked| marked.owner.is_none()),
        "they are nobody's"
    );
    world.remove(&format!("ports/{}", made.vifs[0].id)).await;
    assert!(other.delete_vifs(&made.vifs).await.is_empty());
    assert!(world.ports(&subnet).await.is_empty() && usable(&other).await.is_empty());
}

pub(crate) async fn a_port_in_stock_with_two_addresses_is_listed_as_it_was_made(world: &World) {
    let (first, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let second = world.subnet_beside(&first, "10.3.0.0/24").await;
    let stock = world.bound("east");
    for subnets in [[&first, &second], [&second, &first]] {
        let subnets = subnets.map(Clone::clone).to_vec();
        let request = VifRequest { subnets, ..world.request("any", &host, &first) };
        let order = order(&stock, &request, 2);
        let made = stock.create_vifs(&order).await;
        assert!(made.failure.is_none() && made.vifs.iter().all(|vif| vif.ips().count() == 2));
        // As another process sees it, and as it is written down: in the order in which Neutron tells of the addresses.
        let listed = usable(&world.bound("east")).await;
        assert_eq!(listed.len(), 2);
        for stocked in listed {
            assert_eq!(stocked.key, order.key);
            assert!(made.vifs.contains(&stocked.vif), "{:?} and {:?}", made.vifs, stocked.vif);
        }
        assert!(stock.delete_vifs(&made.vifs).await.is_empty());
    }
}

pub(crate) async fn a_stock_takes_what_a_quota_leaves_it(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    world.allow_ports(7).await;
    let made = stock.create_vifs(&order(&stock, &world.request("any", &host, &subnet), 20)).await;
    assert_eq!((made.vifs.len(), world.ports(&subnet).await.len()), (7, 7));
    assert_eq!(made.failure.unwrap().reason(), Reason::Quota);
    world.allow_ports(-1).await;
}

pub(crate) async fn a_stock_takes_what_a_subnet_leaves_it(world: &World) {
    // Fourteen addresses, one of them the router's.
    let (subnet, host) = (world.subnet("10.1.0.0/28").await, world.host("node").await);
    let stock = world.bound("east");
    let made = stock.create_vifs(&order(&stock, &world.request("any", &host, &subnet), 20)).await;
    assert_eq!((made.vifs.len(), world.ports(&subnet).await.len()), (13, 13));
    assert_eq!(made.failure.unwrap().reason(), Reason::NoAddress);
}

pub(crate) async fn ports_in_stock_get_other_security_groups(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    let vif =
        stock.create_vifs(&order(&stock, &world.request("any", &host, &subnet), 1)).await.vifs.remove(0);
    let wish = json!({ "name": "web", "project_id": world.project });
    let group = world.create("security-groups", "security_group", wish).await;
    let groups = async || usable(&stock).await.remove(0).security_groups;
    let of_the_port = async || world.port(vif.id.as_str()).await["security_groups"].clone();
    let default = of_the_port().await;
    assert_eq!(groups().await, [], "it is as it was ordered");
    stock.set_security_groups(&vif, &[text(&group["id"]).into()]).await.unwrap();
    assert_eq!(groups().await, [text(&group["id"]).into()]);
    stock.set_security_groups(&vif, &[]).await.unwrap();
    assert_eq!(groups().await, []);
    assert_eq!(of_the_port().await, default, "a port that asks for no group has those of its project");
    let unknown = "00000000-0000-4000-8000-0000000000ff".into();
    assert_eq!(stock.set_security_groups(&vif, &[unknown]).await.unwrap_err().reason(), Reason::Refused);
    stock.delete_vifs(std::slice::from_ref(&vif)).await;
    let gone = stock.set_security_groups(&vif, &[text(&group["id"]).into()]).await.unwrap_err();
    assert_eq!(gone.reason(), Reason::NotFound);
}

async fn nested(world: &World) -> (Machine, staffetta_driver::Subnet, NestedVlanDriver) {
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let stock = world.vlan("east", &machine);
    (machine, world.subnet("10.1.0.0/24").await, stock)
}

pub(crate) async fn subports_in_stock_have_their_vlans_and_free_them(world: &World) {
    let (machine, subnet, stock) = nested(world).await;
    let order = order(&stock, &world.nested_request("any", &machine, &subnet), 4);
    let made = stock.create_vifs(&order).await;
    assert!(made.failure.is_none() && made.vifs.len() == 4, "{:?}", made.failure);
    let vlans: BTreeSet<u64> = world.subports(&machine).await.into_iter().map(|(_, vlan)| vlan).collect();
    assert_eq!(vlans.len(), 4);
    world.wire(&made.vifs[0].id, &machine.host).await;
    let driver = world.vlan("east", &machine);
    let active = activated(&driver, &world.owner("web"), &made.vifs[0]).await.unwrap();
    let listed = usable(&stock).await;
    assert!(listed.iter().all(|stocked| stocked.key == order.key) && stock.is_active_unbound(&active));
    let listed: Vec<Vif> = listed.into_iter().map(|stocked| stocked.vif).collect();
    assert!(listed.contains(&active) && made.vifs[1..].iter().all(|vif| listed.contains(vif)));
    assert!(stock.delete_vifs(&made.vifs).await.is_empty());
    assert!(world.subports(&machine).await.is_empty() && world.ports(&subnet).await.is_empty());
}

pub(crate) async fn what_was_left_half_made_is_listed_as_such_and_destroyed(world: &World) {
    let cluster = world.cluster("east");
    let (machine, subnet, stock) = nested(world).await;
    let made =
        stock.create_vifs(&order(&stock, &world.nested_request("any", &machine, &subnet), 1)).await.vifs;
    let half = json!({
        "network_id": subnet.network.id, "project_id": world.project, "device_owner": "compute:staffetta",
        "fixed_ips": [{ "subnet_id": subnet.id }], "tags": [format!("staffetta:cluster={cluster}")],
        "description": format!("staffetta:cluster={cluster} host={} trunk={} batch=00-1", machine.address, machine.trunk),
    });
    let half = world.create("ports", "port", half).await;
    let PooledVifList { usable, incomplete, .. } = stock.list_vifs().await.unwrap();
    assert_eq!((vifs(&usable), incomplete.len()), (ids(&made), 1));
    assert!(!world.port(text(&half["id"])).await.is_null(), "a list changes nothing");
    assert_eq!((incomplete[0].vif.id.as_str(), &incomplete[0].key), (text(&half["id"]), &usable[0].key));
    assert!(stock.delete_vifs(&[incomplete[0].vif.clone()]).await.is_empty());
    assert!(world.port(text(&half["id"])).await.is_null());
    // The same with a port that no agent could bind.
    let unbindable = json!({
        "network_id": subnet.network.id, "project_id": world.project, "device_owner": "compute:staffetta",
        "fixed_ips": [{ "subnet_id": subnet.id }], "tags": [format!("staffetta:cluster={cluster}")], "binding:host_id": "nowhere",
        "description": format!("staffetta:cluster={cluster} batch=00-2"),
    });
    world.create("ports", "port", unbindable).await;
    let stock = world.bound("east");
    let PooledVifList { usable, incomplete, .. } = stock.list_vifs().await.unwrap();
    assert_eq!((usable.len(), incomplete.len(), world.ports(&subnet).await.len()), (0, 1, 2));
    assert!(stock.delete_vifs(&[incomplete[0].vif.clone()]).await.is_empty());
    assert_eq!(world.ports(&subnet).await.len(), 1);
}

pub(crate) async fn a_stock_never_destroys_what_is_a_pods_or_another_clusters(world: &World) {
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let request = world.request("web", &host, &subnet);
    let of_a_pod = world.bound("east").request_vif(&request).await.unwrap();
    let west = world.bound("west");
    let of_another = west.create_vifs(&order(&west, &request, 1)).await.vifs.remove(0);
    for stock in [world.bound("east"), world.bound("east")] {
        assert!(usable(&stock).await.is_empty());
        stock.delete_vifs(&[of_a_pod.clone(), of_another.clone()]).await;
        assert_eq!(world.ports(&subnet).await.len(), 2);
    }
}

pub(crate) async fn what_is_in_stock_is_listed_without_an_owner_and_is_no_pods_to_release(world: &World) {
    let (machine, subnet, subports) = nested(world).await;
    let host = world.host("node").await;
    let ports = world.bound("east");
    let [bound] = &ports.create_vifs(&order(&ports, &world.request("any", &host, &subnet), 1)).await.vifs[..]
    else {
        panic!("one was ordered")
    };
    let [vlan] = &subports
        .create_vifs(&order(&subports, &world.nested_request("any", &machine, &subnet), 1))
        .await
        .vifs[..]
    else {
        panic!("one was ordered")
    };
    let web = world.request("web", &host, &subnet);
    let of_a_pod = world.bound("east").request_vif(&web).await.unwrap();
    let reported = async |driver: &dyn PodVifDriver, owner| -> BTreeSet<_> {
        let marked = driver.vifs(owner).await.unwrap().into_iter();
        marked.map(|marked| (marked.resource.id, marked.owner.is_some())).collect()
    };
    let driver = world.bound("east");
    assert_eq!(
        reported(&driver, None).await,
        [(bound.id.clone(), false), (of_a_pod.id.clone(), true)].into()
    );
    assert_eq!(reported(&driver, Some(&web.owner)).await, [(of_a_pod.id.clone(), true)].into());
    assert_eq!(reported(&world.vlan("east", &machine), None).await, [(vlan.id.clone(), false)].into());
    // Whatever a pod shows, and whether or not it is the kind of the driver, or known to it.
    for vif in [bound, vlan] {
        for driver in [
            &driver as &dyn PodVifDriver,
            &world.bound("east"),
            &world.vlan("east", &machine),
            &world.macvlan("east", &machine),
        ] {
            driver.release_vif(&web.owner, vif).await.unwrap();
        }
    }
    assert_eq!(world.ports(&subnet).await.len(), 3);
    assert_eq!(world.subports(&machine).await.len(), 1);
}
