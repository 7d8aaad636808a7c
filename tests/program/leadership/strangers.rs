//! Leases that another program wrote.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::world::{LONG, SHORT, World};

/// A holder whose clock is wrong by hours writes the lease.
async fn strangers_lease(world: &World, hours: i64, duration: impl Into<Value>) {
    let renewed = Timestamp::now() + SignedDuration::from_hours(hours);
    let lease = json!({ "metadata": { "name": "staffetta", "labels": { "theirs": "yes" } }, "spec": {
        "holderIdentity": "a stranger", "leaseDurationSeconds": duration.into(),
        "renewTime": format!("{renewed:.6}") } });
    world.leases().delete("staffetta", &DeleteParams::default()).await.unwrap();
    world.leases().create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
}

async fn a_lease_with_past_timestamps_is_respected_until_it_is_released(world: &World) {
    strangers_lease(world, -5, 3600).await;
    let mut runner = world.runner(LONG, "").await;
    runner.stands_by().await;
    assert!(runner.writes().is_empty());
    let (given_up, lease) =
        (PatchParams::default(), Patch::Merge(json!({ "spec": { "holderIdentity": "" } })));
    world.leases().patch("staffetta", &given_up, &lease).await.unwrap();
    runner.leads().await;
    let lease = world.leases().get("staffetta").await.unwrap();
    assert_eq!(lease.metadata.labels.unwrap_or_default()["theirs"], "yes", "what others keep on it stays");
    assert!(runner.process.terminate().await.success());
}

async fn a_lease_with_future_timestamps_is_taken_when_it_is_not_renewed(world: &World) {
    strangers_lease(world, 5, 1).await;
    let mut runner = world.runner(LONG, "").await;
    runner.leads().await;
    assert!(runner.process.terminate().await.success());
}

async fn a_lease_without_a_duration_is_taken_after_the_configured_one(world: &World) {
    strangers_lease(world, 0, Value::Null).await;
    let began = Instant::now();
    let mut runner = world.runner(SHORT, "").await;
    runner.stands_by().await;
    runner.leads().await;
    assert!(began.elapsed() >= Duration::from_secs(10), "after {:?}", began.elapsed());
    assert!(runner.process.terminate().await.success());
}

#[tokio::test]
async fn a_lease_with_past_timestamps_is_respected_until_it_is_released_on_the_embedded_server() {
    a_lease_with_past_timestamps_is_respected_until_it_is_released(&World::embedded().await).await;
}

#[tokio::test]
async fn a_lease_with_future_timestamps_is_taken_when_it_is_not_renewed_on_the_embedded_server() {
    a_lease_with_future_timestamps_is_taken_when_it_is_not_renewed(&World::embedded().await).await;
}

#[tokio::test]
async fn a_lease_without_a_duration_is_taken_after_the_configured_one_on_the_embedded_server() {
    a_lease_without_a_duration_is_taken_after_the_configured_one(&World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn leases_of_other_controllers_are_interpreted_correctly_on_a_real_server() {
    let world = World::real().await;
    a_lease_with_past_timestamps_is_respected_until_it_is_released(&world).await;
    a_lease_with_future_timestamps_is_taken_when_it_is_not_renewed(&world).await;
    a_lease_without_a_duration_is_taken_after_the_configured_one(&world).await;
}
