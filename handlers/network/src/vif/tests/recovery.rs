use staffetta_handler::Sweep;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_vif_that_was_made_before_the_restart_is_adopted_and_not_made_again() {
    let mut world = world();
    world.api.answer(Answer::Broken);
    world.event().await.unwrap_err();
    world.restart();
    world.handler.recover().await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.requests(), world.ports().len()), (1, 1));
    assert_eq!(world.shown().unwrap().default_vif.id, world.ports()[0]);
}

#[tokio::test(start_paused = true)]
async fn the_marks_are_read_once_and_not_once_a_pod() {
    let mut world = settled().await;
    world.restart();
    world.handler.recover().await.unwrap();
    let calls = world.vifs.calls().len();
    world.event().await.unwrap();
    assert_eq!((world.vifs.calls().len(), world.lists(), world.patches().len()), (calls, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn what_the_marks_showed_of_a_pod_that_went_unseen_is_released_without_another_list() {
    let mut world = settled().await;
    world.restart();
    world.handler.recover().await.unwrap();
    let lists = world.lists();
    world.missed().await.unwrap();
    assert_eq!((world.ports(), world.lists()), (vec![], lists));
    world.missed().await.unwrap();
    assert_eq!(world.lists(), lists + 1, "nothing is known of it any more");
}

#[tokio::test(start_paused = true)]
async fn what_is_marked_for_a_pod_that_does_not_show_it_is_released() {
    let mut world = settled().await;
    let kept = world.ports();
    let mut surplus = world.network.ports().pop().unwrap();
    surplus.vif.id = "surplus".into();
    world.network.insert_port(surplus);
    world.restart();
    world.handler.recover().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.ports(), kept);
    assert_eq!(world.handler.claims.get(&UID.into()), None);
}

#[tokio::test(start_paused = true)]
async fn of_two_vifs_made_for_one_pod_one_is_adopted_and_the_other_goes() {
    let mut world = world();
    world.api.answer(Answer::Broken);
    world.event().await.unwrap_err();
    let mut second = world.network.ports().pop().unwrap();
    second.vif.id = "second".into();
    world.network.insert_port(second);
    world.restart();
    world.handler.recover().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.ports().len(), 2);
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    assert_eq!(world.ports(), [world.shown().unwrap().default_vif.id]);
}

#[tokio::test(start_paused = true)]
async fn an_annotation_that_somebody_removed_is_written_again_with_the_same_vif() {
    let world = settled().await;
    world.phase("Running");
    world.api.change(|pod| pod["metadata"]["annotations"] = json!({}));
    world.event().await.unwrap();
    assert_eq!((world.requests(), world.ports().len()), (1, 1));
    let vif = world.shown().unwrap().default_vif;
    assert!(vif.active && vif.id == world.ports()[0]);
}

#[tokio::test(start_paused = true)]
async fn every_owner_is_named_once() {
    let world = world();
    world.event().await.unwrap();
    let port = world.network.ports().pop().unwrap();
    for (id, owner) in [("second", port.owner.clone()), ("ready", None)] {
        let mut port = port.clone();
        port.vif.id = id.into();
        port.owner = owner;
        world.network.insert_port(port);
    }
    let owners = world.handler.owners().await.unwrap();
    let expected = Identity::of::<Pod>(Some("default".into()), "web".into(), UID.into());
    assert_eq!(owners, [expected]);
}

/// The sweep, and what it tells.
async fn sweep(world: &World) {
    world.handler.owners().await.unwrap();
    for strayed in world.handler.strays.told() {
        world.handler.on_signal(&strayed).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_call_makes_that_everybody_gave_up_is_released_by_the_second_sweep_that_sees_it() {
    let world = settled().await;
    world.event().await.unwrap();
    let kept = world.ports();
    let mut late = world.network.ports().pop().unwrap();
    late.vif.id = "late".into();
    world.network.insert_port(late.clone());
    sweep(&world).await;
    assert_eq!(world.ports().len(), 2, "one sweep may be wrong");
    // By the next one, it has another.
    world.network.remove_port(&"late".into());
    late.vif.id = "later".into();
    world.network.insert_port(late);
    sweep(&world).await;
    assert_eq!(world.ports().len(), 2, "it was not seen before");
    sweep(&world).await;
    assert_eq!(world.ports(), kept);
    for _ in 0..3 {
        sweep(&world).await;
    }
    assert_eq!((world.ports(), world.releases()), (kept, 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_shows_by_then_is_no_stray() {
    let world = settled().await;
    world.event().await.unwrap();
    let mut second = world.network.ports().pop().unwrap();
    second.vif.id = "second".into();
    world.network.insert_port(second.clone());
    for _ in 0..2 {
        world.handler.owners().await.unwrap();
    }
    let told = world.handler.strays.told();
    assert_eq!(told.len(), 1);
    let mut state = world.shown().unwrap();
    state.additional_vifs.insert("eth1".into(), second.vif);
    world.annotate(&state.write());
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    world.handler.on_signal(&told[0]).await.unwrap();
    assert_eq!((world.ports().len(), world.releases()), (2, 0));
}
