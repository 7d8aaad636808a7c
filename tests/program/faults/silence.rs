//! Watches that stay open but send no data.

use std::time::Duration;

use staffetta::config::RelayOptions;
use staffetta_memory::{Fault, VifCall, VifMethod};
use tokio::time::Instant;

use super::world::{Task, World};

async fn silent_watch(world: World) {
    let controller = world.ready_controller().await;
    world.pod("before").await;
    world.until_idle(&["before"]).await;
    world.faults().pause_watches();
    let (asked, begun) = (world.asked("watch", "pods"), Instant::now());
    world.pod("silent").await;
    world
        .until("the silent watch was given up, twice", async || world.asked("watch", "pods") >= asked + 2)
        .await;
    let (asked, waited) = (world.asked("watch", "pods") - asked, begun.elapsed());
    assert!(asked as u64 <= 2 + waited.as_secs(), "{asked} watches in {waited:?}");
    world.faults().resume_watches();
    world.until_idle(&["before", "silent"]).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_watch_without_any_sign_of_life_is_listed_again() {
    silent_watch(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_watch_without_any_sign_of_life_is_listed_again_on_a_real_server() {
    let world = World::real(&[]).await;
    silent_watch(world).await;
}

/// The time limit of a hanging driver: long enough that other objects are handled before it.
const TIMEOUT: Duration = Duration::from_secs(15);

async fn silent_driver(world: World) {
    let controller = world.ready_with(Task::Pods, TIMEOUT).await;
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::DoneThenHang);
    let hangs = world.pod("hangs").await.metadata.uid.unwrap();
    let requests = || {
        let calls = world.vifs.calls().into_iter();
        let owner = |call| if let VifCall::Request(owner) = call { Some(owner.to_string()) } else { None };
        calls.filter_map(owner).collect::<Vec<_>>()
    };
    world.until("the driver was called", async || requests() == [&*hangs]).await;
    let begun = Instant::now();
    let other = world.pod("other").await.metadata.uid.unwrap();
    world.until("the other has its VIF", async || world.is_plugged("other").await).await;
    let waited = begun.elapsed();
    assert!(waited < TIMEOUT / 2, "the other waited {waited:?} for the call that hangs");
    assert!(!world.is_plugged("hangs").await, "it still hangs");
    world.until_idle(&["hangs", "other"]).await;
    assert!(begun.elapsed() > TIMEOUT / 2, "it was interrupted");
    assert_eq!(requests(), [hangs, other], "what the lost call made was found");
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_hanging_driver_is_interrupted_and_other_objects_are_handled() {
    silent_driver(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_hanging_driver_is_interrupted_and_other_objects_are_handled_on_a_real_server() {
    let world = World::real(&[]).await;
    silent_driver(world).await;
}

async fn silent_for_all(world: World) {
    // The share of one namespace.
    let at_a_time = RelayOptions::default().max_concurrency.get() / 2;
    let controller = world.ready_with(Task::Services, TIMEOUT).await;
    world.vifs.faults().inject(VifMethod::Request, at_a_time, Fault::DoneThenHang);
    let names: Vec<_> = (0..=at_a_time).map(|number| format!("web-{number}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    for name in &names {
        world.pod(name).await;
    }
    let requests = || world.vifs.calls().iter().filter(|call| matches!(call, VifCall::Request(_))).count();
    world.until("as many calls hang as there may be", async || requests() == at_a_time).await;
    world.service("other").await;
    world.until_served(&["other"]).await;
    assert_eq!(
        requests(),
        at_a_time,
        "the last pod waits still: no call has ended, and the other handler waited for none"
    );
    world.until_idle(&names).await;
    controller.stop().await.unwrap();
}

#[tokio::test]
async fn a_driver_that_hangs_in_all_its_permits_delays_no_other_handler() {
    silent_for_all(World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_driver_that_hangs_in_all_its_permits_delays_no_other_handler_on_a_real_server() {
    let world = World::real(&[]).await;
    silent_for_all(world).await;
}
