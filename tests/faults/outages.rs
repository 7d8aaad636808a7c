//! The server is not there, or is another one.

use std::time::Duration;

use staffetta_apiserver::{ApiServer, Options};

use crate::world::{Upstream, World};

/// How long the server is away.
const OUTAGE: Duration = Duration::from_secs(5);

async fn outage(world: World) {
    let controller = world.ready_controller().await;
    world.pod("before").await;
    world.until_settled(&["before"]).await;
    let asked = world.proxy.requests().len();
    world.faults().begin_outage();
    world.pod("during").await;
    tokio::time::sleep(OUTAGE).await; // that is the fault
    let asked = world.proxy.requests().len() - asked;
    assert!(asked <= 30, "{asked} requests while the server was away");
    world.faults().end_outage();
    world.pod("after").await;
    world.until_settled(&["before", "during", "after"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn an_outage_is_waited_out_and_nobody_is_forgotten() {
    outage(World::embedded().await).await;
}

#[tokio::test]
async fn a_server_that_stops_and_starts_again_with_its_data_is_waited_for_on_a_real_server() {
    let Some(world) = World::real(&[]).await else { return };
    let controller = world.ready_controller().await;
    world.pod("before").await;
    world.until_settled(&["before"]).await;
    let Upstream::Real(server) = &world.upstream else { unreachable!("it was just made") };
    let asked = world.proxy.requests().len();
    server.stop_apiserver().await;
    tokio::time::sleep(OUTAGE).await; // that is the fault
    let asked = world.proxy.requests().len() - asked;
    assert!(asked <= 60, "{asked} requests while the server was away");
    server.resume().await;
    world.namespace().await;
    world.pod("after").await;
    world.until_settled(&["before", "after"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_whose_data_are_those_of_an_earlier_time_is_taken_as_it_is_on_a_real_server() {
    let Some(world) = World::real(&[]).await else { return };
    let controller = world.ready_controller().await;
    world.pod("old").await;
    world.until_settled(&["old"]).await;
    let Upstream::Real(server) = &world.upstream else { unreachable!("it was just made") };
    let snapshot = server.snapshot().await;
    world.namespace().await;
    let names: Vec<_> = (0..20).map(|number| format!("lost-{number}")).collect();
    for name in &names {
        world.pod(name).await;
    }
    let all: Vec<_> = names.iter().map(String::as_str).chain(["old"]).collect();
    world.until_settled(&all).await;
    server.restore(&snapshot).await;
    world.namespace().await;
    world.until_settled(&["old"]).await;
    world.pod("new").await;
    world.until_settled(&["old", "new"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_replaced_by_one_with_less_behind_it_is_taken_as_it_is() {
    let mut world = World::embedded().await;
    let controller = world.ready_controller().await;
    for name in ["one", "two", "three"] {
        world.pod(name).await;
    }
    world.until_settled(&["one", "two", "three"]).await;
    let other = Upstream::Embedded(ApiServer::start(Options::default()).await.unwrap());
    let _kept = world.replace_server(other).await;
    world.pod("two").await;
    world.until_settled(&["two"]).await;
    world.pod("four").await;
    world.until_settled(&["two", "four"]).await;
    controller.stop().await.unwrap();
}
