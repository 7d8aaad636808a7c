//! A real kubelet, container runtime and Open vSwitch with ports of a real Neutron. The agent's stand-in reports a port as ACTIVE when Open
//! vSwitch has its interface, so a pod starts only because the daemon has plugged its port before.

use std::collections::BTreeSet;

use serde_json::json;
use staffetta_real_openstack::Port;

use crate::real_node::{NODE, NodePort, RealNode};
use crate::world::World;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack and a real node: devstack/real/test real_openstack"]
async fn pods_of_a_real_kubelet_have_the_ports_of_neutron_and_give_them_back_on_a_real_openstack() {
    let world = World::on_a_real_kubelet().await;
    let controller = world.controller("").await;
    world.stack.agents().node(NODE, None).await;
    let fields = json!({ "device_owner": "compute:node", "binding:host_id": NODE });
    let own = world.tenant.create_port(&world.subnet, fields).await;
    let address = format!("{}/20", own.fixed_ips[0].ip_address);
    let port = NodePort { id: &own.id, mac: &own.mac_address, address: &address };
    let node = RealNode::start(world.real_server(), &port).await;
    world.stack.agents().real_node(NODE, &node.folder.join("ovs/db.sock")).await;

    node.deploy(3).await;
    node.assert_all_reach_all().await;
    let shown: BTreeSet<_> = node.pods().await.into_iter().map(|(_, address)| address).collect();
    let ports = world.ports().await;
    let active = |port: &&Port| port.status == "ACTIVE";
    assert_eq!(ports.iter().filter(active).count(), 4, "{ports:?}");
    let addresses = ports.iter().filter(|port| port.id != own.id).flat_map(|port| &port.fixed_ips);
    assert_eq!(addresses.map(|ip| ip.ip_address.to_string()).collect::<BTreeSet<_>>(), shown);

    node.scale_down().await;
    world.until_ports(1).await;
    drop(node);
    controller.stop().await.unwrap();
}
