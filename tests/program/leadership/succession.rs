//! The succession of leaders: one process leads, and another one takes over when it ends.

use kube::api::DeleteParams;

use super::world::{AT_ONCE, LONG, PATIENT, SHORT, World};
use crate::process::eventually;

async fn the_standby_takes_over_when_the_leader_is_killed(world: &World) {
    let mut first = world.runner(SHORT, AT_ONCE).await;
    first.leads().await;
    let mut second = world.runner(PATIENT, AT_ONCE).await;
    second.stands_by().await;
    world.pod("before").await;
    world.until_plugged("before", true).await;
    let asked = second.proxy.requests();
    // It reads the lease and, for the cluster id, a namespace.
    let is_expected = |resource: &str| ["leases", "namespaces"].contains(&resource);
    assert!(asked.iter().all(|request| is_expected(&request.resource) && !request.is_write()), "{asked:#?}");
    let mut leader = world.lease().await;
    eventually("the lease is renewed", async || {
        leader = world.lease().await;
        leader.renew_time > leader.acquire_time
    })
    .await;
    assert_eq!((leader.lease_transitions, leader.lease_duration_seconds), (Some(1), Some(10)));

    first.process.kill("KILL").await;
    first.process.ends().await;
    world.pod("after").await;
    second.leads().await;
    world.until_plugged("after", true).await;
    second.process.ready().await;
    let successor = world.lease().await;
    assert_ne!(successor.holder_identity, leader.holder_identity);
    assert_eq!(successor.lease_transitions, Some(2));
    assert!(successor.acquire_time > leader.renew_time, "{successor:?}");
    assert!(second.process.terminate().await.success());
    assert_eq!(world.lease().await.holder_identity.as_deref().unwrap_or_default(), "");
}

async fn the_standby_takes_over_at_once_when_the_leader_is_stopped(world: &World) {
    let mut first = world.runner(LONG, AT_ONCE).await;
    first.leads().await;
    let mut second = world.runner(LONG, AT_ONCE).await;
    second.stands_by().await;
    let mut third = world.runner(LONG, AT_ONCE).await;
    third.stands_by().await;
    assert!(third.process.terminate().await.success(), "a standby ends at once");
    assert!(third.writes().is_empty());

    world.pod("web").await;
    world.until_plugged("web", true).await;
    assert!(first.process.terminate().await.success());
    first.process.says("all queues are drained").await;
    first.process.says("the lease is released").await;
    second.leads().await;
    world.pod("after").await;
    world.until_plugged("after", true).await;
    assert!(second.process.terminate().await.success());
}

async fn a_leader_without_its_server_stops_before_the_lease_expires_and_becomes_a_standby(world: &World) {
    let mut first = world.runner(SHORT, AT_ONCE).await;
    first.leads().await;
    let mut second = world.runner(PATIENT, AT_ONCE).await;
    second.stands_by().await;
    let holder = world.lease().await.holder_identity;
    first.proxy.faults().begin_outage();
    first.is_deposed().await;
    assert_eq!(world.lease().await.holder_identity, holder, "nobody has taken its lease yet");
    second.leads().await;
    world.pod("web").await;
    world.until_plugged("web", true).await;
    eventually("the first says that nobody answers", async || first.process.get("/readyz").await.0 == 503)
        .await;
    assert_eq!((first.process.get("/livez").await.0, first.losses().await), (200, 1), "it lives");

    first.proxy.faults().end_outage();
    first.stands_by().await;
    assert!(second.process.terminate().await.success());
    first.leads().await;
    world.pod("after").await;
    world.until_plugged("after", true).await;
    first.process.ready().await;
    assert!(first.process.terminate().await.success());
}

async fn a_standby_without_events_in_its_watch_takes_over(world: &World) {
    let mut first = world.runner(SHORT, AT_ONCE).await;
    first.leads().await;
    let proxy = world.proxy().await;
    proxy.faults().pause_watches();
    let mut second = world.runner_behind(proxy, PATIENT, AT_ONCE).await;
    second.stands_by().await;
    let looks = || second.proxy.requests().iter().filter(|request| request.verb == "get").count();
    let before = looks();
    eventually("it looks by itself", async || looks() > before + 2).await;
    first.process.kill("KILL").await;
    second.leads().await;
    second.proxy.faults().resume_watches();
    world.pod("web").await;
    world.until_plugged("web", true).await;
    assert!(second.process.terminate().await.success());
}

async fn a_process_that_never_saw_a_deleted_lease_leads_when_its_holder_has_stopped(world: &World) {
    let mut first = world.runner(SHORT, AT_ONCE).await;
    first.leads().await;
    first.proxy.faults().begin_outage();
    world.leases().delete("staffetta", &DeleteParams::default()).await.unwrap();
    let mut second = world.runner(SHORT, AT_ONCE).await;
    second.leads().await;
    assert_eq!(first.losses().await, 1, "two lead");
    first.is_deposed().await;
    world.pod("web").await;
    world.until_plugged("web", true).await;
    first.proxy.faults().end_outage();
    first.stands_by().await;
    assert!(second.process.terminate().await.success());
}

#[tokio::test]
async fn a_process_that_never_saw_a_deleted_lease_leads_when_its_holder_has_stopped_on_the_embedded_server() {
    a_process_that_never_saw_a_deleted_lease_leads_when_its_holder_has_stopped(&World::embedded().await)
        .await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_process_that_never_saw_a_deleted_lease_leads_when_its_holder_has_stopped_on_a_real_server() {
    a_process_that_never_saw_a_deleted_lease_leads_when_its_holder_has_stopped(&World::real().await).await;
}

#[tokio::test]
async fn the_standby_takes_over_when_the_leader_is_killed_on_the_embedded_server() {
    the_standby_takes_over_when_the_leader_is_killed(&World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn the_standby_takes_over_when_the_leader_is_killed_on_a_real_server() {
    let world = World::real().await;
    the_standby_takes_over_when_the_leader_is_killed(&world).await;
}

#[tokio::test]
async fn the_standby_takes_over_at_once_when_the_leader_is_stopped_on_the_embedded_server() {
    the_standby_takes_over_at_once_when_the_leader_is_stopped(&World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn the_standby_takes_over_at_once_when_the_leader_is_stopped_on_a_real_server() {
    let world = World::real().await;
    the_standby_takes_over_at_once_when_the_leader_is_stopped(&world).await;
}

#[tokio::test]
async fn a_leader_without_its_server_stops_before_the_lease_expires_and_becomes_a_standby_on_the_embedded_server()
 {
    a_leader_without_its_server_stops_before_the_lease_expires_and_becomes_a_standby(
        &World::embedded().await,
    )
    .await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_leader_without_its_server_stops_before_the_lease_expires_and_becomes_a_standby_on_a_real_server() {
    let world = World::real().await;
    a_leader_without_its_server_stops_before_the_lease_expires_and_becomes_a_standby(&world).await;
}

#[tokio::test]
async fn a_standby_without_events_in_its_watch_takes_over_on_the_embedded_server() {
    a_standby_without_events_in_its_watch_takes_over(&World::embedded().await).await;
}
