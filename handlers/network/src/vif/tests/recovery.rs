use staffetta_handler::GarbageCollector;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_vif_that_was_created_before_the_restart_is_adopted() {
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
async fn the_marks_are_read_once_for_all_pods() {
    let mut world = active().await;
    world.restart();
    world.handler.recover().await.unwrap();
    let calls = world.vifs.calls().len();
    world.event().await.unwrap();
    assert_eq!((world.vifs.calls().len(), world.lists(), world.patches().len()), (calls, 1, 2));
}

#[tokio::test(start_paused = true)]
async fn the_marked_vif_of_a_missed_deletion_is_released_without_another_list() {
    let mut world = active().await;
    world.restart();
    world.handler.recover().await.unwrap();
    let lists = world.lists();
    world.missed().await.unwrap();
    assert_eq!((world.ports(), world.lists()), (vec![], lists));
    world.missed().await.unwrap();
    assert_eq!(world.lists(), lists + 1, "there is no record of it any more");
}

#[tokio::test(start_paused = true)]
async fn a_marked_vif_that_the_pod_does_not_publish_is_released() {
    let mut world = active().await;
    let kept = world.ports();
    let mut surplus = world.network.ports().pop().unwrap();
    surplus.vif.id = "surplus".into();
    world.network.insert_port(surplus);
    world.restart();
    world.handler.recover().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.ports(), kept);
    assert_eq!(world.handler.records.get(&UID.into()), None);
}

#[tokio::test(start_paused = true)]
async fn of_two_vifs_created_for_one_pod_one_is_adopted_and_the_other_released() {
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
async fn a_removed_annotation_is_written_again_with_the_same_vif() {
    let world = active().await;
    world.phase("Running");
    world.api.change(|pod| pod["metadata"]["annotations"] = json!({}));
    world.event().await.unwrap();
    assert_eq!((world.requests(), world.ports().len()), (1, 1));
    let vif = world.shown().unwrap().default_vif;
    assert!(vif.active && vif.id == world.ports()[0]);
}

#[tokio::test(start_paused = true)]
async fn every_owner_is_listed_once() {
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

/// Collects garbage and handles the triggers.
async fn collect_garbage(world: &World) {
    world.handler.owners().await.unwrap();
    for trigger in world.handler.leaks.triggers() {
        world.handler.on_trigger(&trigger).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaked_vif_is_released_after_the_second_scan_that_finds_it() {
    let world = active().await;
    world.event().await.unwrap();
    let kept = world.ports();
    let mut late = world.network.ports().pop().unwrap();
    late.vif.id = "late".into();
    world.network.insert_port(late.clone());
    collect_garbage(&world).await;
    assert_eq!(world.ports().len(), 2, "one scan may be wrong");
    // The next scan finds another one.
    world.network.remove_port(&"late".into());
    late.vif.id = "later".into();
    world.network.insert_port(late);
    collect_garbage(&world).await;
    assert_eq!(world.ports().len(), 2, "it was not found before");
    collect_garbage(&world).await;
    assert_eq!(world.ports(), kept);
    for _ in 0..3 {
        collect_garbage(&world).await;
    }
    assert_eq!((world.ports(), world.releases()), (kept, 1));
}

#[tokio::test(start_paused = true)]
async fn the_vif_of_a_pod_that_names_a_foreign_one_is_leaked_unless_the_pod_runs() {
    for running in [false, true] {
        let world = active().await;
        if running {
            world.phase("Running");
        }
        world.event().await.unwrap();
        let own = world.network.ports().pop().unwrap();
        let foreign = Vif { id: "of-another-cluster".into(), ..world.shown().unwrap().default_vif };
        world.annotate(&PodState::new(foreign.clone()).write());
        let owner = Owner::of(&world.api.object().metadata);
        let verified = world.handler.verify(&world.api.object(), &owner, &[foreign]).await;
        assert!(matches!(verified, Err(VifError::Foreign(_))), "{verified:?}");
        for _ in 0..3 {
            collect_garbage(&world).await;
        }
        assert_eq!(world.ports().contains(&own.vif.id), running);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_that_names_a_foreign_vif_keeps_the_own_one_with_its_address() {
    for uses_own in [true, false] {
        let world = active().await;
        world.event().await.unwrap();
        let own = world.network.ports().pop().unwrap();
        let foreign = Vif { id: "of-another-cluster".into(), ..world.shown().unwrap().default_vif };
        world.annotate(&PodState::new(foreign.clone()).write());
        let address = own.vif.ips().next().unwrap().to_string();
        let address = if uses_own { address.as_str() } else { "192.0.2.99" };
        world.api.change(|pod| pod["status"] = json!({ "phase": "Running", "podIP": address }));
        let owner = Owner::of(&world.api.object().metadata);
        let verified = world.handler.verify(&world.api.object(), &owner, &[foreign]).await;
        assert!(matches!(verified, Err(VifError::Foreign(_))), "{verified:?}");
        for _ in 0..3 {
            collect_garbage(&world).await;
        }
        assert_eq!(world.ports().contains(&own.vif.id), uses_own);
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_is_published_meanwhile_is_not_leaked() {
    let world = active().await;
    world.event().await.unwrap();
    let mut second = world.network.ports().pop().unwrap();
    second.vif.id = "second".into();
    world.network.insert_port(second.clone());
    for _ in 0..2 {
        world.handler.owners().await.unwrap();
    }
    let reported = world.handler.leaks.triggers();
    assert_eq!(reported.len(), 1);
    let mut state = world.shown().unwrap();
    state.additional_vifs.insert("eth1".into(), second.vif);
    world.annotate(&state.write());
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    world.handler.on_trigger(&reported[0]).await.unwrap();
    assert_eq!((world.ports().len(), world.releases()), (2, 0));
}
