//! Pods without usual fields, and pods with very large annotations.

use super::*;

fn without(world: &World, fields: &[&str]) {
    world.api.change(|pod| pod.as_object_mut().unwrap().retain(|field, _| !fields.contains(&field.as_str())));
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_spec_and_status_is_left_alone() {
    let world = world();
    without(&world, &["spec", "status"]);
    deliver(&world.handler, &Event::Added(world.api.object())).await.unwrap();
    world.terminate(30).await.unwrap();
    world.terminate(0).await.unwrap();
    world.deleted().await.unwrap();
    world.assert_unasked();
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_status_may_run_and_gets_no_vif_before_its_status_tells_that_it_does_not() {
    let world = world();
    without(&world, &["status"]);
    world.event().await.unwrap();
    world.assert_unasked();
    world.api.change(|pod| pod["status"] = json!({ "phase": "Pending" }));
    world.activate().await;
    assert!(world.shown().unwrap().default_vif.active);
    assert_eq!(world.network.ports()[0].node_name, "node-1");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_status_was_removed_keeps_its_vif_although_its_annotation_names_another_one() {
    let world = active().await;
    world.event().await.unwrap();
    let (ports, vif) = (world.ports(), world.shown().unwrap().default_vif);
    without(&world, &["status"]);
    world.annotate(&PodState::new(Vif { id: "of-another".into(), ..vif }).write());
    for _ in 0..3 {
        assert_eq!(world.event().await.unwrap_err().reason(), "VifForeign");
    }
    assert_eq!((world.ports(), world.releases()), (ports, 0), "it is neither replaced nor released");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_spec_and_status_keeps_its_vif_until_it_goes() {
    for deletes in [true, false] {
        let world = active().await;
        without(&world, &["spec", "status"]);
        world.event().await.unwrap();
        assert_eq!(world.ports().len(), 1);
        if deletes {
            world.terminate(0).await.unwrap();
            world.assert_released();
        } else {
            world.deleted().await.unwrap();
            assert!(world.ports().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_annotations_leave_no_room_gets_its_vif_once_there_is_some() {
    let world = active().await;
    let room = KURYR_VIF.len() + world.text().unwrap().len();
    let world = self::world();
    for short in 1..3 {
        world.api.leave_room(room - short);
        let error = world.event().await.unwrap_err();
        assert!(error.reason() == "WriteRefused" && !error.transient(), "{error}");
        assert_eq!(world.ports().len(), 1, "it is kept for the next attempt");
    }
    // The text of an inactive VIF is one character longer.
    world.api.leave_room(room + 1);
    world.activate().await;
    assert!(world.shown().unwrap().default_vif.active);
    world.terminate(0).await.unwrap();
    world.assert_released();
}
