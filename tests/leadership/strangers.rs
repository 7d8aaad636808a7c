//! Leases that somebody else wrote.

use jiff::{SignedDuration, Timestamp};
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::world::{LONG, SHORT, World};

/// A holder whose clock is wrong by hours writes the lease.
async fn strangers_lease(world: &World, hours: i64, duration: impl Into<Value>) {
    let renewed = Timestamp::now() + SignedDuration::from_hours(hours);
    let lease = json!({ "metadata": { "name": "staffetta", "labels": { "theirs": "yes" } }, "spec": {
        "holderIdentity": "a stranger", "leaseDurationSeconds": duration.into(),
        "renewTime": format!("{renewed:.6}") } });
    world.leases().create(&PostParams::default(), &serde_json::from_value(lease).unwrap()).await.unwrap();
}

async fn a_lease_from_the_past_is_respected_until_it_is_given_up(world: &World) {
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

async fn a_lease_from_the_future_is_taken_when_its_holder_is_silent(world: &World) {
    strangers_lease(world, 5, 1).await;
    let mut runner = world.runner(LONG, "").await;
    runner.leads().await;
    assert!(runner.process.terminate().await.success());
}

async fn a_lease_that_says_no_duration_is_taken_after_ours(world: &World) {
    strangers_lease(world, 0, Value::Null).await;
    let mut runner = world.runner(SHORT, "").await;
    runner.stands_by().await;
    runner.leads().await;
    assert!(runner.process.terminate().await.success());
}

#[tokio::test]
async fn a_lease_from_the_past_is_respected_until_it_is_given_up_on_the_embedded_server() {
    a_lease_from_the_past_is_respected_until_it_is_given_up(&World::embedded().await).await;
}

#[tokio::test]
async fn a_lease_from_the_future_is_taken_when_its_holder_is_silent_on_the_embedded_server() {
    a_lease_from_the_future_is_taken_when_its_holder_is_silent(&World::embedded().await).await;
}

#[tokio::test]
async fn a_lease_that_says_no_duration_is_taken_after_ours_on_the_embedded_server() {
    a_lease_that_says_no_duration_is_taken_after_ours(&World::embedded().await).await;
}

#[tokio::test]
async fn leases_of_strangers_are_read_as_they_are_meant_on_a_real_server() {
    let Some(world) = World::real().await else { return };
    let delete = async || {
        world.leases().delete("staffetta", &kube::api::DeleteParams::default()).await.unwrap();
    };
    a_lease_from_the_past_is_respected_until_it_is_given_up(&world).await;
    delete().await;
    a_lease_from_the_future_is_taken_when_its_holder_is_silent(&world).await;
    delete().await;
    a_lease_that_says_no_duration_is_taken_after_ours(&world).await;
}
