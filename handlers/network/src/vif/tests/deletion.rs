use staffetta_driver::{DriverError, Reason};
use staffetta_memory::{Fault, VifMethod};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_keeps_its_vif_until_its_grace_time_is_over() {
    let world = active().await;
    world.phase("Running");
    world.terminate(30).await.unwrap();
    assert_eq!((world.ports().len(), world.releases()), (1, 0));
    world.terminate(0).await.unwrap();
    assert!(world.ports().is_empty());
    let expected = json!({ "metadata": { "uid": UID, "$deleteFromPrimitiveList/finalizers": [FINALIZER],
        "annotations": { KURYR_VIF: null } } });
    assert_eq!(world.patches()[2..], [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_gives_its_vif_back_when_it_is_finished() {
    let world = active().await;
    world.delete(30);
    world.phase("Failed");
    world.event().await.unwrap();
    world.assert_released();
}

#[tokio::test(start_paused = true)]
async fn released_vifs_are_not_released_again_when_the_pod_is_deleted() {
    let world = active().await;
    world.terminate(0).await.unwrap();
    world.event().await.unwrap();
    world.deleted().await.unwrap();
    assert_eq!((world.releases(), world.lists(), world.patches().len()), (1, 0, 3));
    assert_eq!(world.handler.records.get(&UID.into()), None);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_terminates_before_it_has_a_vif_gets_none() {
    let world = world();
    world.terminate(30).await.unwrap();
    world.terminate(0).await.unwrap();
    world.deleted().await.unwrap();
    world.assert_unasked();
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_whose_vif_is_not_active_yet_is_left_as_it_is() {
    let world = world();
    world.event().await.unwrap();
    world.delete(30);
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    assert_eq!((world.ports().len(), world.patches().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_unpublished_vif_is_released_as_soon_as_the_pod_terminates() {
    let world = world();
    world.api.answer(Answer::Broken);
    world.event().await.unwrap_err();
    assert_eq!(world.ports().len(), 1);
    world.terminate(30).await.unwrap();
    assert!(world.ports().is_empty());
    world.deleted().await.unwrap();
    assert_eq!((world.releases(), world.patches().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_vif_of_an_interrupted_request_is_released_as_soon_as_the_pod_terminates() {
    let world = world();
    let lost = DriverError::new(Reason::Unavailable, "make a port");
    world.vifs.faults().inject(VifMethod::Request, 1, Fault::DoneThenFail(lost));
    world.event().await.unwrap_err();
    world.terminate(30).await.unwrap();
    assert!(world.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_terminating_pod_that_lost_its_annotation_keeps_its_vif_too() {
    let world = active().await;
    world.api.change(|pod| pod["metadata"]["annotations"] = json!({}));
    world.terminate(30).await.unwrap();
    assert_eq!(world.ports().len(), 1);
    world.terminate(0).await.unwrap();
    world.assert_released();
}

#[tokio::test(start_paused = true)]
async fn a_malformed_annotation_does_not_block_the_deletion_of_a_pod() {
    let world = active().await;
    world.annotate("spoilt");
    world.terminate(30).await.unwrap();
    assert_eq!(world.ports().len(), 1);
    world.terminate(0).await.unwrap();
    world.assert_released();
    assert_eq!(world.text().as_deref(), Some("spoilt"));
}

#[tokio::test(start_paused = true)]
async fn a_malformed_annotation_is_kept_when_the_pod_finishes() {
    let world = active().await;
    world.annotate("spoilt");
    world.phase("Succeeded");
    world.event().await.unwrap();
    assert!(world.ports().is_empty());
    assert_eq!(world.text().as_deref(), Some("spoilt"));
    assert_eq!(world.finalizers(), [THEIRS]);
}

#[tokio::test(start_paused = true)]
async fn the_published_vif_of_a_pod_without_a_finalizer_is_released_after_its_deletion() {
    let world = active().await;
    world.deleted().await.unwrap();
    assert!(world.ports().is_empty());
    assert_eq!(world.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_unpublished_vif_of_a_deleted_pod_is_released() {
    let world = world();
    world.api.answer(Answer::Broken);
    world.event().await.unwrap_err();
    world.deleted().await.unwrap();
    assert!(world.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_vif_of_a_missed_deletion_is_found_by_its_ownership_mark() {
    let mut world = active().await;
    world.restart();
    world.missed().await.unwrap();
    assert!(world.ports().is_empty());
}

#[tokio::test(start_paused = true)]
async fn released_vifs_are_not_looked_up_after_a_missed_deletion() {
    let world = active().await;
    world.terminate(0).await.unwrap();
    world.missed().await.unwrap();
    assert_eq!((world.releases(), world.lists()), (1, 0));
    assert_eq!(world.handler.records.get(&UID.into()), None);
}

#[tokio::test(start_paused = true)]
async fn a_port_is_released_only_after_the_pod_has_unpublished_it() {
    type End = fn(&World);
    let ends: [End; 2] = [|world| world.delete(0), |world| world.phase("Succeeded")];
    for end in ends {
        let world = active().await;
        end(&world);
        world.api.answer(Answer::Refuse(503, vec![]));
        assert!(world.event().await.unwrap_err().transient());
        assert_eq!((world.releases(), world.ports().len(), world.text().is_some()), (0, 1, true));
        world.event().await.unwrap();
        assert_eq!((world.releases(), world.ports().len(), world.text()), (1, 0, None));
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_failed_after_the_write_is_repeated_with_the_next_event() {
    type Next = fn(&World);
    let nexts: [Next; 2] = [|world| world.delete(0), |world| world.phase("Succeeded")];
    for (number, next) in nexts.into_iter().enumerate() {
        let world = active().await;
        next(&world);
        let outage = DriverError::new(Reason::Unavailable, "delete a port");
        world.vifs.faults().inject(VifMethod::Release, 1, Fault::Fail(outage));
        assert!(world.event().await.unwrap_err().transient());
        assert_eq!(
            (world.finalizers(), world.text(), world.ports().len()),
            (vec![THEIRS.to_owned()], None, 1)
        );
        if number == 0 {
            world.deleted().await.unwrap();
        } else {
            world.event().await.unwrap();
        }
        assert_eq!((world.ports().len(), world.patches().len()), (0, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn killed_between_the_write_and_the_release_the_port_is_found_by_its_mark() {
    for succeeded in [false, true] {
        let mut world = active().await;
        if succeeded {
            world.phase("Succeeded");
        } else {
            world.delete(0);
        }
        world.vifs.faults().inject(VifMethod::Release, 1, Fault::Hang);
        assert!(tokio::time::timeout(Duration::from_secs(1), world.event()).await.is_err());
        assert_eq!((world.text(), world.ports().len()), (None, 1));
        world.restart();
        staffetta_handler::GarbageCollector::recover(&world.handler).await.unwrap();
        if succeeded {
            world.event().await.unwrap();
        } else {
            world.missed().await.unwrap();
        }
        assert!(world.ports().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_belongs_to_another_pod_is_not_released() {
    let world = active().await;
    let mut port = world.network.ports().pop().unwrap();
    port.owner = Some(Owner { namespace: "default".into(), name: "web".into(), uid: "another".into() });
    world.network.insert_port(port);
    world.terminate(0).await.unwrap();
    assert_eq!(world.ports().len(), 1);
    assert_eq!(world.finalizers(), [THEIRS]);
}
