use super::*;

#[tokio::test]
async fn a_load_balancer_is_published_by_one_write_with_the_finalizer() {
    let world = world();
    world.slice("s1", &["10.1.0.1", "10.1.0.2"]).await.unwrap();
    assert_eq!(world.calls(), [""; 0], "there is no spec yet");
    world.event().await.unwrap();
    assert_eq!(world.calls(), ["ensure"], "with all parts at once");
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080", "10.1.0.2:8080"]);
    assert_eq!(world.tree().name, "default/web");

    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    assert_eq!(world.finalizers(), [THEIRS, FINALIZER]);
    assert_eq!(world.api.annotation(THEIRS).as_deref(), Some("stays"));
    let patches = world.api.patches();
    assert_eq!(patches.len(), 1);
    let metadata = &patches[0].1["metadata"];
    assert_eq!((metadata.get("resourceVersion"), &metadata["finalizers"]), (None, &json!([FINALIZER])));
}

#[tokio::test]
async fn without_a_difference_nothing_is_called_or_written() {
    let world = world();
    world.event().await.unwrap();
    let calls = world.calls().len();
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.calls().len(), world.api.patches().len()), (calls, 1));
}

#[tokio::test]
async fn without_endpoints_the_load_balancer_has_empty_pools() {
    let world = world();
    world.event().await.unwrap();
    assert_eq!(world.calls(), ["ensure"]);
    assert_eq!(world.members(HTTP), [""; 0]);
}

#[tokio::test]
async fn a_service_without_a_spec_is_not_handled() {
    let world = World::new(MemoryOptions::default());
    world.event().await.unwrap();
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    assert!(world.is_empty() && world.api.patches().is_empty());
}

#[tokio::test]
async fn listeners_follow_the_ports_and_surplus_ones_are_released_first() {
    let world = world();
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.event().await.unwrap();
    world.want(&LbaasServiceSpec { ports: vec![port("http", 8000)], ..spec() });
    world.event().await.unwrap();
    assert_eq!(world.calls()[1..], ["release listener", "ensure listener"], "with its members");
    assert_eq!(world.members(ListenerPort { port: 8000, ..HTTP }), ["10.1.0.1:8080"]);
    let listeners: Vec<_> = world.tree().listeners.iter().map(|listener| listener.at.port).collect();
    assert_eq!(listeners, [8000]);
}

#[tokio::test]
async fn a_renamed_port_keeps_its_listener_and_its_members_in_any_order_of_events() {
    let mut renamed = (*slice("s1", &["10.1.0.1"])).clone();
    renamed.ports.as_mut().unwrap()[0].name = Some("web".into());
    let renamed = Event::Modified(Arc::new(renamed));
    for service_first in [true, false] {
        let world = world();
        world.slice("s1", &["10.1.0.1"]).await.unwrap();
        world.event().await.unwrap();
        world.event().await.unwrap();
        let (before, calls) = (world.tree(), world.calls());
        if !service_first {
            world.feed(renamed.clone()).await.unwrap();
        }
        world.want(&LbaasServiceSpec { ports: vec![port("web", 80)], ..spec() });
        world.event().await.unwrap();
        world.feed(renamed.clone()).await.unwrap();
        assert_eq!((world.tree(), world.calls()), (before, calls), "the pool was never empty");
    }
}

#[tokio::test]
async fn a_new_cluster_ip_needs_a_new_load_balancer_after_the_release_of_the_old_one() {
    let world = world();
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.event().await.unwrap();
    let before = world.tree();
    world.want(&LbaasServiceSpec { ip: [10, 0, 0, 2].into(), ..spec() });
    world.event().await.unwrap();
    assert_eq!(world.calls()[1..], ["release", "ensure"]);
    assert_ne!(world.tree().id, before.id);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn a_service_without_a_spec_any_more_loses_its_load_balancer_and_our_metadata() {
    let world = world();
    world.event().await.unwrap();
    world.want_nothing();
    world.event().await.unwrap();
    assert!(world.is_empty());
    assert_eq!((world.shown(), world.finalizers()), (None, vec![THEIRS.to_owned()]));
    assert_eq!(world.api.patches().len(), 2);
    world.event().await.unwrap();
    assert_eq!(world.api.patches().len(), 2);
    world.want(&spec());
    world.event().await.unwrap();
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

const STALE: &str = "EventAwaited";

#[tokio::test]
async fn an_event_older_than_our_own_write_waits_for_the_event_of_the_write() {
    let world = world();
    let old = world.api.object();
    world.event().await.unwrap();
    assert_eq!(world.feed(Event::Modified(old)).await.unwrap_err().reason(), STALE);
    assert_eq!(world.slice("s1", &["10.1.0.1"]).await.unwrap_err().reason(), STALE);
    assert_eq!(world.calls(), ["ensure"]);
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080"], "the event of the write repairs it");
}

#[tokio::test]
async fn a_malformed_annotation_is_a_permanent_error_and_is_not_overwritten() {
    for key in [SPEC_ANNOTATION, STATE_ANNOTATION] {
        let world = world();
        world.api.annotate(key, "{broken");
        let error = world.event().await.unwrap_err();
        assert!(!error.transient());
        let text = causes(&*error);
        assert!(text.contains(key) && text.contains("{broken") && text.contains("remove it"), "{text}");
        assert!(world.is_empty() && world.api.patches().is_empty());
    }
}

#[tokio::test]
async fn a_public_service_whose_annotations_somebody_removes_keeps_its_load_balancer_and_its_address() {
    let mut world = balanced(&public()).await;
    world.event().await.unwrap();
    let (tree, ingress, addresses) = (world.tree(), world.ingress(), world.services.public_ips());
    let calls = |world: &World| world.calls().iter().filter(|call| **call != "list").count();
    let before = calls(&world);
    for restart in [false, true] {
        let remove = |key: &'static str| {
            move |service: &mut serde_json::Value| {
                drop(service["metadata"]["annotations"].as_object_mut().unwrap().remove(key));
            }
        };
        world.api.change(remove(SPEC_ANNOTATION));
        if restart {
            world.restart().await;
        }
        world.event().await.unwrap();
        world.slice("s1", &["10.1.0.1"]).await.unwrap();
        assert_eq!(
            (&world.tree(), &world.services.public_ips()),
            (&tree, &addresses),
            "the spec comes again"
        );
        world.want(&public());
        world.api.change(remove(STATE_ANNOTATION));
        for _ in 0..2 {
            world.event().await.unwrap();
        }
        assert_eq!((&world.tree(), &world.services.public_ips()), (&tree, &addresses));
        assert_eq!((world.ingress(), calls(&world)), (ingress.clone(), before));
        assert_eq!(world.shown().unwrap().load_balancer.unwrap().id, tree.id);
        assert_eq!(world.recorded.reasons(), [crate::annotation::RESTORED]);
    }
}
