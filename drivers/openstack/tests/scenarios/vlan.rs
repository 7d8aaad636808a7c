//! The driver `nested-vlan`.

use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{Activation, PodVifDriver, Reason, Vif, VifClass, VifRequest};

use super::world::{Machine, World, activated, text};

/// A network for nodes with a machine in it, and one for pods.
async fn place(world: &World) -> (Machine, staffetta_driver::Subnet) {
    let machine = world.machine(&world.subnet("10.2.0.0/24").await).await;
    (machine, world.subnet("10.1.0.0/24").await)
}

fn vlan(vif: &Vif) -> u64 {
    match vif.class {
        VifClass::VlanNested { vlan_id, .. } => vlan_id.into(),
        _ => panic!("{:?} is no subport", vif.class),
    }
}

pub(crate) async fn a_pod_gets_a_subport_of_its_nodes_trunk(world: &World) {
    let (machine, subnet) = place(world).await;
    let driver = world.vlan("east", &machine);
    let vif = driver.request_vif(&world.nested_request("web", &machine, &subnet)).await.unwrap();
    assert_eq!(
        (&*vif.plugin, vif.active, vif.network.id.clone()),
        ("noop", false, subnet.network.id.clone())
    );
    assert_eq!(world.subports(&machine).await, [(vif.id.to_string(), vlan(&vif))]);
    world.wire(&vif.id, &machine.host).await;
    let active = activated(&driver, &world.owner("web"), &vif).await.unwrap();
    assert_eq!(active, Vif { active: true, ..vif.clone() });
    let found = world.vlan("east", &machine).vifs(Some(&world.owner("web"))).await.unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(vlan(&found[0].resource), vlan(&vif));
    assert!(world.bound("east").vifs(None).await.unwrap().is_empty(), "it is another driver's");
    driver.release_vif(&world.owner("web"), &vif).await.unwrap();
    assert!(world.subports(&machine).await.is_empty() && world.ports(&subnet).await.is_empty());
    driver.release_vif(&world.owner("web"), &vif).await.unwrap();
}

pub(crate) async fn each_trunk_has_all_vlans_for_itself(world: &World) {
    let (machine, subnet) = place(world).await;
    let other = world.machine(&machine.subnet).await;
    let driver = world.vlan("east", &machine);
    let mut vlans = Vec::new();
    for (pod, machine) in [("a", &machine), ("b", &other), ("c", &machine)] {
        vlans.push(vlan(&driver.request_vif(&world.nested_request(pod, machine, &subnet)).await.unwrap()));
    }
    assert_eq!(vlans, [1, 1, 2]);
}

pub(crate) async fn a_vlan_that_another_controller_takes_meanwhile_is_not_used_twice(world: &World) {
    let (machine, subnet) = place(world).await;
    let (east, west) = (world.vlan("east", &machine), world.vlan("west", &machine));
    let mut vlans = Vec::new();
    for pod in ["a", "b", "c"] {
        for driver in [&east, &west] {
            vlans.push(vlan(
                &driver.request_vif(&world.nested_request(pod, &machine, &subnet)).await.unwrap(),
            ));
        }
    }
    vlans.sort_unstable();
    vlans.dedup();
    assert_eq!((vlans.len(), world.subports(&machine).await.len()), (6, 6));
}

/// The state after a controller is killed before it adds the port of the pod `web` to the trunk.
async fn half_made(world: &World, machine: &Machine, subnet: &staffetta_driver::Subnet, vlan: u64) {
    let (cluster, owner) = (world.cluster("east"), world.owner("web"));
    let description = format!(
        "staffetta:cluster={cluster} host={} trunk={} vlan={vlan} uid={} pod=default/web",
        machine.address, machine.trunk, owner.uid
    );
    let wish = json!({
        "network_id": subnet.network.id, "project_id": world.project, "device_owner": "compute:staffetta",
        "description": description, "fixed_ips": [{ "subnet_id": subnet.id }],
        "tags": [format!("staffetta:cluster={cluster}"), format!("staffetta:uid={}", owner.uid)],
    });
    world.create("ports", "port", wish).await;
}

pub(crate) async fn a_subport_that_was_left_half_made_is_finished(world: &World) {
    let (machine, subnet) = place(world).await;
    // The VLAN that is the next one: the pod that comes before it is finished gets another one.
    half_made(world, &machine, &subnet, 1).await;
    let (owner, driver) = (world.owner("web"), world.vlan("east", &machine));
    let found = driver.vifs(None).await.unwrap().remove(0).resource;
    assert_eq!((vlan(&found), found.active), (1, false));
    let next = driver.request_vif(&world.nested_request("next", &machine, &subnet)).await.unwrap();
    assert_eq!(world.subports(&machine).await, [(next.id.to_string(), 2)]);
    assert!(matches!(driver.activate_vif(&owner, &found).await.unwrap(), Activation::NotYet { .. }));
    assert!(world.subports(&machine).await.contains(&(found.id.to_string(), 1)));
    world.wire(&found.id, &machine.host).await;
    activated(&driver, &owner, &found).await.unwrap();
    for (owner, vif) in [(&owner, &found), (&world.owner("next"), &next)] {
        driver.release_vif(owner, vif).await.unwrap();
    }
    assert!(world.ports(&subnet).await.is_empty());
    assert_eq!(driver.vifs(None).await.unwrap(), []);
}

pub(crate) async fn a_subport_that_was_left_half_made_is_no_vif_when_its_vlan_is_taken(world: &World) {
    let (machine, subnet) = place(world).await;
    half_made(world, &machine, &subnet, 1).await;
    let (owner, driver) = (world.owner("web"), world.vlan("east", &machine));
    let stranger = world.vlan("west", &machine);
    let faster = stranger.request_vif(&world.nested_request("faster", &machine, &subnet)).await.unwrap();
    assert_eq!(vlan(&faster), 1);
    let found = driver.vifs(Some(&owner)).await.unwrap().remove(0).resource;
    let error = driver.activate_vif(&owner, &found).await.unwrap_err();
    assert_eq!(error.reason(), Reason::NotFound);
    assert!(
        error.to_string().contains("VLAN 1 ") && error.to_string().contains(found.id.as_str()),
        "{error}"
    );
    let other = driver.request_vif(&world.nested_request("web", &machine, &subnet)).await.unwrap();
    driver.release_vif(&owner, &found).await.unwrap();
    assert_eq!(
        world.subports(&machine).await,
        [(faster.id.to_string(), 1), (other.id.to_string(), vlan(&other))]
    );
}

pub(crate) async fn a_subport_is_given_back_whatever_became_of_its_trunk(world: &World) {
    let (machine, subnet) = place(world).await;
    let driver = world.vlan("east", &machine);
    let mut vifs = Vec::new();
    for pod in ["a", "b"] {
        vifs.push(driver.request_vif(&world.nested_request(pod, &machine, &subnet)).await.unwrap());
    }
    let taken_off = json!({ "sub_ports": [{ "port_id": vifs[0].id }] });
    let path = format!("trunks/{}/remove_subports", machine.trunk);
    assert_eq!(world.ask(Method::PUT, &path, &taken_off).await.0, 200);
    driver.release_vif(&world.owner("a"), &vifs[0]).await.unwrap();
    let taken_off = json!({ "sub_ports": [{ "port_id": vifs[1].id }] });
    assert_eq!(world.ask(Method::PUT, &path, &taken_off).await.0, 200);
    let machine = replaced(world, machine, false).await;
    driver.release_vif(&world.owner("b"), &vifs[1]).await.unwrap();
    assert!(world.ports(&subnet).await.is_empty());
    let machine = replaced(world, machine, true).await;
    let vif = driver.request_vif(&world.nested_request("c", &machine, &subnet)).await.unwrap();
    assert_eq!(world.subports(&machine).await, [(vif.id.to_string(), vlan(&vif))]);
    driver.release_vif(&world.owner("c"), &vif).await.unwrap();
    // It is told of the next one by nobody.
    let machine = replaced(world, machine, true).await;
    let request = world.nested_request("d", &machine, &subnet);
    let error = driver.request_vif(&request).await.unwrap_err();
    assert!(error.transient() && !error.ambiguous(), "{error}");
    let vif = driver.request_vif(&request).await.unwrap();
    assert_eq!(world.subports(&machine).await, [(vif.id.to_string(), vlan(&vif))]);
    assert_eq!(world.ports(&subnet).await.len(), 1);
}

/// The trunk of the machine is removed, if it has one, and it may get another one.
async fn replaced(world: &World, machine: Machine, another: bool) -> Machine {
    // A trunk whose parent is bound stays.
    let free = json!({ "port": { "binding:host_id": "" } });
    world.ask(Method::PUT, &format!("ports/{}", machine.port), &free).await;
    if !machine.trunk.is_empty() {
        world.remove(&format!("trunks/{}", machine.trunk)).await;
    }
    let trunk = if another {
        let wish = json!({ "port_id": machine.port, "project_id": world.project });
        text(&world.create("trunks", "trunk", wish).await["id"]).to_owned()
    } else {
        String::new()
    };
    Machine { trunk, ..machine }
}

pub(crate) async fn a_node_without_a_port_or_a_trunk_is_reported_by_name(world: &World) {
    let (machine, subnet) = place(world).await;
    let driver = world.vlan("east", &machine);
    let refused = async |request: VifRequest| driver.request_vif(&request).await.unwrap_err();
    let request = world.nested_request("web", &machine, &subnet);
    let error = refused(VifRequest { host_ip: Some([10, 2, 0, 200].into()), ..request.clone() }).await;
    assert_eq!(error.reason(), Reason::NotFound);
    assert!(
        error.to_string().contains("10.2.0.200") && error.to_string().contains("worker_nodes_subnets"),
        "{error}"
    );
    let error = refused(VifRequest { host_ip: None, ..request.clone() }).await;
    assert!(error.to_string().contains("the node machine yet"), "{error}");
    assert_eq!(error.reason(), Reason::Awaited, "the kubelet has not told of the pod yet: nothing is wrong");
    let wish = json!({ "network_id": machine.subnet.network.id, "fixed_ips": [{ "subnet_id": machine.subnet.id }], "project_id": world.project });
    let port: Value = world.create("ports", "port", wish).await;
    let address = text(&port["fixed_ips"][0]["ip_address"]).parse().unwrap();
    let error = refused(VifRequest { host_ip: Some(address), ..request }).await;
    assert_eq!(error.reason(), Reason::Unsupported);
    assert!(error.to_string().contains(text(&port["id"])), "{error}");
    assert!(world.ports(&subnet).await.is_empty());
}
