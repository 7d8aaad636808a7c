use staffetta_driver::memory::Fault;
use staffetta_driver::{DriverError, LoadBalancerDriver, PublicIp, Reason};

use super::*;
use crate::lb::testing::{listener, load_balancer};

/// What Kuryr made and wrote for the service, before this program came.
fn kuryrs(world: &World) -> Standing {
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
    Standing { load_balancer: Some(tree), public_ip: Some(public_ip), unmarked: false }
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
async fn what_a_predecessor_made_is_marked_and_kept() {
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
async fn what_a_predecessor_wrote_on_the_endpoints_counts_until_the_service_shows_it() {
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
    assert_eq!(world.addresses.calls().len(), calls, "what was released is not looked for again");
}

#[tokio::test]
async fn an_adoption_that_was_interrupted_is_completed() {
    let mut world = world();
    world.want(&public());
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    let broken = Fault::Fail(DriverError::new(Reason::Unavailable, "acquire"));
    world.addresses.faults().inject(staffetta_driver::memory::PublicIpMethod::Acquire, 1, broken);
    world.event().await.unwrap_err();
    world.restart().await;
    world.event().await.unwrap();
    world.event().await.unwrap();
    is_adopted(&world).await;
    assert_eq!(world.services.public_ips().len(), 1);
    assert!(world.services.public_ips()[0].0.is_some());
}

#[tokio::test]
async fn a_predecessor_s_load_balancer_that_is_gone_is_made_anew() {
    let world = world();
    let theirs = Standing { public_ip: None, ..kuryrs(&world) };
    world.services.remove_load_balancer(&"lb".into());
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.event().await.unwrap();
    assert_ne!(world.tree().id.as_str(), "lb");
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn what_a_predecessor_made_stays_while_nobody_says_what_is_wanted() {
    let world = world();
    let theirs = kuryrs(&world);
    world.api.annotate(STATE_ANNOTATION, &annotation::write(&theirs));
    world.want_nothing();
    world.event().await.unwrap();
    assert!(world.calls().is_empty() && world.api.patches().is_empty());
    assert_eq!(world.tree().id.as_str(), "lb");
}
