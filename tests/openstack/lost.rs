//! Running pods whose annotation somebody removes or spoils, while the controller runs and while it does not.

use std::collections::BTreeSet;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::nested::Nodes;
use crate::networks;
use crate::world::{Vif, World};

/// The text that somebody writes into the annotation of a running pod; empty if it is removed.
const LOSSES: [&str; 2] = ["", "{}"];

const POOL: &str =
    "[vif_pool]\nports_pool_min = 2\nports_pool_batch = 3\nports_pool_update_frequency = \"1s\"\n";

/// The kubelet reports that the pod runs with the address of its default VIF.
async fn runs(world: &World, name: &str) -> Vec<Vif> {
    let vifs = world.vifs(name).await;
    let address = &vifs.iter().find(|vif| vif.interface == "eth0").unwrap().address;
    let status = json!({ "status": { "phase": "Running", "podIP": address, "podIPs": [{ "ip": address }] } });
    world.pods().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    vifs
}

/// Somebody replaces the annotation of the pod, or removes it.
async fn tamper(world: &World, name: &str, text: &str) {
    let text = Some(text).filter(|text| !text.is_empty());
    let patch = json!({ "metadata": { "annotations": { "openstack.org/kuryr-vif": text } } });
    world.pods().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

fn ids(vifs: &[Vif]) -> BTreeSet<String> {
    vifs.iter().map(|vif| vif.id.clone()).collect()
}

/// Loses the annotation of the running pod `web` in each way, and asserts that it comes again, and that no pod of `others` gets what it had.
async fn loses(world: &World, options: &str, others: impl AsyncFn(&str)) {
    let mut controller = world.controller(options).await;
    world.until_active(&["web"]).await;
    let vifs = runs(world, "web").await;
    let kept = async || {
        world
            .until("the annotation is written again", async || ids(&world.vifs("web").await) == ids(&vifs))
            .await;
    };
    for (round, text) in LOSSES.iter().enumerate() {
        tamper(world, "web", text).await;
        kept().await;
        controller.stop().await.unwrap();
        tamper(world, "web", text).await;
        controller = world.controller(options).await;
        let names = [0, 1, 2].map(|number| format!("other-{round}-{number}"));
        for name in &names {
            others(name).await;
        }
        kept().await;
        world.until_active(&names.each_ref().map(String::as_str)).await;
        for name in &names {
            assert!(ids(&world.vifs(name).await).is_disjoint(&ids(&vifs)), "{name} has what `web` uses");
        }
        let exist: BTreeSet<_> = world
            .tenant
            .things("ports")
            .await
            .iter()
            .map(|port| port["id"].as_str().unwrap().to_owned())
            .collect();
        assert!(ids(&vifs).is_subset(&exist), "a port of a running pod was deleted");
    }
    world.until_reported("web", "AnnotationRestored").await;
    controller.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_pod_that_runs_keeps_its_port_when_its_annotation_is_removed_or_spoilt_on_a_real_openstack() {
    let world = World::start().await;
    world.pod("web").await;
    let options = format!("[kubernetes]\nvif_pool_driver = \"neutron\"\n{POOL}");
    loses(&world, &options, async |name| drop(world.pod(name).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_nested_pod_that_runs_keeps_its_subport_when_its_annotation_is_removed_or_spoilt_on_a_real_openstack()
 {
    let nodes = Nodes::start("nested-vlan", 1).await;
    nodes.pod(0, "web").await;
    let options = nodes.options_with(&format!("[kubernetes]\nvif_pool_driver = \"nested\"\n{POOL}"));
    loses(&nodes.world, &options, async |name| drop(nodes.pod(0, name).await)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs a real OpenStack: devstack/real/test real_openstack"]
async fn a_pod_with_two_networks_that_runs_keeps_both_ports_when_its_annotation_is_removed_or_spoilt_on_a_real_openstack()
 {
    for pool in ["noop", "neutron"] {
        let world = networks::world().await;
        let blue = world.tenant.subnet("10.2.0.0/24").await;
        networks::attachment(&world, "blue", &blue).await;
        let annotations = json!({ networks::NETWORKS: "blue" });
        world.pod_on(&world.node, "web", annotations.clone()).await;
        let options = format!(
            "[kubernetes]\nvif_pool_driver = \"{pool}\"\nmulti_vif_driver = \"npwg_multiple_interfaces\"\n{POOL}"
        );
        loses(&world, &options, async |name| {
            drop(world.pod_on(&world.node, name, annotations.clone()).await);
        })
        .await;
    }
}
