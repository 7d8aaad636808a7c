//! The driver `nested-macvlan`.

use futures_util::future::join_all;
use serde_json::json;
use staffetta_driver::{Activation, PodVifDriver, Vif, VifClass};

use super::world::{World, text};

fn pair(vif: &Vif) -> String {
    format!("{} {}", vif.ips().next().unwrap(), vif.address)
}

pub(crate) async fn the_port_of_the_node_may_use_the_addresses_of_its_pods_as_long_as_they_live(
    world: &World,
) {
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let driver = world.macvlan("east", &machine);
    let vif = driver.request_vif(&world.nested_request("a", &machine, &machine.subnet)).await.unwrap();
    assert!(vif.active && matches!(vif.class, VifClass::MacvlanNested { .. }));
    let other = driver.request_vif(&world.nested_request("b", &machine, &machine.subnet)).await.unwrap();
    let third = driver.request_vif(&world.nested_request("c", &machine, &machine.subnet)).await.unwrap();
    let mut pairs = [pair(&vif), pair(&other), pair(&third)];
    pairs.sort_unstable();
    assert_eq!(world.pairs(&machine.port).await, pairs);
    driver.release_vif(&world.owner("a"), &vif).await.unwrap();
    let mut pairs = [pair(&other), pair(&third)];
    pairs.sort_unstable();
    assert_eq!(world.pairs(&machine.port).await, pairs);
    assert!(world.port(vif.id.as_str()).await.is_null());
    // Its port is gone already, its addresses are not; a sweep sees neither.
    world.remove(&format!("ports/{}", other.id)).await;
    assert_eq!(driver.vifs(None).await.unwrap().len(), 1);
    // The annotation of a pod may name the addresses of another one.
    let forged = Vif { id: other.id.clone(), ..third.clone() };
    driver.release_vif(&world.owner("b"), &forged).await.unwrap();
    assert_eq!(world.pairs(&machine.port).await, [pair(&third)]);
    driver.release_vif(&world.owner("c"), &third).await.unwrap();
    assert!(world.pairs(&machine.port).await.is_empty());
}

pub(crate) async fn pods_of_one_node_that_come_together_all_get_their_addresses(world: &World) {
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let driver = world.macvlan("east", &machine);
    let requests: Vec<_> =
        (0..8).map(|pod| world.nested_request(&format!("pod-{pod}"), &machine, &machine.subnet)).collect();
    let vifs = join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let mut pairs: Vec<String> = vifs.iter().map(|vif| pair(vif.as_ref().unwrap())).collect();
    pairs.sort_unstable();
    assert_eq!(world.pairs(&machine.port).await, pairs);
    let releases = requests.iter().zip(&vifs);
    let released =
        join_all(releases.map(|(request, vif)| driver.release_vif(&request.owner, vif.as_ref().unwrap())))
            .await;
    assert!(released.iter().all(Result::is_ok), "{released:?}");
    assert!(world.pairs(&machine.port).await.is_empty());
}

pub(crate) async fn a_pair_that_was_left_out_is_added_when_the_vif_is_activated(world: &World) {
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    let owner = world.owner("web");
    let cluster = world.cluster("east");
    let description = format!(
        "staffetta:cluster={cluster} host={} port={} uid={} pod=default/web",
        machine.address, machine.port, owner.uid
    );
    let wish = json!({
        "network_id": machine.subnet.network.id, "project_id": world.project, "device_owner": "compute:staffetta",
        "device_id": owner.uid, "description": description, "fixed_ips": [{ "subnet_id": machine.subnet.id }],
        "tags": [format!("staffetta:cluster={cluster}"), format!("staffetta:uid={}", owner.uid)],
    });
    let port = world.create("ports", "port", wish).await;
    let driver = world.macvlan("east", &machine);
    let found = driver.vifs(Some(&owner)).await.unwrap().remove(0).resource;
    assert!(!found.active && found.id.as_str() == text(&port["id"]));
    let active = Vif { active: true, ..found.clone() };
    // A pod of another cluster that names it gets nothing by that.
    let error = world.macvlan("west", &machine).activate_vif(&owner, &found).await.unwrap_err();
    assert_eq!(error.reason(), staffetta_driver::Reason::Refused);
    assert!(world.pairs(&machine.port).await.is_empty());
    assert_eq!(driver.activate_vif(&owner, &found).await.unwrap(), Activation::Active(active));
    assert_eq!(world.pairs(&machine.port).await, [pair(&found)]);
}
