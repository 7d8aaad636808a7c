//! Nested pods, whose interfaces are on the ports of their nodes.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use staffetta_real_openstack::Trunk;

use crate::world::{World, merged};

/// Nodes in a network of their own, with pods on their trunks.
pub(crate) struct Nodes {
    pub(crate) world: World,
    options: String,
    trunks: Vec<(String, Trunk)>,
}

impl Nodes {
    pub(crate) async fn start(driver: &str, count: usize) -> Self {
        let world = World::start().await;
        let machines = world.tenant.subnet("10.1.0.0/24").await;
        let mut trunks = Vec::new();
        for number in 0..count {
            let node = world.tenant.node(&format!("vm-{number}"), Some(crate::world::BINDING_DELAY)).await;
            let trunk = world.tenant.trunk(&node, &machines).await;
            trunks.push((node, trunk));
        }
        let options = format!(
            "[kubernetes]\npod_vif_driver = \"{driver}\"\n[pod_vif_nested]\nworker_nodes_subnets = [\"{}\"]\n",
            machines.id
        );
        Self { world, options, trunks }
    }

    /// The options, with others on top.
    pub(crate) fn options_with(&self, more: &str) -> String {
        merged(&self.options, more)
    }

    /// Creates a pod on a node, whose kubelet has told the node's address.
    pub(crate) async fn pod(&self, node: usize, name: &str) -> Pod {
        let (node, trunk) = &self.trunks[node];
        let pod = self.world.pod_on(node, name, json!({})).await;
        let status = json!({ "status": { "hostIP": trunk.address, "hostIPs": [{ "ip": trunk.address }] } });
        let patch = Patch::Merge(&status);
        self.world.pods().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        pod
    }

    /// A node by its name, with its trunk.
    pub(crate) fn node(&self, node: usize) -> (String, Trunk) {
        self.trunks[node].clone()
    }

    pub(crate) async fn subports(&self, node: usize) -> Vec<(u64, String)> {
        self.world.tenant.subports(&self.trunks[node].1).await
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn pods_are_vlans_of_their_nodes_trunks_on_a_real_openstack() {
    let nodes = Nodes::start("nested-vlan", 2).await;
    let world = &nodes.world;
    let controller = world.controller(&nodes.options).await;
    for (node, name) in [(0, "a"), (0, "b"), (0, "c"), (1, "d")] {
        nodes.pod(node, name).await;
    }
    world.until_active(&["a", "b", "c", "d"]).await;
    let vlan = async |name: &str| {
        let vif = world.vifs(name).await.remove(0);
        assert_eq!(vif.class, "VIFVlanNested");
        (vif.fields["vlan_id"].as_u64().unwrap(), vif.id)
    };
    let first: BTreeSet<_> = [vlan("a").await, vlan("b").await, vlan("c").await].into();
    assert_eq!(first, nodes.subports(0).await.into_iter().collect());
    assert_eq!(first.iter().map(|(vlan, _)| vlan).collect::<BTreeSet<_>>().len(), 3);
    assert_eq!(nodes.subports(1).await, [vlan("d").await]);

    world.end_pod("b").await;
    world.until_ports(3).await;
    assert_eq!(nodes.subports(0).await.len(), 2);
    nodes.pod(0, "e").await;
    world.until_active(&["e"]).await;
    for name in ["a", "c", "d", "e"] {
        world.end_pod(name).await;
    }
    world.until_ports(0).await;
    assert!(nodes.subports(0).await.is_empty() && nodes.subports(1).await.is_empty());
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_vlan_that_somebody_else_takes_costs_no_pod_its_network_on_a_real_openstack() {
    let nodes = Nodes::start("nested-vlan", 1).await;
    let world = &nodes.world;
    let controller = world.controller(&nodes.options).await;
    nodes.pod(0, "first").await;
    world.until_active(&["first"]).await;
    // Behind the controller's back, all VLANs near those that it uses.
    let taken: Vec<u64> = nodes.subports(0).await.into_iter().map(|(vlan, _)| vlan).collect();
    let trunk = &nodes.trunks[0].1;
    for vlan in (1..40).filter(|vlan| !taken.contains(vlan)) {
        world.tenant.add_subport(trunk, &world.subnet, vlan).await;
    }
    let names: Vec<_> = (0..4).map(|number| format!("late-{number}")).collect();
    for name in &names {
        nodes.pod(0, name).await;
    }
    world.until_active(&names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let vlans: Vec<_> = nodes.subports(0).await.into_iter().map(|(vlan, _)| vlan).collect();
    assert!(vlans.len() >= 39 + names.len(), "{vlans:?}");
    assert_eq!(vlans.iter().collect::<BTreeSet<_>>().len(), vlans.len());
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn pods_are_addresses_of_their_nodes_ports_on_a_real_openstack() {
    let nodes = Nodes::start("nested-macvlan", 1).await;
    let world = &nodes.world;
    let controller = world.controller(&nodes.options).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        nodes.pod(0, name).await;
    }
    world.until_active(&names).await;
    let node = &nodes.trunks[0].1.port;
    let pairs = async || -> BTreeSet<_> {
        let port = world.tenant.port(node).await.unwrap();
        port.allowed_address_pairs.into_iter().map(|pair| (pair.ip_address, pair.mac_address)).collect()
    };
    let mut shown = BTreeSet::new();
    for name in names {
        let vif = world.vifs(name).await.remove(0);
        assert_eq!(vif.class, "VIFMacvlanNested");
        shown.insert((vif.address.clone(), vif.fields["address"].as_str().unwrap().to_owned()));
    }
    assert_eq!(pairs().await, shown);
    for name in names {
        world.end_pod(name).await;
    }
    world.until_ports(0).await;
    world.until("nobody's address is left on the node's port", async || pairs().await.is_empty()).await;
    controller.stop().await.unwrap();
}
