//! Controllers that are killed in each state of an app: the next controller continues from that state.

use std::time::Duration;

use staffetta_iosxe_device::{StopsTo, Times};

use super::refusals::{Refusal, refusals};
use super::world::{World, pod};
use crate::process::{Process, eventually};

/// The number of ledger entries of an app up to RUNNING, and from there to its removal.
const UP: usize = 5;
const DOWN: usize = 4;

async fn kill(mut controller: Process) {
    controller.kill("KILL").await;
    assert!(!controller.ends().await.success());
}

/// The number of completed operations. A repeated request of a restarted controller is refused by the device and
/// changes nothing.
fn done(world: &World) -> usize {
    let ledger = world.device().ledger();
    let refused = refusals(&ledger);
    let excused =
        |refusal: &Refusal<'_>| refusal.repeats() || refusal.is_under_way() || refusal.met_own_start();
    assert!(refused.iter().all(excused), "{refused:#?} in {:#?}", ledger.entries());
    ledger.entries().len() - refused.len()
}

/// Kills a controller in each of the states that follow number `from`; the last one lives.
async fn killed_in_each(world: &World, from: usize, states: usize) -> Process {
    let mut controller = world.controller().await;
    for number in from + 1..=from + states {
        let what = format!("entry {number} of the ledger");
        eventually(&what, async || done(world) >= number).await;
        kill(controller).await;
        controller = world.controller().await;
    }
    controller
}

#[tokio::test]
async fn killed_in_each_state_it_does_nothing_twice_and_leaves_nothing() {
    for (auto_start, stops_to) in [(false, StopsTo::Stopped), (true, StopsTo::Activated)] {
        let world = World::new(1, |options| {
            options.times = Times::each(Duration::from_millis(200));
            (options.auto_start, options.stops_to) = (auto_start, stops_to);
        })
        .await;
        world.create(&pod("web", 1)).await;
        let controller = killed_in_each(&world, 0, UP).await;
        world.until_phase("web", "Running").await;
        assert_eq!(done(&world), UP, "{:#?}", world.device().ledger().entries());
        kill(controller).await;
        world.delete("web").await;
        let _last = killed_in_each(&world, UP, DOWN).await;
        world.until_gone("web").await;
        world.assert_clean();
        assert_eq!(done(&world), UP + DOWN, "{:#?}", world.device().ledger().entries());
        assert!(world.device().ledger().installs().values().all(|count| *count == 1));
    }
}

#[tokio::test]
async fn killed_when_the_answers_of_the_device_got_lost_it_does_nothing_twice() {
    use staffetta_iosxe_device::{Fault, Requests};
    let world = World::new(1, |_| ()).await;
    world.create(&pod("web", 1)).await;
    // The configuration, then the install, take effect without an answer, and the controller is killed then.
    for method in ["POST", "POST"] {
        world.device().inject(Requests::any().method(method), 1, Fault::CutAfter);
        let controller = world.controller().await;
        eventually("it has taken effect", async || world.device().pending_faults() == 0).await;
        kill(controller).await;
    }
    let _last = world.controller().await;
    world.until_phase("web", "Running").await;
    world.delete("web").await;
    world.until_gone("web").await;
    world.assert_clean();
    world.assert_done_once();
}
