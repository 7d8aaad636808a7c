//! Late writes of an earlier leader.

use staffetta_handler::GarbageCollector;

use super::*;

/// Publishes a VIF, lets another leader take over, and returns the patches of the first one.
async fn taken_over() -> (World, Vec<Value>) {
    let mut world = active().await;
    let sent = world.patches();
    assert_eq!(sent.len(), 2, "the VIF, and that it is active");
    world.restart();
    world.handler.recover().await.unwrap();
    world.event().await.unwrap();
    (world, sent)
}

#[tokio::test(start_paused = true)]
async fn a_late_publication_is_refused() {
    let (world, sent) = taken_over().await;
    assert_eq!(world.api.arrives("metadata", &sent[0]), 409);
}

#[tokio::test(start_paused = true)]
async fn a_late_activation_is_refused() {
    let (world, sent) = taken_over().await;
    world.phase("Running");
    world.event().await.unwrap();
    let before = world.text();
    assert_eq!(world.api.arrives("metadata", &sent[1]), 409);
    world.event().await.unwrap();
    assert_eq!(world.text(), before);
    assert_eq!((world.requests(), world.ports().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_late_activation_of_a_pod_that_has_finished_is_refused() {
    let (world, sent) = taken_over().await;
    world.phase("Succeeded");
    world.event().await.unwrap();
    world.assert_released();
    assert_eq!(world.api.arrives("metadata", &sent[1]), 409);
    world.event().await.unwrap();
    assert_eq!(world.text(), None);
    world.assert_released();
    assert_eq!((world.requests(), world.releases()), (1, 1));
}
