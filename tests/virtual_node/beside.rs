//! Virtual nodes beside other handlers, with the metrics of both.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::PostParams;
use serde_json::json;

use crate::custom_resource;
use crate::world::World;

const VIF: &str = "openstack.org/kuryr-vif";

/// Further options of `[kubernetes]`: the drivers of pods are simulated.
const SIMULATED: &str = "\npod_vif_driver = \"memory\"\npod_project_driver = \"memory\"\npod_subnets_driver = \"memory\"\n\
     pod_security_groups_driver = \"memory\"";

async fn has_vif(world: &World, pod: &str) -> bool {
    world.pods().get(pod).await.unwrap().annotations().contains_key(VIF)
}

#[tokio::test]
async fn a_pod_on_a_device_gets_no_port_and_one_on_a_real_node_does() {
    let mut world =
        custom_resource::world("devices = [{ name = \"edge-1\", device = { address = \"one\" } }]").await;
    world.options =
        world.options.replace("[\"app_hosting\"]", &format!("[\"vif\", \"app_hosting\"]{SIMULATED}"));
    let real: Node = serde_json::from_value(json!({ "metadata": { "name": "n1" } })).unwrap();
    world.nodes().create(&PostParams::default(), &real).await.unwrap();
    let first = world.controller().await;
    world.node_ready("edge-1", "True").await;
    world.pod("edge", json!({ "nodeName": "edge-1" })).await;
    world.pod("real", json!({ "nodeName": "n1" })).await;
    world.until("the pod on a real node has a port", async || has_vif(&world, "real").await).await;
    world.pod_in("edge", "Running").await;
    first.stop().await.unwrap();
    // A controller that finds both says the same, though it sees them at once.
    let second = world.controller().await;
    world.pod("other", json!({ "nodeName": "n1" })).await;
    world.until("the next pod has a port", async || has_vif(&world, "other").await).await;
    let edge = world.pods().get("edge").await.unwrap();
    assert!(!edge.annotations().contains_key(VIF) && edge.finalizers().is_empty(), "{:?}", edge.metadata);
    world.delete("edge").await;
    world.until_pod_is_gone("edge").await;
    second.stop().await.unwrap();
}

#[tokio::test]
async fn how_the_machines_and_their_pods_are_is_reported_in_figures() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let world = custom_resource::world("devices = [{ name = \"edge-1\", device = { address = \"one\" } }, { name = \"edge-2\", device = { driver = \"XR\", address = \"two\" } }]").await;
    let controller = world.controller().await;
    world.node_ready("edge-1", "True").await;
    world.node_ready("edge-2", "False").await;
    world.pod("web", json!({ "nodeName": "edge-1" })).await;
    world.pod_in("web", "Running").await;
    let figure = async |series: &str| {
        let page = reqwest::get(format!("http://{}/metrics", controller.admin())).await.unwrap();
        let page = page.text().await.unwrap();
        let line = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series} in {page}")).parse::<f64>().unwrap()
    };
    for (series, expected) in [
        ("staffetta_virtual_nodes{handler=\"app_hosting\",state=\"ready\"}", 1.0),
        ("staffetta_virtual_nodes{handler=\"app_hosting\",state=\"unreachable\"}", 1.0),
        ("staffetta_virtual_nodes{handler=\"app_hosting\",state=\"untried\"}", 0.0),
        ("staffetta_virtual_node_reads_total{handler=\"app_hosting\",outcome=\"failure\"}", 0.0),
        (
            "staffetta_kubelet_requests_total{handler=\"app_hosting\",request=\"logs\",outcome=\"unsupported\"}",
            0.0,
        ),
    ] {
        assert!((figure(series).await - expected).abs() < 0.5, "{series}");
    }
    world
        .until("the pod is counted", async || {
            figure("staffetta_virtual_node_pods{handler=\"app_hosting\",phase=\"running\"}").await > 0.5
        })
        .await;
    assert!(
        figure("staffetta_virtual_node_reads_total{handler=\"app_hosting\",outcome=\"success\"}").await > 0.5
    );
    assert!(
        figure("staffetta_virtual_node_reads_total{handler=\"app_hosting\",outcome=\"refused\"}").await > 0.5
    );
    controller.stop().await.unwrap();
}
