//! Nodes of two kinds in one cluster, each with the pool of its own VIF driver.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta::controller::Controller;
use staffetta_real_openstack::Service;

use crate::nested::Nodes;
use crate::world::{Vif, World};

/// The figures hold for each of the two pools: a first pod has four ports made, and three of them are left.
const OPTIONS: &str = r#"
[kubernetes]
vif_pool_driver = "multi_pool"
pod_vif_driver = "neutron-vif"
[vif_pool]
ports_pool_min = 2
ports_pool_batch = 4
ports_pool_max = 6
ports_pool_update_frequency = "1s"
[vif_pool.vif_pool_mapping]
neutron-vif = "neutron"
nested-vlan = "nested"
"#;
const POOLS: [&str; 2] = ["neutron", "nested"];
const BATCH: usize = 4;
const MAX: usize = 6;

/// The final number of pods on each kind of node.
const PODS: usize = 9;

/// A machine with a trunk, whose label names the driver of its pods, and a node without a label.
struct Kinds {
    nodes: Nodes,
    options: String,
}

/// The ids of ports: of those on the node without a label, and of the subports of the machine.
#[derive(Debug)]
struct Ports {
    bound: BTreeSet<String>,
    nested: BTreeSet<String>,
}

impl Kinds {
    async fn start() -> Self {
        let nodes = Nodes::start("nested-vlan", 1).await;
        let (machine, trunk) = nodes.node(0);
        let known: Api<Node> = Api::all(nodes.world.client.clone());
        for (name, labels) in
            [(&nodes.world.node, Value::Null), (&machine, json!({ "pod_vif": "nested-vlan" }))]
        {
            let node = json!({ "metadata": { "name": name, "labels": labels } });
            known.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        }
        let addresses = json!([{ "type": "InternalIP", "address": trunk.address }]);
        let status = Patch::Merge(json!({ "status": { "addresses": addresses } }));
        known.patch_status(&machine, &PatchParams::default(), &status).await.unwrap();
        let options = nodes.options_with(OPTIONS);
        Self { nodes, options }
    }

    fn world(&self) -> &World {
        &self.nodes.world
    }

    /// Creates a pod of this number on each node.
    async fn pods(&self, number: usize) {
        self.world().pod(&format!("bound-{number}")).await;
        self.nodes.pod(0, &format!("nested-{number}")).await;
    }

    /// The active VIFs of the pods of this number, that of the node without a label first. Each is of its node's driver.
    async fn vifs(&self, number: usize) -> [Vif; 2] {
        let vif = async |kind: &str, class: &str| {
            let name = format!("{kind}-{number}");
            self.world().until_active(&[&name]).await;
            let vif = self.world().vifs(&name).await.remove(0);
            assert_eq!(vif.class, class, "{name}");
            vif
        };
        [vif("bound", "VIFOpenVSwitch").await, vif("nested", "VIFVlanNested").await]
    }

    async fn ports(&self) -> Ports {
        let bound = self.world().ports().await.into_iter().filter(|port| port.host == self.world().node);
        let nested = self.nodes.subports(0).await.into_iter().map(|(_, port)| port);
        Ports { bound: bound.map(|port| port.id).collect(), nested: nested.collect() }
    }

    /// Waits until both pools have so many ports, pods' own with them, and there are no others.
    async fn until_ports(&self, count: impl Fn(usize) -> bool) -> Ports {
        let mut ports = self.ports().await;
        self.world()
            .until("each pool has the ports that it may have", async || {
                ports = self.ports().await;
                let of_both = ports.bound.len() + ports.nested.len();
                count(ports.bound.len())
                    && count(ports.nested.len())
                    && self.world().ports().await.len() == of_both
            })
            .await;
        ports
    }

    /// The number of ports that Neutron created for the controller.
    async fn made(&self) -> usize {
        let calls = self.world().stack.calls(Service::Neutron).await.of_controller(&self.world().tenant.id);
        calls.made(|call| call.method == "POST" && call.path == "/v2.0/ports" && call.status == "201")
    }

    /// Waits until so many of what both pools keep are free: what is found at a start cools down first.
    async fn until_free(&self, controller: &Controller, count: usize) {
        self.world()
            .until(&format!("both pools have {count} free"), async || {
                let mut all = true;
                for pool in POOLS {
                    let free = format!("staffetta_vif_pool_vifs{{pool=\"{pool}\",state=\"free\"}}");
                    all &= self.world().figure(controller, &free).await == count;
                }
                all
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn pods_of_each_kind_of_node_have_a_pool_of_their_own_before_and_after_a_restart_on_a_real_openstack() {
    let kinds = Kinds::start().await;
    let world = kinds.world();
    let controller = world.controller(&kinds.options).await;
    kinds.pods(0).await;
    let first = kinds.vifs(0).await;
    let kept = kinds.until_ports(|count| count == BATCH).await;
    assert!(kept.bound.contains(&first[0].id) && kept.nested.contains(&first[1].id));
    controller.stop().await.unwrap();

    let made = kinds.made().await;
    assert_eq!(made, 2 * BATCH);
    let controller = world.controller(&kinds.options).await;
    kinds.until_free(&controller, 3).await;
    kinds.pods(1).await;
    let second = kinds.vifs(1).await;
    assert!(kept.bound.contains(&second[0].id), "{second:?} of {kept:?}");
    assert!(kept.nested.contains(&second[1].id), "{second:?} of {kept:?}");
    kinds.until_free(&controller, 2).await;
    assert_eq!(kinds.made().await, made, "what was kept is enough");
    assert_eq!(world.named().await.len(), 4, "nobody shares a port");

    for number in 2..PODS {
        kinds.pods(number).await;
    }
    for number in 2..PODS {
        let [bound, nested] = kinds.vifs(number).await;
        let ports = kinds.ports().await;
        assert!(ports.bound.contains(&bound.id) && ports.nested.contains(&nested.id), "{number}: {ports:?}");
    }
    assert_eq!(world.named().await.len(), 2 * PODS, "nobody shares a port");
    for number in 0..PODS {
        for kind in ["bound", "nested"] {
            world.end_pod(&format!("{kind}-{number}")).await;
        }
    }
    kinds.until_ports(|count| (1..=MAX).contains(&count)).await;
    controller.stop().await.unwrap();
    kinds.until_ports(|count| (1..=MAX).contains(&count)).await;
}
