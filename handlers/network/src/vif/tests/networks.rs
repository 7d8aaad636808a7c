//! Pods with additional networks.

use staffetta_driver::{DriverError, NodeInfo, Reason};
use staffetta_handler::Index;
use staffetta_memory::{Fault, VifMethod};
use staffetta_pool::MultiVifPool;

use super::*;
use crate::vif::networks::{NETWORKS, Networks};

/// The time before an exhausted quota is tried again.
const QUOTA_BACKOFF: Duration = Duration::from_secs(1);
const SECOND: &str = "10.20.0.0/16";

/// Creates a world with the network `default/blue` and a pod with this annotation.
pub(super) fn asking(text: &str) -> World {
    let second: ipnet::IpNet = SECOND.parse().unwrap();
    let options =
        MemoryOptions { namespace_subnets: [("x".into(), vec![second])].into(), ..MemoryOptions::default() };
    let mut world = World::new(options);
    let networks = Arc::new(Networks::default());
    networks.apply(&Event::Added(Arc::new(network("blue", &format!("subnet-{SECOND}"), None))));
    networks.apply(&Event::Added(Arc::new(network("other", "subnet-x", Some("nested-vlan")))));
    let (shared_namespaces, driver) = (None, "memory".into());
    world.handler.drivers.additional = Some(AdditionalNetworks { networks, shared_namespaces, driver });
    world.api.annotate(NETWORKS, text);
    world
}

fn network(name: &str, subnet: &str, driver: Option<&str>) -> NetworkAttachmentDefinition {
    let config = json!({ "subnetId": subnet, "driverType": driver }).to_string();
    let network = json!({ "metadata": { "namespace": "default", "name": name, "uid": name },
        "spec": { "config": config } });
    serde_json::from_value(network).unwrap()
}

/// Returns the published interfaces, each with the first part of its address.
fn interfaces(world: &World) -> Vec<String> {
    let state = world.shown().unwrap();
    let net = |vif: &Vif| vif.ips().map(|ip| ip.to_string()[..5].to_owned()).collect::<String>();
    let further = state.additional_vifs.iter().map(|(name, vif)| format!("{name} {}", net(vif)));
    [format!("eth0 {}", net(&state.default_vif))].into_iter().chain(further).collect()
}

#[tokio::test(start_paused = true)]
async fn one_write_publishes_all_interfaces_and_one_deletion_releases_them() {
    let world = asking("blue, default/blue@net7");
    world.event().await.unwrap();
    assert_eq!(interfaces(&world), ["eth0 10.10", "eth1 10.20", "net7 10.20"]);
    assert_eq!((world.ports().len(), world.patches().len()), (3, 1));
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    assert!(world.shown().unwrap().vifs().all(|vif| vif.active));
    world.terminate(0).await.unwrap();
    world.assert_released();
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_one_vif_releases_the_others() {
    let world = asking("blue");
    let fault = DriverError::new(Reason::Quota, "make a port");
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::Delay(Duration::ZERO));
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::Fail(fault));
    assert!(world.event().await.unwrap_err().transient());
    assert_eq!((world.ports(), world.patches(), world.lists()), (vec![], vec![], 0));
    tokio::time::advance(QUOTA_BACKOFF).await;
    world.event().await.unwrap();
    assert_eq!(world.ports().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_vifs_of_an_interrupted_request_are_found_and_replaced() {
    let world = asking("blue");
    let fault = DriverError::new(Reason::Quota, "make a port");
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::Delay(Duration::ZERO));
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::Fail(fault.clone()));
    world.vifs.faults().inject(VifMethod::Release, 1, Fault::Fail(fault));
    world.event().await.unwrap_err();
    assert_eq!(world.ports().len(), 1);
    tokio::time::advance(QUOTA_BACKOFF).await;
    world.event().await.unwrap();
    assert_eq!((interfaces(&world).len(), world.ports().len()), (2, 2), "and the leaked one is released");
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_repeated_with_the_created_vifs() {
    let world = asking("blue");
    world.api.answer(Answer::Broken);
    world.event().await.unwrap_err();
    world.event().await.unwrap();
    assert_eq!((interfaces(&world).len(), world.requests(), world.ports().len()), (2, 2, 2));
}

#[tokio::test(start_paused = true)]
async fn with_isolation_a_pod_uses_the_networks_of_its_own_namespace_and_of_the_shared_ones() {
    let mut world = asking("blue, theirs/red");
    let additional = world.handler.drivers.additional.as_mut().unwrap();
    let mut red = network("red", &format!("subnet-{SECOND}"), None);
    red.metadata.namespace = Some("theirs".into());
    additional.networks.apply(&Event::Added(Arc::new(red)));
    additional.shared_namespaces = Some(Vec::new());
    let error = world.event().await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("NetworkNotAllowed", false));
    assert!(staffetta_handler::causes(&error).contains("theirs/red"), "{error}");
    assert_eq!((world.ports(), world.patches()), (vec![], vec![]));
    let additional = world.handler.drivers.additional.as_mut().unwrap();
    additional.shared_namespaces = Some(vec!["theirs".into()]);
    world.event().await.unwrap();
    assert_eq!(interfaces(&world), ["eth0 10.10", "eth1 10.20", "eth2 10.20"]);
}

#[tokio::test(start_paused = true)]
async fn a_missing_network_is_awaited_before_anything_is_created() {
    let world = asking("green");
    let error = world.event().await.unwrap_err();
    assert!(error.transient() && error.retry_after() == Some(Duration::from_secs(5)));
    assert_eq!(error.reason(), "NetworkNotFound");
    assert!(staffetta_handler::causes(&error).contains("default/green"), "{error}");
    world.assert_unasked();
    let additional = world.handler.drivers.additional.as_ref().unwrap();
    additional.networks.apply(&Event::Added(Arc::new(network(
        "green",
        &format!("subnet-{SECOND}"),
        Some("memory"),
    ))));
    world.event().await.unwrap();
    assert_eq!(interfaces(&world), ["eth0 10.10", "eth1 10.20"]);
}

#[tokio::test(start_paused = true)]
async fn unavailable_networks_are_reported_on_the_pod_and_nothing_is_created() {
    for (text, words, transient) in
        [("[", "neither a JSON list", false), ("other", "requires the VIF driver `nested-vlan`", true)]
    {
        let world = asking(text);
        let error = world.event().await.unwrap_err();
        assert!(staffetta_handler::causes(&error).contains(words), "{error}");
        assert_eq!(error.transient(), transient);
        world.assert_unasked();
    }
}

#[tokio::test(start_paused = true)]
async fn the_vif_driver_of_a_network_must_be_that_of_the_node() {
    let mut world = asking("vlan");
    let additional = world.handler.drivers.additional.clone().unwrap();
    let vlan = network("vlan", &format!("subnet-{SECOND}"), Some("nested-vlan"));
    additional.networks.apply(&Event::Added(Arc::new(vlan)));
    let pools =
        ["memory", "nested-vlan"].map(|name| (name.to_owned(), Arc::clone(&world.handler.drivers.pool)));
    let pool = Arc::new(MultiVifPool::new(pools.into(), "memory", |_| None).unwrap());
    world.handler.drivers.pool = Arc::clone(&pool) as _;
    let node = |pod_vif: Option<&str>| {
        let facts = NodeInfo { pod_vif: pod_vif.map(str::to_owned), ..NodeInfo::default() };
        pool.observer().unwrap().node_changed("node-1", Some(&facts));
    };
    node(None);
    assert_eq!(world.event().await.unwrap_err().reason(), "NetworkNotFound");
    node(Some("nested-vlan"));
    world.event().await.unwrap();
    assert_eq!(interfaces(&world), ["eth0 10.10", "eth1 10.20"]);
}

#[tokio::test(start_paused = true)]
async fn without_the_option_the_annotation_is_ignored() {
    let mut world = asking("green");
    world.handler.drivers.additional = None;
    world.event().await.unwrap();
    assert_eq!(interfaces(&world), ["eth0 10.10"]);
}
