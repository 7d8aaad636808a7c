//! `staffetta cleanup` releases what another cluster left, and nothing else.

use std::sync::Arc;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use staffetta::cleanup::{CleanedUp, CleanupError, cleanup};
use staffetta_driver::{BulkVifDriver, BulkVifRequest, Owner, PodVifDriver, VifPoolKey, VifRequest};
use staffetta_handler::testing::Fault;
use staffetta_handler::{
    GarbageCollector, HandlerError, Identity, Registration, Registry, ResourceEventHandler,
};
use staffetta_memory::{MemoryBulkVifDriver, MemoryVifDriver};

use crate::world::World;

/// Runs the command for a cluster id.
async fn clean(world: &World, cluster_id: &str, apply: bool) -> Result<CleanedUp, CleanupError> {
    clean_with(world, registry(world), cluster_id, apply).await
}

async fn clean_with(
    world: &World,
    registry: Registry,
    cluster_id: &str,
    apply: bool,
) -> Result<CleanedUp, CleanupError> {
    let configuration = world.configuration(&registry);
    cleanup(registry, &configuration, world.client.clone(), cluster_id, apply).await
}

/// Everything that ships, on the simulated world.
fn registry(world: &World) -> Registry {
    let mut registry = staffetta::assembly::registry();
    staffetta::assembly::world(&mut registry, world.vifs.network(), &world.services);
    registry
}

/// Creates a VIF with the mark of a cluster, for a pod with this UID that does not exist.
async fn vif(world: &World, cluster: &str, uid: &str) {
    let network = world.vifs.network();
    let request = VifRequest {
        owner: Owner { namespace: "shop".into(), name: "web".into(), uid: uid.into() },
        node_name: "n1".into(),
        host_ip: None,
        project: "memory".into(),
        subnets: vec![network.subnet("10.10.0.0/16".parse().unwrap())],
        security_groups: vec!["default".into()],
    };
    let driver = MemoryVifDriver::new(Arc::clone(network), cluster.into());
    driver.request_vif(&request).await.unwrap();
}

/// The result for each owner.
fn results(done: &CleanedUp) -> Vec<&str> {
    done.owners.iter().map(|leftover| leftover.owner.result.as_str()).collect()
}

#[tokio::test]
async fn the_resources_of_another_cluster_are_listed_and_then_released() {
    let world = World::new().await;
    vif(&world, "old", "u1").await;
    vif(&world, "kubernetes", "u2").await;

    let listed = clean(&world, "old", false).await.unwrap();
    let owners: Vec<_> = listed
        .owners
        .iter()
        .map(|found| (found.handler.as_str(), found.uid.as_str(), found.owner.result.as_str()))
        .collect();
    assert_eq!(owners, [("vif", "u1", "found")]);
    let found = json!([{ "handler": "vif", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "u1", "result": "found",
        "ok": true }]);
    assert_eq!(serde_json::to_value(&listed).unwrap()["owners"], found);
    assert_eq!(world.vifs.network().ports().len(), 2, "nothing is released");

    let released = clean(&world, "old", true).await.unwrap();
    assert_eq!(results(&released), ["released"]);
    assert_eq!(clean(&world, "old", false).await.unwrap().owners.len(), 0);
    assert_eq!(world.vifs.network().ports().len(), 1, "those of this cluster are in use");
}

#[tokio::test]
async fn the_vifs_that_a_pool_of_another_cluster_kept_ready_are_deleted_whatever_pool_is_configured() {
    for pool in [
        "[kubernetes]\nvif_pool_driver = \"memory\"\n",
        "[kubernetes]\nvif_pool_driver = \"noop\"\n",
        "[kubernetes]\nvif_pool_driver = \"multi_pool\"\n[vif_pool]\nvif_pool_mapping = { memory = \"noop\" }\n",
    ] {
        let world = World::with(pool).await;
        pooled_vifs_are_deleted(&world).await;
    }
}

async fn pooled_vifs_are_deleted(world: &World) {
    let network = world.vifs.network();
    for cluster in ["old", "kubernetes"] {
        let subnet = network.subnet("10.10.0.0/16".parse().unwrap());
        let key = VifPoolKey {
            host: "n1".into(),
            project: "memory".into(),
            network: subnet.network.id.clone(),
            subnets: vec![subnet.id.clone()],
        };
        let groups = vec!["default".into()];
        let request = BulkVifRequest { key, subnets: vec![subnet], security_groups: groups, count: 3 };
        let created =
            MemoryBulkVifDriver::new(Arc::clone(network), cluster.into()).create_vifs(&request).await;
        assert_eq!(created.vifs.len(), 3, "{:?}", created.failure);
    }
    assert_eq!(clean(world, "old", false).await.unwrap().pooled, 3);
    assert_eq!(network.ports().len(), 6, "nothing is released");
    clean(world, "old", true).await.unwrap();
    assert_eq!(network.ports().len(), 3, "those of this cluster are kept");
}

#[tokio::test]
async fn the_resources_of_this_cluster_are_not_released() {
    let world = World::new().await;
    vif(&world, "kubernetes", "u1").await;
    let refused = clean(&world, "kubernetes", true).await;
    assert!(matches!(refused, Err(CleanupError::OwnCluster(_))), "{refused:?}");
    assert_eq!(world.vifs.network().ports().len(), 1);
}

/// A handler whose resources cannot be listed.
struct Unlisted;

impl ResourceEventHandler<Pod> for Unlisted {
    type Error = Fault;
}

#[async_trait]
impl GarbageCollector for Unlisted {
    async fn recover(&self) -> Result<(), HandlerError> {
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<Identity>, HandlerError> {
        Err(Fault::permanent("no rights").into())
    }
}

#[tokio::test]
async fn if_a_handler_cannot_list_its_resources_those_of_the_others_are_released() {
    let world = World::with("[kubernetes]\nenabled_handlers = [\"unlisted\", \"vif\"]\n").await;
    vif(&world, "old", "u1").await;
    let mut registry = registry(&world);
    registry.handler("unlisted", "Lists nothing.", |_| {
        Ok(Registration::new(Unlisted).on::<Pod>().garbage_collector().erase())
    });
    let done = clean_with(&world, registry, "old", true).await.unwrap();
    assert_eq!(done.unknown, ["the resources of the handler `unlisted` cannot be listed: no rights"]);
    assert_eq!(results(&done), ["released"]);
    assert_eq!(world.ports(), 0);
}
