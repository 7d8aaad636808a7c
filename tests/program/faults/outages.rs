//! Outages of the API server, and its replacement by another one.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::json;
use staffetta::config::LeaderElectionOptions;
use staffetta::controller::{Controller, Role};
use staffetta_apiserver::{ApiServer, Options};

use super::world::{Task, Upstream, World};

/// The duration of an outage, longer than a leader keeps its term without the server.
const OUTAGE: Duration = Duration::from_secs(20);
const LONG_OUTAGE: Duration = Duration::from_secs(60);

/// The maximum number of requests of a watch within an outage of `time`: its delay is doubled from 1 s to 5 s, each delay is shortened by
/// up to a quarter, and one request was in flight.
fn attempts(time: Duration) -> usize {
    let (mut wait, mut begun, mut count) = (Duration::from_secs(1), Duration::ZERO, 1);
    while begun <= time {
        count += 1;
        begun += wait.mul_f64(0.75);
        wait = (wait * 2).min(Duration::from_secs(5));
    }
    count
}

/// The maximum number of requests of a participant of the election within `time`: one in each retry period, which is shortened by up to a
/// fifth, and a few more when its role changes.
fn looks(time: Duration) -> usize {
    let retry_period: Duration = LeaderElectionOptions::default().retry_period.into();
    let looks = time.as_millis() / retry_period.mul_f64(0.8).as_millis();
    usize::try_from(looks).unwrap() + 3
}

/// While the server is away for `time`, `replicas` ask for it, each at its own pace and none more than that.
async fn is_away(world: &World, time: Duration, replicas: usize) {
    let before = world.proxy.requests().len();
    world.begin_outage().await;
    tokio::time::sleep(time).await; // that is the fault
    let mut asked = BTreeMap::new();
    for request in world.proxy.requests().split_off(before) {
        *asked.entry(request.resource).or_insert(0_usize) += 1;
    }
    assert!(asked.values().sum::<usize>() > 0, "somebody asked");
    let allowed = BTreeMap::from([
        ("pods", attempts(time)),
        ("services", attempts(time)),
        ("endpointslices", attempts(time)),
        ("leases", looks(time) * replicas),
    ]);
    let too_many: Vec<_> = asked
        .iter()
        .filter(|(what, count)| **count > allowed.get(what.as_str()).copied().unwrap_or(0))
        .collect();
    assert!(too_many.is_empty(), "{too_many:?} requests within {time:?}; {allowed:?} are enough");
}

async fn outage(world: World, time: Duration) {
    let controller = world.ready(Task::Services).await;
    world.pod("before").await;
    world.service("before").await;
    world.until_idle(&["before"]).await;
    world.until_served(&["before"]).await;
    is_away(&world, time, 0).await;
    let mut pods = vec!["before", "after"];
    if let Upstream::Embedded(_) = &world.upstream {
        world.pod("during").await;
        world.service("during").await;
        pods.push("during");
    }
    world.end_outage().await;
    world.pod("after").await;
    world.service("after").await;
    world.until_idle(&pods).await;
    world.until_served(&pods).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_is_survived_and_every_object_is_handled_afterwards() {
    outage(World::embedded().await, OUTAGE).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_restart_of_the_server_with_its_data_is_survived_on_a_real_server() {
    let world = World::real(&[]).await;
    outage(world, OUTAGE).await;
}

/// Ends when one of these leads. Answers which.
async fn leader(world: &World, replicas: &[Controller]) -> usize {
    let leads = |replica: &Controller| replica.leadership().role == Role::Leader;
    world.until("one of them leads", async || replicas.iter().any(leads)).await;
    replicas.iter().position(leads).unwrap()
}

async fn elected_through_an_outage(world: World, time: Duration) {
    let replicas = [world.ready(Task::Elected).await, world.ready(Task::Elected).await];
    let first = leader(&world, &replicas).await;
    world.pod("before").await;
    world.service("before").await;
    world.until_idle(&["before"]).await;
    world.until_served(&["before"]).await;
    is_away(&world, time, replicas.len()).await;
    for (place, replica) in replicas.iter().enumerate() {
        let status = replica.leadership();
        assert_ne!(status.role, Role::Leader, "nobody renews a lease at a server that is away");
        assert_eq!(status.losses, u64::from(place == first));
        let live = reqwest::get(format!("http://{}/livez", replica.admin())).await.unwrap();
        assert!(live.status().is_success(), "it lives");
    }
    world.end_outage().await;
    world.pod("after").await;
    world.service("after").await;
    leader(&world, &replicas).await;
    world.until_idle(&["before", "after"]).await;
    world.until_served(&["before", "after"]).await;
    for mut replica in replicas {
        tokio::time::timeout(OUTAGE, replica.ready())
            .await
            .expect("who leads is ready, and so is who stands by")
            .unwrap();
        replica.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_outage_longer_than_the_lease_ends_no_replica_and_one_is_the_leader_afterwards() {
    elected_through_an_outage(World::embedded().await, OUTAGE).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn an_outage_of_a_minute_ends_no_replica_and_one_is_the_leader_afterwards_on_a_real_server() {
    let world = World::real(&[]).await;
    elected_through_an_outage(world, LONG_OUTAGE).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_server_with_restored_older_data_is_listed_again_on_a_real_server() {
    let world = World::real(&[]).await;
    let controller = world.ready_controller().await;
    world.pod("old").await;
    world.until_idle(&["old"]).await;
    let Upstream::Real(server) = &world.upstream else { unreachable!("it was just made") };
    let snapshot = server.snapshot().await;
    world.namespace().await;
    let names: Vec<_> = (0..20).map(|number| format!("lost-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    let all: Vec<_> = names.iter().map(String::as_str).chain(["old"]).collect();
    world.until_idle(&all).await;
    server.restore(&snapshot).await;
    world.namespace().await;
    world.until_idle(&["old"]).await;
    world.pod("new").await;
    world.until_idle(&["old", "new"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_replaced_by_one_with_less_history_is_listed_again() {
    let mut world = World::embedded().await;
    let controller = world.ready_controller().await;
    for name in ["one", "two", "three"] {
        world.pod(name).await;
    }
    world.until_idle(&["one", "two", "three"]).await;
    let other = Upstream::Embedded(ApiServer::start(Options::default()).await.unwrap());
    let _kept = world.replace_server(other).await;
    world.pod("two").await;
    world.until_idle(&["two"]).await;
    world.pod("four").await;
    world.until_idle(&["two", "four"]).await;
    controller.stop().await.unwrap();
}

/// Objects of a kind that no handler wants: they move the history of the server on, and bookmarks tell of that alone.
async fn move_on(client: Client, count: usize) {
    let api: Api<ConfigMap> = Api::namespaced(client, "default");
    for number in 0..count {
        let object = json!({ "metadata": { "name": format!("other-{number}") } });
        api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
}

#[tokio::test]
async fn a_server_with_less_history_is_detected_by_bookmarks_for_a_kind_without_objects() {
    let mut world = World::embedded().await;
    let controller = world.ready_controller().await;
    move_on(world.direct.clone(), 60).await;
    let asked = world.asked("watch", "pods");
    world.until("a watch goes on from there", async || world.asked("watch", "pods") >= asked + 3).await;
    let other = Upstream::Embedded(ApiServer::start(Options::default()).await.unwrap());
    move_on(other.client().await, 20).await;
    world.direct = other.client().await;
    world.pod("there-already").await;
    let _kept = world.replace_server(other).await;
    world.until_idle(&["there-already"]).await;
    controller.stop().await.unwrap();
}
