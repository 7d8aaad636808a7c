//! The cost of a pod whose port exists before it arrives.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::DeleteParams;
use serde_json::json;

use crate::nested::Nodes;
use crate::world::World;

/// A pool that makes nothing while the test looks, and no sweep that lists.
const POOL: &str = r#"
[relay]
sweep_interval = "1h"
[vif_pool]
ports_pool_min = 2
ports_pool_batch = 8
ports_pool_max = 8
"#;

/// The time without any call to Neutron after which the pool is idle.
const REST: Duration = Duration::from_secs(3);

/// The time limit for destroying the stock of a deleted node: two sweeps, a minute apart.
const LOOKS: Duration = Duration::from_secs(300);

fn pool(driver: &str) -> String {
    format!("[kubernetes]\nvif_pool_driver = {driver:?}\n{POOL}")
}

/// Waits until the pool has made its ports, has the answer to all that it asked, and asks nothing more.
async fn at_rest(world: &World) {
    world.until("the pool is warm", async || world.ports().await.len() >= 8).await;
    world
        .until("nothing more is asked", async || {
            let seen = world.gate.seen();
            tokio::time::sleep(REST).await; // between two looks
            seen.iter().all(|call| call.answered.is_some()) && seen.len() == world.gate.seen().len()
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_ready_subport_costs_a_pod_no_call_and_one_write_on_a_real_openstack() {
    let nodes = Nodes::start("nested-vlan", 1).await;
    let world = &nodes.world;
    let controller = world.controller(&nodes.options_with(&pool("nested"))).await;
    nodes.pod(0, "first").await;
    world.until_active(&["first"]).await;
    at_rest(world).await;
    let ready: BTreeSet<_> = world.ports().await.into_iter().map(|port| port.id).collect();
    let asked = world.gate.seen().len();
    for name in ["second", "third"] {
        nodes.pod(0, name).await;
        world.until_active(&[name]).await;
        assert!(ready.contains(&world.vifs(name).await[0].id));
        assert_eq!(world.patches(name), 1, "{name}");
    }
    let calls: Vec<_> = world.gate.seen().into_iter().skip(asked).collect();
    assert!(calls.is_empty(), "{calls:?}");
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn after_a_reading_of_what_exists_a_pod_without_groups_of_its_own_costs_no_call_on_a_real_openstack() {
    let nodes = Nodes::start("nested-vlan", 1).await;
    let world = &nodes.world;
    let soon = pool("nested").replace("[vif_pool]", "[vif_pool]\nports_pool_update_frequency = \"1s\"");
    let options = nodes.options_with(&format!("{soon}[neutron_defaults]\npod_security_groups = []\n"));
    let controller = world.controller(&options).await;
    nodes.pod(0, "first").await;
    world.until_active(&["first"]).await;
    at_rest(world).await;
    controller.stop().await.unwrap();
    // What it has now is what Neutron's list says of it.
    let controller = world.controller(&options).await;
    at_rest(world).await;
    let asked = world.gate.seen().len();
    nodes.pod(0, "second").await;
    world.until_active(&["second"]).await;
    let calls: Vec<_> = world.gate.seen().into_iter().skip(asked).collect();
    assert!(calls.is_empty(), "{calls:?}");
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_ready_port_costs_a_pod_no_call_but_the_looks_that_see_it_active_on_a_real_openstack() {
    let world = World::start().await;
    let node = world.tenant.node("slow", None).await;
    let controller = world.controller(&pool("neutron")).await;
    world.pod_on(&node, "first", json!({})).await;
    world.until_annotated("first").await;
    world.stack.agents().up(&world.vifs("first").await[0].id).await;
    world.until_active(&["first"]).await;
    at_rest(&world).await;
    let asked = world.gate.seen().len();
    world.pod_on(&node, "second", json!({})).await;
    let vif = world.until_annotated("second").await;
    world.stack.agents().up(&vif.id).await;
    world.until_active(&["second"]).await;
    for call in world.gate.seen().into_iter().skip(asked) {
        let look =
            call.method == http::Method::GET && call.path_and_query.starts_with("/network/v2.0/ports?");
        assert!(look && call.path_and_query.contains(&vif.id), "{call:?}");
    }
    assert_eq!(world.patches("second"), 2);
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn what_is_kept_for_a_node_that_is_gone_goes_after_it_on_a_real_openstack() {
    let world = World::start().await;
    let other = world.tenant.node("n2", Some(crate::world::BINDING_DELAY)).await;
    let nodes = world.nodes_are([&world.node, &other]).await;
    let controller = world.controller(&pool("neutron")).await;
    world.pod("goes").await;
    world.pod_on(&other, "stays", json!({})).await;
    world.until_active(&["goes", "stays"]).await;
    world.until("both pools are warm", async || world.ports().await.len() >= 16).await;
    world.end_pod("goes").await;
    world.until_gone("goes").await;
    nodes.delete(&world.node, &DeleteParams::default()).await.unwrap();
    world
        .until_within(LOOKS, "no port is left on the node that is gone", async || {
            world.ports().await.iter().all(|port| port.host == other)
        })
        .await;
    assert!(world.ports().await.len() >= 8, "the other one keeps its own");
    controller.stop().await.unwrap();
}
