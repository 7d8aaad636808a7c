use staffetta_driver::{DriverError, LoadBalancerDriver, PublicIp, Reason};
use staffetta_memory::Fault;

use super::*;
use crate::lb::testing::{listener, load_balancer};

/// Creates resources and an annotation as Kuryr does.
fn kuryrs(world: &World) -> LbaasState {
    let tree = LoadBalancer {
        listeners: vec![listener(Protocol::Tcp, 80, &["10.1.0.1"])],
        ..load_balancer("default/web", "10.0.0.1")
    };
    world.services.insert_load_balancer(tree.clone());
    let ip = [203, 0, 113, 200].into();
    let public_ip = PublicIp {
        id: world.services.insert_public_ip(ip),
        ip,
        allocation: staffetta_driver::Allocation::Pool,
        port: Some(tree.port.clone()),
    };
    LbaasState { load_balancer: Some(tree), public_ip: Some(public_ip), unmarked: false }
}

async fn is_adopted(world: &World) {
    let marked = world.balancers.load_balancers(None).await.unwrap();
    assert_eq!(marked.len(), 1);
    assert_eq!(
        (marked[0].thing.id.as_str(), marked[0].owner.as_ref().unwrap().uid.as_str()),
        ("lb", "uid-web")
    );
    assert!(world.finalizers().contains(&FINALIZER.to_owned()));
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn resources_of_kuryr_are_marked_and_kept() {
    let world = world();
    world.want(&public());
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.slice("s1", &["10.1.0.2"]).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    is_adopted(&world).await;
    assert_eq!(world.calls()[..2], ["ensure", "set members"]);
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
    let held = world.services.public_ips();
    assert_eq!((held.len(), held[0].1.id.clone()), (1, theirs.public_ip.unwrap().id));
    assert!(held[0].0.is_some(), "the address is marked too");

    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test]
async fn the_state_on_endpoints_counts_until_the_service_is_annotated() {
    let mut world = world();
    let theirs = annotation::write(&kuryrs(&world));
    world.api.add_endpoints(&json!({ "namespace": "default", "name": "other", "uid": "e0" }));
    let metadata = json!({ "namespace": "default", "name": "web", "uid": "e1", "annotations": { STATE_ANNOTATION: theirs } });
    world.api.add_endpoints(&metadata);
    world.restart().await;
    world.event().await.unwrap();
    is_adopted(&world).await;

    world.event().await.unwrap();
    world.want_nothing();
    world.event().await.unwrap();
    world.want(&spec());
    let calls = world.addresses.calls().len();
    world.event().await.unwrap();
    assert_ne!(world.tree().id.as_str(), "lb");
    assert_eq!(world.addresses.calls().len(), calls, "released resources are not listed again");
}

#[tokio::test]
async fn an_interrupted_adoption_is_completed() {
    let mut world = world();
    world.want(&public());
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    let broken = Fault::Fail(DriverError::new(Reason::Unavailable, "acquire"));
    world.addresses.faults().inject(staffetta_memory::PublicIpMethod::Acquire, 1, broken);
    world.event().await.unwrap_err();
    world.restart().await;
    world.event().await.unwrap();
    world.event().await.unwrap();
    is_adopted(&world).await;
    assert_eq!(world.services.public_ips().len(), 1);
    assert!(world.services.public_ips()[0].0.is_some());
}

#[tokio::test]
async fn a_missing_load_balancer_of_kuryr_is_created_again() {
    let world = world();
    let theirs = LbaasState { public_ip: None, ..kuryrs(&world) };
    world.services.remove_load_balancer(&"lb".into());
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.event().await.unwrap();
    assert_ne!(world.tree().id.as_str(), "lb");
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn resources_of_kuryr_stay_while_the_service_has_no_spec() {
    let world = world();
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.want_nothing();
    world.event().await.unwrap();
    assert!(world.calls().is_empty() && world.api.patches().is_empty());
    assert_eq!(world.tree().id.as_str(), "lb");
}
