use staffetta_driver::LoadBalancerDriver;

use super::*;

#[tokio::test]
async fn deletion_releases_everything_and_one_write_removes_the_finalizer() {
    let world = balanced(&public()).await;
    let (calls, patches) = (world.calls().len(), world.api.patches().len());
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
    assert_eq!(world.calls()[calls..], ["release"], "the state is used and not the marks");
    let patch =
        json!({ "metadata": { "uid": "uid-web", "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
    assert_eq!(world.api.patches()[patches..], [("metadata", patch)]);
    assert_eq!(world.finalizers(), [THEIRS]);
}

#[tokio::test]
async fn released_resources_are_not_released_again() {
    let world = balanced(&spec()).await;
    world.delete();
    world.api.answer(Answer::Refuse(503, vec![]));
    assert!(world.event().await.unwrap_err().transient());
    let (last, calls) = (world.api.object(), world.calls().len());
    world.event().await.unwrap();
    world.event().await.unwrap();
    // The watch delivers the state before the last write, with our finalizer.
    world.feed(Event::Deleted(Tombstone::Last(last))).await.unwrap();
    assert_eq!(world.calls().len(), calls);
}

#[tokio::test]
async fn the_slices_of_a_deleted_service_do_not_create_its_load_balancer_again() {
    let world = balanced(&spec()).await;
    world.delete();
    // The second event is that of our own write; another finalizer keeps the service.
    world.event().await.unwrap();
    world.event().await.unwrap();
    world.slice("s1", &["10.1.0.9"]).await.unwrap();
    assert_eq!(world.calls(), ["ensure", "release"]);
    assert!(world.is_empty());
}

#[tokio::test]
async fn unpublished_resources_are_released_too() {
    let world = world();
    world.api.answer(Answer::Refuse(503, vec![]));
    world.event().await.unwrap_err();
    assert_eq!((world.services.load_balancers().len(), world.shown()), (1, None));
    world.deleted().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn the_resources_of_a_missed_deletion_are_found_by_their_mark_and_others_stay() {
    let mut world = balanced(&public()).await;
    let namesake = Owner { namespace: "default".into(), name: "web".into(), uid: "another".into() };
    let other = bare([10, 0, 0, 99].into());
    world.balancers.ensure_load_balancer(&namesake, &other).await.unwrap();
    world.restart().await;
    world.missed().await.unwrap();
    assert_eq!(world.tree().vip, other.vip);
    assert!(world.services.public_ips().is_empty());
    assert_eq!(world.api.patches().len(), 2, "the service does not exist any more");
}

#[tokio::test]
async fn a_malformed_state_does_not_block_the_deletion_of_a_service() {
    let mut world = balanced(&public()).await;
    world.api.annotate(STATE_ANNOTATION, "{broken");
    world.restart().await;
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
    assert_eq!(world.finalizers(), [THEIRS]);
}

#[tokio::test]
async fn without_recovery_a_malformed_state_makes_the_marks_be_read() {
    let mut world = balanced(&public()).await;
    world.api.annotate(STATE_ANNOTATION, "{broken");
    world.replace(world.drivers(), true);
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn a_service_that_is_deleted_before_its_state_is_written_has_everything_released() {
    for refusal in [Answer::Refuse(404, vec![]), Answer::Refuse(422, vec!["metadata.finalizers"])] {
        let world = world();
        world.want(&public());
        world.slice("s1", &["10.1.0.1"]).await.unwrap();
        world.api.answer(refusal);
        world.event().await.unwrap();
        assert!(world.is_empty());
        let calls = world.calls().len();
        world.deleted().await.unwrap();
        assert_eq!(world.calls().len(), calls);
    }
}

#[tokio::test]
async fn the_deletion_of_an_unmanaged_service_causes_no_calls() {
    let world = world();
    world.delete();
    world.event().await.unwrap();
    world.deleted().await.unwrap();
    assert!(world.calls().is_empty() && world.api.patches().is_empty());
}
