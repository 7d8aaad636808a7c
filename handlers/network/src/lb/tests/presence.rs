use super::*;

#[tokio::test]
async fn a_service_gets_its_load_balancer_and_one_write_tells_of_it_with_the_finalizer() {
    let world = world();
    world.slice("s1", &["10.1.0.1", "10.1.0.2"]).await.unwrap();
    assert_eq!(world.calls(), [""; 0], "the spec is not known yet");
    world.event().await.unwrap();
    assert_eq!(world.calls(), ["ensure"], "the whole tree at once");
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
async fn when_nothing_differs_nobody_is_asked_and_nothing_is_written() {
    let world = world();
    world.event().await.unwrap();
    let calls = world.calls().len();
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!((world.calls().len(), world.api.patches().len()), (calls, 1));
}

#[tokio::test]
async fn without_endpoints_the_load_balancer_stands_with_empty_pools() {
    let world = world();
    world.event().await.unwrap();
    assert_eq!(world.calls(), ["ensure"]);
    assert_eq!(world.members(HTTP), [""; 0]);
}

#[tokio::test]
async fn a_service_without_a_spec_is_nobody_s_concern() {
    let world = World::new(MemoryOptions::default());
    world.event().await.unwrap();
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    assert!(world.is_empty() && world.api.patches().is_empty());
}

#[tokio::test]
async fn listeners_follow_the_ports_and_those_that_go_go_first() {
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
async fn a_renamed_port_keeps_its_listener_and_its_members_whichever_tells_first() {
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
        assert_eq!((world.tree(), world.calls()), (before, calls), "the pool never ran empty");
    }
}

#[tokio::test]
async fn a_new_cluster_ip_takes_a_new_load_balancer_and_the_old_one_goes_first() {
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
async fn a_service_that_is_to_have_none_loses_its_load_balancer_and_our_marks_on_it() {
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

const STALE: &str = "the event of our last write is still to come";

#[tokio::test]
async fn an_event_older_than_our_own_write_waits_for_the_echo() {
    let world = world();
    let old = world.api.object();
    world.event().await.unwrap();
    assert_eq!(world.feed(Event::Modified(old)).await.unwrap_err().to_string(), STALE);
    assert_eq!(world.slice("s1", &["10.1.0.1"]).await.unwrap_err().to_string(), STALE);
    assert_eq!(world.calls(), ["ensure"]);
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080"], "the echo makes up for it");
}

#[tokio::test]
async fn a_malformed_annotation_is_a_final_error_that_names_it_and_stays_as_it_is() {
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
