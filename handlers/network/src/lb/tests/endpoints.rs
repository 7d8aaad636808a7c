use staffetta_handler::{Index, Object, deliver};

use super::*;

async fn balanced() -> World {
    let world = world();
    world.slice("s1", &["10.1.0.1", "10.1.0.2"]).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    world
}

#[tokio::test]
async fn members_change_by_one_call_and_unchanged_ones_stay() {
    let world = balanced().await;
    let before = world.shown().unwrap().load_balancer.unwrap().listeners[0].clone();
    world.slice("s1", &["10.1.0.2", "10.1.0.3"]).await.unwrap();
    assert_eq!(world.calls()[1..], ["set members"]);
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080", "10.1.0.3:8080"]);
    let after = world.shown().unwrap().load_balancer.unwrap().listeners[0].clone();
    assert_eq!(after.pool.unwrap().members[0].id, before.pool.unwrap().members[1].id);
}

#[tokio::test]
async fn a_pool_has_the_members_of_all_slices() {
    let world = balanced().await;
    world.slice("s2", &["10.1.0.3"]).await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080", "10.1.0.2:8080", "10.1.0.3:8080"]);
    world.event().await.unwrap();
    world.feed(Event::Deleted(Tombstone::Last(slice("s1", &["10.1.0.1", "10.1.0.2"])))).await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.3:8080"]);
}

#[tokio::test(start_paused = true)]
async fn a_slice_that_changes_its_service_leaves_no_members_at_the_old_one() {
    let world = balanced().await;
    let mut moved = (*slice("s1", &["10.1.0.1", "10.1.0.2"])).clone();
    moved.labels_mut().insert("kubernetes.io/service-name".into(), "other".into());
    world.feed(Event::Modified(Arc::new(moved))).await.unwrap();
    assert_eq!(world.members(HTTP).len(), 2, "its event is in the queue of the other service");
    let triggers = World::triggers_of(&*world.handler.sources[1], Duration::from_secs(1)).await;
    let present = Event::Modified(world.api.object()).erase();
    assert_eq!(triggers.len(), 1);
    assert_eq!(world.handler.resolve(&triggers[0]).key(), world.handler.resolve(&present).key());
    world.handler.handle(&world.handler.resolve(&triggers[0]), &Context::detached()).await.unwrap();
    assert_eq!(world.members(HTTP), [""; 0]);
}

#[tokio::test]
async fn the_deletion_of_a_slice_does_not_block_the_event_that_it_would_wait_for() {
    let world = balanced().await;
    world.slice("s2", &["10.1.0.3"]).await.unwrap();
    // The event of the last write is in the queue behind the deletion.
    world.feed(Event::Deleted(Tombstone::Last(slice("s1", &["10.1.0.1", "10.1.0.2"])))).await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.3:8080"]);
}

#[tokio::test]
async fn a_missed_deletion_of_a_slice_removes_its_members() {
    let world = balanced().await;
    let identity = Identity::of::<EndpointSlice>(Some("default".into()), "s1".into(), "s1".into());
    let missed = || Event::<EndpointSlice>::Deleted(Tombstone::Missed(Arc::new(identity.clone())));
    world.balancers.faults().inject(
        LoadBalancerMethod::SetMembers,
        1,
        staffetta_memory::Fault::Fail(staffetta_driver::DriverError::new(
            staffetta_driver::Reason::Unavailable,
            "set the members of a pool",
        )),
    );
    assert!(world.feed(missed()).await.is_err());
    world.feed(missed()).await.unwrap();
    assert_eq!(
        world.members(HTTP),
        [""; 0],
        "the service of the slice is known until the deletion is handled"
    );
}

#[tokio::test]
async fn a_service_its_slices_and_its_endpoints_share_one_queue() {
    let world = balanced().await;
    let service = Event::Modified(world.api.object()).erase();
    let present = Event::Modified(slice("s1", &[])).erase();
    let identity = Identity::of::<EndpointSlice>(Some("default".into()), "s1".into(), "s1".into());
    let missed = Event::<EndpointSlice>::Deleted(Tombstone::Missed(Arc::new(identity))).erase();
    let keys = [&service, &present, &missed].map(|event| world.handler.resolve(event).key());
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[0], keys[2]);
    assert!(world.handler.superseded_by_key);
}

#[tokio::test]
async fn without_slices_endpoints_give_the_same_members() {
    let mut world = world();
    world.replace(world.drivers(), false);
    let endpoints = |ip: &str| -> Arc<Endpoints> {
        let endpoints = json!({ "metadata": { "namespace": "default", "name": "web", "uid": "e" },
            "subsets": [{ "addresses": [{ "ip": ip }], "ports": [{ "name": "http", "port": 8080 }] }] });
        Arc::new(serde_json::from_value(endpoints).unwrap())
    };
    world.feed(Event::Added(endpoints("10.1.0.1"))).await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080"]);
    world.event().await.unwrap();
    world.feed(Event::Modified(endpoints("10.1.0.2"))).await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
    world.event().await.unwrap();
    let keys = [
        world.handler.resolve(&Event::Modified(endpoints("10.1.0.2")).erase()).key(),
        world.handler.resolve(&Event::Modified(world.api.object()).erase()).key(),
    ];
    assert_eq!(keys[0], keys[1]);
    world.feed(Event::Deleted(Tombstone::Last(endpoints("10.1.0.2")))).await.unwrap();
    assert_eq!(world.members(HTTP), [""; 0]);
    let slices = Event::Modified(slice("s1", &["10.1.0.1"])).erase();
    assert!(!world.handler.wants(&slices).is_taken());
}

#[tokio::test]
async fn of_unrelated_slices_only_the_deletion_is_handled() {
    let world = world();
    let handler = LbHandler::new(
        world.api.client(),
        world.drivers(),
        LoadBalancerOptions::default(),
        Recorder::default(),
    );
    let present = Event::Added(slice("s1", &["10.1.0.1"]));
    let gone = Event::Deleted(Tombstone::Last(slice("s1", &["10.1.0.1"])));
    for (event, wanted) in [(&present, false), (&gone, true)] {
        handler.endpoints.apply(event);
        assert_eq!(ResourceEventHandler::<EndpointSlice>::wants(&handler, event).is_taken(), wanted);
    }
    deliver(&handler, &gone).await.unwrap();
    assert_eq!(handler.endpoints.service_of("s1"), None);
    assert_eq!(world.calls(), [""; 0]);
}

#[tokio::test]
async fn the_last_replicas_serve_until_they_have_terminated_or_another_is_ready() {
    let world = balanced().await;
    let says = |uid: &str, ip: &str, conditions: serde_json::Value| {
        let mut slice = (*slice(uid, &[ip])).clone();
        slice.endpoints[0].conditions = Some(serde_json::from_value(conditions).unwrap());
        Event::Modified(Arc::new(slice))
    };
    let ends = |serving| json!({ "ready": false, "serving": serving, "terminating": true });
    let ready = json!({ "ready": true, "serving": true, "terminating": false });
    let error = [
        ("s1", "10.1.0.2", ends(true), &["10.1.0.2:8080"][..]),
        ("s2", "10.1.0.3", ready, &["10.1.0.3:8080"]),
        ("s2", "10.1.0.3", ends(false), &["10.1.0.2:8080"]),
        ("s1", "10.1.0.2", ends(false), &[]),
    ];
    for (uid, ip, conditions, members) in error {
        world.feed(says(uid, ip, conditions)).await.unwrap();
        assert_eq!(world.members(HTTP), members);
        world.event().await.unwrap();
    }
}

#[tokio::test]
async fn the_endpoints_of_a_service_that_is_not_selected_change_nothing_unless_it_is_managed() {
    let mut world = world();
    let selecting = |world: &World| {
        let (options, recorder) = (world.options.clone(), world.recorded.recorder());
        let handler = LbHandler::new(world.api.client(), world.drivers(), options, recorder);
        handler.managed_by(Installation::new("east", |service: &dyn Object| {
            service.meta().labels.iter().flatten().any(|(key, _)| key == "mine")
        }))
    };
    world.replace_by(selecting(&world), true);
    world.event().await.unwrap();
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.feed(Event::Deleted(Tombstone::Last(slice("s1", &["10.1.0.1"])))).await.unwrap();
    assert_eq!(world.calls(), [""; 0]);

    // Its own event brings the endpoints that it had before.
    world.slice("s1", &["10.1.0.2"]).await.unwrap();
    world.api.change(|service| service["metadata"]["labels"] = json!({ "mine": "" }));
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
    // What is managed stays so without the label.
    world.api.change(|service| service["metadata"]["labels"] = json!({}));
    world.event().await.unwrap();
    world.slice("s1", &["10.1.0.3"]).await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.3:8080"]);
}
