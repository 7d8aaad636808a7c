//! Changes during an interruption of the watches.

use std::time::Duration;

use staffetta_apiserver::Fault;

use super::world::{Upstream, World, pods};

async fn deletion_in_a_gap(world: World) {
    let controller = world.ready_controller().await;
    for name in ["stays", "goes", "returns"] {
        world.pod(name).await;
    }
    world.until_idle(&["stays", "goes", "returns"]).await;
    world.faults().begin_outage();
    let release = serde_json::json!({ "metadata": { "finalizers": null } });
    for name in ["goes", "returns"] {
        let patch = kube::api::Patch::Merge(&release);
        world.pods().patch(name, &kube::api::PatchParams::default(), &patch).await.unwrap();
        world.end_pod(name).await;
        world.until_gone(name).await;
    }
    world.pod("returns").await;
    forget_history(&world).await;
    world.faults().end_outage();
    world.until_idle(&["stays", "returns"]).await;
    controller.stop().await.unwrap();
}

/// Makes the server answer 410 to who asks for what happened before now.
async fn forget_history(world: &World) {
    match &world.upstream {
        Upstream::Embedded(server) => server.trim_event_log(),
        Upstream::Real(server) => server.compact().await,
    }
}

#[tokio::test]
async fn objects_deleted_or_recreated_during_a_gap_are_found_after_a_compaction() {
    deletion_in_a_gap(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn objects_deleted_or_recreated_during_a_gap_are_found_after_a_compaction_on_a_real_server() {
    let world = World::real(&["--watch-cache=false", "--etcd-compaction-interval=0"]).await;
    deletion_in_a_gap(world).await;
}

async fn made_again_within_a_round_trip(world: World) {
    let controller = world.ready_controller().await;
    for round in 0..5 {
        world.faults().inject(pods("patch"), 1, Fault::Delay(Duration::from_millis(200)));
        let first = world.pod("web").await;
        let asked = world.asked("patch", "pods");
        world
            .until("the first one's VIF is about to be written", async || {
                world.vifs.network().ports().len() == 1 || world.asked("patch", "pods") > asked
            })
            .await;
        world.end_pod("web").await;
        world.until_gone("web").await;
        let second = world.pod("web").await;
        assert_ne!(first.metadata.uid, second.metadata.uid);
        world.until_idle(&["web"]).await;
        let port = world.vifs.network().ports().remove(0);
        assert_eq!(Some(port.owner.unwrap().uid.as_str()), second.metadata.uid.as_deref(), "round {round}");
        world.end_pod("web").await;
        world.until_gone("web").await;
        world.until_idle(&[]).await;
    }
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_pod_recreated_under_its_name_within_a_round_trip_gets_a_port_of_its_own() {
    made_again_within_a_round_trip(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_pod_recreated_under_its_name_within_a_round_trip_gets_a_port_of_its_own_on_a_real_server() {
    let world = World::real(&[]).await;
    made_again_within_a_round_trip(world).await;
}
