//! Nobody says anything.

use std::time::Duration;

use staffetta_driver::memory::{Fault, VifMethod};

use crate::world::World;

async fn silent_watch(world: World) {
    let controller = world.ready_controller().await;
    world.pod("before").await;
    world.until_settled(&["before"]).await;
    world.faults().pause_watches();
    let (asked, begun) = (world.asked("watch", "pods"), tokio::time::Instant::now());
    world.pod("silent").await;
    world
        .until("the silent watch was given up, twice", async || world.asked("watch", "pods") >= asked + 2)
        .await;
    let (asked, waited) = (world.asked("watch", "pods") - asked, begun.elapsed());
    assert!(asked as u64 <= 2 + waited.as_secs(), "{asked} watches in {waited:?}");
    world.faults().resume_watches();
    world.until_settled(&["before", "silent"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_that_stays_silent_is_given_up_and_made_anew() {
    silent_watch(World::embedded().await).await;
}

#[tokio::test]
async fn a_watch_that_stays_silent_is_given_up_and_made_anew_on_a_real_server() {
    if let Some(world) = World::real(&[]).await {
        silent_watch(world).await;
    }
}

async fn silent_driver(world: World) {
    let controller = world.ready_controller().await;
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::DoneThenHang);
    world.pod("hangs").await;
    tokio::time::sleep(Duration::from_millis(50)).await; // the hanging call is most likely the first; either way both end well
    world.pod("other").await;
    world.until_settled(&["hangs", "other"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_hangs_is_interrupted_and_others_go_on() {
    silent_driver(World::embedded().await).await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_interrupted_and_others_go_on_on_a_real_server() {
    if let Some(world) = World::real(&[]).await {
        silent_driver(world).await;
    }
}
