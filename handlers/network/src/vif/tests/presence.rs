use super::*;

#[tokio::test(start_paused = true)]
async fn pods_of_the_host_network_and_unscheduled_pods_are_not_queued() {
    for (change, reason) in [
        (
            json!({ "containers": [], "nodeName": "n", "hostNetwork": true }),
            "it uses the network of its node (hostNetwork)",
        ),
        (json!({ "containers": [] }), "it has no node yet"),
    ] {
        let world = world();
        world.api.change(|pod| pod["spec"] = change);
        let answer = world.handler.wants(&Event::Added(world.api.object()));
        assert_eq!(answer, Interest::Declined(reason));
        deliver(&world.handler, &Event::Added(world.api.object())).await.unwrap();
        world.assert_unasked();
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_is_published_by_one_write() {
    let world = world();
    world.event().await.unwrap();
    let shown = world.shown().unwrap();
    assert_eq!(vec![shown.default_vif.id.clone()], world.ports());
    assert!(!shown.default_vif.active);
    let expected = json!({ "metadata": { "uid": UID, "resourceVersion": "1",
        "annotations": { KURYR_VIF: shown.write() }, "finalizers": [FINALIZER] } });
    assert_eq!(world.patches(), [expected]);
    let port = world.network.ports().pop().unwrap();
    assert_eq!(port.owner, Some(Owner::of(&world.api.object().metadata)));
    assert_eq!((port.node_name.as_str(), port.security_groups), ("node-1", vec!["default".into()]));
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_is_active_at_once_needs_no_second_write() {
    let world = World::new(MemoryOptions { activation_delay_ms: 0, ..MemoryOptions::default() });
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert!(world.shown().unwrap().default_vif.active);
    assert_eq!((world.patches().len(), world.vifs.calls().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_second_write_follows_when_the_port_is_active() {
    let world = world();
    world.event().await.unwrap();
    let early = world.event().await.unwrap_err();
    assert!(matches!(early, VifError::NotActive { .. }) && early.transient());
    assert!(early.pending().is_some(), "it only waits");
    assert_eq!(early.retry_after(), Some(world.activation_delay()));
    assert_eq!(world.patches().len(), 1);
    tokio::time::advance(world.activation_delay()).await;
    let echo = world.api.object().metadata.resource_version.clone();
    world.event().await.unwrap();
    let shown = world.shown().unwrap();
    assert!(shown.default_vif.active);
    let annotations = json!({ KURYR_VIF: shown.write() });
    let expected = json!({ "metadata": { "uid": UID, "resourceVersion": echo, "annotations": annotations } });
    assert_eq!(world.patches()[1..], [expected]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_vif_is_active_causes_no_calls() {
    let world = active().await;
    world.phase("Running");
    let (calls, patches) = (world.vifs.calls(), world.patches());
    world.event().await.unwrap();
    assert_eq!((world.vifs.calls(), world.patches()), (calls, patches));
}

#[tokio::test(start_paused = true)]
async fn an_event_older_than_our_write_waits_for_the_event_of_the_write() {
    let world = world();
    let old = world.api.object();
    world.activate().await;
    world.handler.records.remove(&UID.into());
    let calls = world.vifs.calls();
    world.api.change(|pod| pod["status"]["phase"] = json!("Running"));
    assert_eq!(world.feed(Event::Modified(old)).await.unwrap_err().reason(), "EventAwaited");
    assert_eq!((world.vifs.calls(), world.patches().len()), (calls, 2));
}

#[tokio::test(start_paused = true)]
async fn metadata_of_others_is_never_changed() {
    let world = active().await;
    world.terminate(0).await.unwrap();
    world.assert_released();
    assert_eq!(world.api.annotation(THEIRS).as_deref(), Some("stays"));
    assert!(world.patches().iter().all(|patch| !patch.to_string().contains(THEIRS)));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_started_without_a_vif_gets_none() {
    let world = world();
    world.phase("Running");
    world.event().await.unwrap();
    world.assert_unasked();
}

#[tokio::test(start_paused = true)]
async fn a_pod_becomes_active_only_with_its_last_vif() {
    let world = world();
    world.event().await.unwrap();
    let mut state = world.shown().unwrap();
    let mut port = world.network.ports().pop().unwrap();
    port.vif.id = "second".into();
    port.active_at += Duration::from_secs(1);
    state.additional_vifs.insert("eth1".into(), port.vif.clone());
    world.network.insert_port(port);
    world.annotate(&state.write());
    tokio::time::advance(world.activation_delay()).await;
    let waiting = world.event().await.unwrap_err();
    assert!(matches!(&waiting, VifError::NotActive { vif, .. } if vif.as_str() == "second"), "{waiting}");
    assert_eq!(world.patches().len(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    world.event().await.unwrap();
    assert!(world.shown().unwrap().vifs().all(|vif| vif.active));
    assert_eq!(world.patches().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_annotation_is_an_error_and_never_overwritten() {
    for text in ["not JSON", "{}", r#"{"versioned_object.name":"PodStatus"}"#, ""] {
        let world = world();
        world.annotate(text);
        let error = world.event().await.unwrap_err();
        assert!(!error.transient());
        assert!(staffetta_handler::causes(&error).contains("openstack.org/kuryr-vif"), "{error}");
        world.assert_unasked();
    }
}

/// Creates a pod that Kuryr annotated, without this handler's finalizer and ownership mark. The port
/// only names the pod.
async fn kuryrs() -> World {
    let world = world();
    world.event().await.unwrap();
    let mut port = world.network.ports().pop().unwrap();
    port.cluster = None;
    world.network.insert_port(port);
    world.api.change(|pod| pod["metadata"]["finalizers"] = json!(["kuryr.openstack.org/pod-finalizer"]));
    world
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_kuryr_annotated_is_activated_and_released() {
    let mut world = kuryrs().await;
    world.restart();
    staffetta_handler::GarbageCollector::recover(&world.handler).await.unwrap();
    let lists = world.lists();
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    assert!(world.shown().unwrap().default_vif.active);
    assert_eq!(world.lists(), lists, "it was listed at the start");
    world.terminate(30).await.unwrap();
    assert_eq!(world.ports().len(), 1);
    world.terminate(0).await.unwrap();
    assert!(world.ports().is_empty());
    world.event().await.unwrap();
    world.deleted().await.unwrap();
    assert_eq!((world.releases(), world.requests(), world.patches().len()), (1, 1, 2));
    assert_eq!(world.finalizers(), ["kuryr.openstack.org/pod-finalizer"]);
}

#[tokio::test(start_paused = true)]
async fn unknown_fields_of_kuryr_survive_the_activation() {
    let world = kuryrs().await;
    let text = world.text().unwrap().replace(r#""active":false"#, r#""active":false,"foam":7"#);
    world.annotate(&text);
    tokio::time::advance(world.activation_delay()).await;
    world.event().await.unwrap();
    assert!(world.text().unwrap().contains(r#""foam":7"#));
    assert!(matches!(world.shown().unwrap().default_vif.class, VifClass::OpenVSwitch { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_releases_its_vif_with_one_write() {
    for phase in ["Succeeded", "Failed"] {
        let world = active().await;
        world.phase(phase);
        world.event().await.unwrap();
        assert!(world.ports().is_empty() && world.shown().is_none());
        let expected = json!({ "metadata": { "uid": UID, "annotations": { KURYR_VIF: null },
            "$deleteFromPrimitiveList/finalizers": [FINALIZER] } });
        assert_eq!(world.patches()[2..], [expected]);
        world.event().await.unwrap();
        world.deleted().await.unwrap();
        assert_eq!((world.releases(), world.lists(), world.patches().len()), (1, 0, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_finished_pod_without_a_vif_causes_no_calls() {
    let world = world();
    world.phase("Succeeded");
    world.event().await.unwrap();
    world.deleted().await.unwrap();
    world.assert_unasked();
}
