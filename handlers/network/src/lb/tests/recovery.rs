use staffetta_driver::{DriverError, ListenerChange, ListenerDriver, LoadBalancerDriver};
use staffetta_memory::{Fault, PublicIpMethod};

use super::*;

async fn prepared() -> World {
    let world = world();
    world.want(&public());
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    world
}

/// Delivers slice and service as new to the process.
async fn replay(world: &World) {
    world.feed(Event::Added(slice("s1", &["10.1.0.1"]))).await.unwrap();
    world.feed(Event::Added(world.api.object())).await.unwrap();
    world.event().await.unwrap();
}

async fn has_converged(world: &World) {
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    assert_eq!(world.services.public_ips().len(), 1);
    assert_eq!(world.ingress(), [world.services.public_ips()[0].1.ip]);
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080"]);
    let made = |call: &LoadBalancerCall| matches!(call, LoadBalancerCall::Ensure(_));
    let ensured = world.balancers.calls().into_iter().filter(made).count();
    assert_eq!(ensured, 1, "made once");
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_call_the_result_is_the_same_and_nothing_is_created_twice() {
    for kill in failures::METHODS {
        let mut world = failures::about_to(kill, &public()).await;
        world.balancers.faults().inject(kill, 1, Fault::DoneThenHang);
        assert!(tokio::time::timeout(Duration::from_secs(1), world.event()).await.is_err());
        world.restart().await;
        replay(&world).await;
        has_converged(&world).await;
    }
    for kill in [PublicIpMethod::Acquire, PublicIpMethod::Associate] {
        let mut world = prepared().await;
        world.addresses.faults().inject(kill, 1, Fault::DoneThenHang);
        assert!(tokio::time::timeout(Duration::from_secs(1), world.event()).await.is_err());
        world.restart().await;
        replay(&world).await;
        has_converged(&world).await;
    }
}

#[tokio::test]
async fn killed_between_the_two_writes_the_second_one_follows() {
    let mut world = prepared().await;
    world.event().await.unwrap();
    world.api.change(|service| service["status"]["loadBalancer"] = json!({}));
    world.restart().await;
    replay(&world).await;
    has_converged(&world).await;
}

#[tokio::test]
async fn a_restart_only_reads_the_marks_once() {
    let mut world = prepared().await;
    world.event().await.unwrap();
    let (calls, patches) = (world.calls().len(), world.api.patches().len());
    world.restart().await;
    replay(&world).await;
    assert_eq!(world.calls()[calls..], ["list"]);
    assert_eq!(world.api.patches().len(), patches);
}

#[tokio::test]
async fn a_load_balancer_that_was_removed_outside_is_created_again_at_the_next_start() {
    let mut world = prepared().await;
    world.want(&spec());
    world.event().await.unwrap();
    world.services.remove_load_balancer(&world.tree().id);
    world.restart().await;
    let calls = world.calls().len();
    world.feed(Event::Added(slice("s1", &["10.1.0.1"]))).await.unwrap();
    world.feed(Event::Added(world.api.object())).await.unwrap();
    assert_eq!(world.calls()[calls..], ["list", "ensure"]);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn a_change_from_outside_is_reverted_at_the_next_start() {
    let mut world = prepared().await;
    world.event().await.unwrap();
    let emptied = ListenerChange::SetMembers(HTTP, Vec::new());
    world.balancers.change_listener(&world.tree(), &emptied).await.unwrap();
    world.restart().await;
    replay(&world).await;
    assert_eq!(world.members(HTTP), ["10.1.0.1:8080"]);
}

#[tokio::test]
async fn a_removed_state_is_written_again_from_the_marks() {
    let world = prepared().await;
    world.event().await.unwrap();
    let before = world.tree().id;
    world.api.change(|service| {
        drop(service["metadata"]["annotations"].as_object_mut().unwrap().remove(STATE_ANNOTATION));
    });
    world.event().await.unwrap();
    assert_eq!(world.tree().id, before);
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
}

#[tokio::test]
async fn of_two_load_balancers_of_one_service_one_is_released() {
    // The driver may list either of the two first.
    for id in ["0", "z"] {
        let mut world = prepared().await;
        world.want(&spec());
        world.event().await.unwrap();
        let owner = Owner::of(&world.api.object().metadata);
        let second = LoadBalancer { id: id.into(), vip: [10, 0, 0, 9].into(), ..world.tree() };
        world.services.insert_marked_load_balancer(&"east".into(), &owner, second);
        assert_eq!(world.balancers.load_balancers(Some(&owner)).await.unwrap().len(), 2);
        world.restart().await;
        world.feed(Event::Added(slice("s1", &["10.1.0.1"]))).await.unwrap();
        world.event().await.unwrap();
        assert_eq!(world.tree().vip, IpAddr::from([10, 0, 0, 1]));
        assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    }
}

#[tokio::test]
async fn every_owner_of_any_resource_is_listed_once() {
    let world = prepared().await;
    world.event().await.unwrap();
    let owners = world.garbage_collector().owners().await.unwrap();
    let identity = Identity::of::<Service>(Some("default".into()), "web".into(), "uid-web".into());
    assert_eq!(owners, [identity]);
}

#[tokio::test]
async fn recovery_fails_if_the_marks_cannot_be_read() {
    let world = prepared().await;
    let outage = DriverError::new(staffetta_driver::Reason::Unavailable, "list");
    world.balancers.faults().inject(LoadBalancerMethod::List, 2, Fault::Fail(outage));
    assert!(world.garbage_collector().recover().await.unwrap_err().transient());
    assert!(world.garbage_collector().owners().await.is_err());
}

#[tokio::test]
async fn a_service_that_was_made_again_while_nobody_looked_is_served_at_once() {
    let mut world = prepared().await;
    world.event().await.unwrap();
    world.api.change(|service| {
        service["metadata"]["uid"] = json!("uid-web-2");
        service["metadata"]["finalizers"] = json!([THEIRS]);
        drop(service["metadata"]["annotations"].as_object_mut().unwrap().remove(STATE_ANNOTATION));
        service["status"]["loadBalancer"] = json!({});
    });
    world.restart().await;
    world.index(&Event::Added(slice("s1", &["10.1.0.1"])).erase());
    world.feed(Event::Added(world.api.object())).await.unwrap();
    let owners = world.garbage_collector().owners().await.unwrap();
    assert_eq!(owners.into_iter().map(|owner| owner.uid).collect::<Vec<_>>(), ["uid-web-2"]);
    assert_eq!((world.members(HTTP).len(), world.services.public_ips().len()), (1, 1));
    // The deletion that garbage collection found meanwhile has nothing left to release.
    let calls = world.calls().len();
    world.missed().await.unwrap();
    assert_eq!(world.calls()[calls..], ["list"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_of_endpoints_that_is_never_answered_ends_the_recovery_with_an_error() {
    let world = world();
    let silent = tower::service_fn(async |_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>().await
    });
    let client = Client::new(silent, "default");
    let handler = LbHandler::new(client, world.drivers(), world.options.clone(), world.recorded.recorder());
    let handler = handler.registration(true).erase();
    let recovery = handler.collector.as_ref().unwrap().recover();
    let error = tokio::time::timeout(Duration::from_secs(120), recovery).await.expect("it ends").unwrap_err();
    assert!(error.transient() && causes(&*error).contains("no answer within 60 s"), "{error}");
}
