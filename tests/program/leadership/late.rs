//! A leader that was stopped until after the end of its lease and continues then: none of its writes takes effect.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use staffetta_apiserver::{Fault, Requests};

use super::world::{PATIENT, Runner, SHORT, World};
use crate::process::eventually;

/// The activation delay of a VIF: longer than it takes to stop a process.
const SLOW: &str = "activation_delay_ms = 5000\n";

/// All pods.
async fn pods(world: &World) -> Vec<Pod> {
    world.pods().list(&ListParams::default()).await.unwrap().items
}

/// The status codes of the pod patches of this process.
fn patches(runner: &Runner) -> Vec<u16> {
    let writes = runner.writes().into_iter().filter(|request| request.resource == "pods");
    writes.map(|request| request.code).collect()
}

/// The number of writes of the lease by this process.
fn times_renewed(runner: &Runner) -> usize {
    runner.writes().iter().filter(|request| request.resource == "leases").count()
}

async fn a_leader_that_was_stopped_past_its_lease_changes_nothing(world: &World) {
    let mut first = world.runner(SHORT, SLOW).await;
    first.leads().await;
    let mut second = world.runner(PATIENT, SLOW).await;
    second.stands_by().await;

    // A simulated network counts what it makes: no VIF that stays has a number which the second one comes to.
    let early: Vec<_> = (0..60).map(|number| format!("early-{number}")).collect();
    for name in &early {
        world.pod(name).await;
    }
    for name in &early {
        world.until_plugged(name, false).await;
        world.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }
    eventually("the early pods are gone", async || pods(world).await.is_empty()).await;
    // A pod of whose VIF it is on its way that it is active. The second one knows nothing of that VIF, and gives it another.
    let activations = Requests::any().verb("patch").resource("pods").name("active").saying("active\\\":true");
    first.proxy.faults().inject(activations, 1, Fault::Hold);
    world.pod("active").await;
    first.proxy.faults().until_held(1).await;
    // Pods whose VIFs the first one will find active when it goes on, and one whose claim is on its way.
    for number in 0..40 {
        world.pod(&format!("waits-{number}")).await;
    }
    for number in 0..40 {
        world.until_plugged(&format!("waits-{number}"), false).await;
    }
    let claims = Requests::any().verb("patch").resource("pods").name("held");
    first.proxy.faults().inject(claims, 1, Fault::Hold);
    world.pod("held").await;
    first.proxy.faults().until_held(2).await;
    // Not while it renews: what has passed its own door already is sent when it goes on, and is the server's to refuse.
    let before = times_renewed(&first);
    eventually("the lease is renewed", async || times_renewed(&first) > before).await;
    first.process.kill("STOP").await;

    // The second one takes over, and events wait for the first.
    second.leads().await;
    for number in 0..4 {
        world.pod(&format!("new-{number}")).await;
    }
    let before = pods(world).await;
    for name in before.iter().filter_map(|pod| pod.metadata.name.as_deref()) {
        world.until_plugged(name, true).await;
    }
    let before = pods(world).await;

    // What was on its way arrives late.
    let answered = patches(&first).len();
    first.proxy.faults().let_go();
    eventually("the late writes are answered", async || patches(&first).len() >= answered + 2).await;
    assert_eq!(patches(&first)[answered..], [409, 409]);

    // The first one goes on, is refused by itself, and stands by.
    first.proxy.clear_requests();
    first.process.kill("CONT").await;
    first.is_deposed().await;
    first.stands_by().await;
    assert_eq!(first.writes(), []);
    assert_eq!(pods(world).await, before);
    assert!(first.process.terminate().await.success());
    assert!(second.process.terminate().await.success());
}

#[tokio::test]
async fn a_leader_that_was_stopped_past_its_lease_changes_nothing_on_the_embedded_server() {
    a_leader_that_was_stopped_past_its_lease_changes_nothing(&World::embedded().await).await;
}

#[tokio::test]
#[ignore = "needs a real Kubernetes: devstack/real/test real_server"]
async fn a_leader_that_was_stopped_past_its_lease_changes_nothing_on_a_real_server() {
    let world = World::real().await;
    a_leader_that_was_stopped_past_its_lease_changes_nothing(&world).await;
}
