use staffetta_driver::LoadBalancerDriver;

use super::*;

#[tokio::test]
async fn deletion_releases_everything_and_one_write_lets_the_service_go() {
    let world = standing(&public()).await;
    let (calls, patches) = (world.calls().len(), world.api.patches().len());
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
    assert_eq!(world.calls()[calls..], ["release"], "the state tells what there is, not the marks");
    let patch =
        json!({ "metadata": { "uid": "uid-web", "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
    assert_eq!(world.api.patches()[patches..], [("metadata", patch)]);
    assert_eq!(world.finalizers(), [THEIRS]);
}

#[tokio::test]
async fn what_was_released_is_not_released_again() {
    let world = standing(&spec()).await;
    world.delete();
    world.api.answer(Answer::Refuse(503, vec![]));
    assert!(world.event().await.unwrap_err().transient());
    let (last, calls) = (world.api.object(), world.calls().len());
    world.event().await.unwrap();
    world.event().await.unwrap();
    // The watch tells the state before the last write: with our finalizer.
    world.feed(Event::Deleted(Tombstone::Last(last))).await.unwrap();
    assert_eq!(world.calls().len(), calls);
}

#[tokio::test]
async fn a_service_that_goes_is_not_built_up_again_by_its_slices() {
    let world = standing(&spec()).await;
    world.delete();
    // The second event is the echo of our own write; somebody else's finalizer keeps the service.
    world.event().await.unwrap();
    world.event().await.unwrap();
    world.slice("s1", &["10.1.0.9"]).await.unwrap();
    assert_eq!(world.calls(), ["ensure", "release"]);
    assert!(world.is_empty());
}

#[tokio::test]
async fn what_was_made_and_not_written_down_is_released_too() {
    let world = world();
    world.api.answer(Answer::Refuse(503, vec![]));
    world.event().await.unwrap_err();
    assert_eq!((world.services.load_balancers().len(), world.shown()), (1, None));
    world.deleted().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn what_went_unseen_is_found_by_its_mark_and_that_of_others_stays() {
    let mut world = standing(&public()).await;
    let namesake = Owner { namespace: "default".into(), name: "web".into(), uid: "another".into() };
    let other = bare([10, 0, 0, 99].into());
    world.balancers.ensure_load_balancer(&namesake, &other).await.unwrap();
    world.restart().await;
    world.missed().await.unwrap();
    assert_eq!(world.tree().vip, other.vip);
    assert!(world.services.public_ips().is_empty());
    assert_eq!(world.api.patches().len(), 2, "there is nothing left to write to");
}

#[tokio::test]
async fn a_state_that_cannot_be_read_does_not_keep_the_service_from_going() {
    let mut world = standing(&public()).await;
    world.api.annotate(STATE_ANNOTATION, "{broken");
    world.restart().await;
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
    assert_eq!(world.finalizers(), [THEIRS]);
}

#[tokio::test]
async fn without_a_look_at_start_an_unreadable_state_makes_the_marks_be_read() {
    let mut world = standing(&public()).await;
    world.api.annotate(STATE_ANNOTATION, "{broken");
    world.replace(world.drivers(), true);
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn a_service_that_is_gone_when_its_state_is_written_has_everything_released() {
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
async fn a_service_that_was_never_ours_goes_unasked() {
    let world = world();
    world.delete();
    world.event().await.unwrap();
    world.deleted().await.unwrap();
    assert!(world.calls().is_empty() && world.api.patches().is_empty());
}
