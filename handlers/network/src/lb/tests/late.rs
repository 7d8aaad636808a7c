//! Late writes of an earlier leader.

use super::*;

/// Publishes a load balancer and a public address, lets another leader take over and changes the
/// service. Then all patches of the first leader arrive once more, one by one.
async fn late(change: impl Fn(&World)) -> World {
    let mut world = world();
    world.want(&public());
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world.event().await.unwrap();
    let sent = world.api.patches();
    assert_eq!(sent.iter().map(|(what, _)| *what).collect::<Vec<_>>(), ["metadata", "status"]);
    world.restart().await;
    world.feed(Event::Added(slice("s1", &["10.1.0.1"]))).await.unwrap();
    world.feed(Event::Added(world.api.object())).await.unwrap();
    change(&world);
    calm(&world).await;
    for (what, patch) in sent {
        world.api.arrives(what, &patch);
        calm(&world).await;
    }
    world
}

/// Delivers events until nothing is written any more.
async fn calm(world: &World) {
    let mut seen = None;
    while seen != world.api.object().metadata.resource_version {
        seen = world.api.object().metadata.resource_version.clone();
        world.event().await.unwrap();
    }
}

fn ensured(world: &World) -> usize {
    world.calls().into_iter().filter(|call| *call == "ensure").count()
}

#[tokio::test]
async fn late_writes_to_a_balanced_service_change_nothing() {
    let world = late(|_| {}).await;
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    assert_eq!(world.ingress(), [world.services.public_ips()[0].1.ip]);
    assert_eq!(ensured(&world), 1);
}

#[tokio::test]
async fn late_writes_publish_no_released_address() {
    let world = late(|world| world.want(&spec())).await;
    assert!(world.services.public_ips().is_empty());
    assert_eq!(world.ingress(), [] as [IpAddr; 0]);
    assert_eq!(
        world.shown().unwrap(),
        LbaasState { load_balancer: Some(world.tree()), ..LbaasState::default() }
    );
    assert_eq!(ensured(&world), 1);
}

#[tokio::test]
async fn late_writes_to_a_service_without_a_spec_are_reverted() {
    let world = late(World::want_nothing).await;
    assert!(world.is_empty());
    assert_eq!(world.ingress(), [] as [IpAddr; 0]);
    assert_eq!(world.finalizers(), [THEIRS]);
    assert_eq!(world.shown(), None);
    assert_eq!(ensured(&world), 1);
}
