use serde_json::Value;
use staffetta_driver::{Allocation, DriverError, PublicIpRequest, Reason};
use staffetta_memory::Fault;

use super::*;

/// Returns the calls of the public address driver without details.
fn calls(world: &World) -> Vec<&'static str> {
    let name = |call| match call {
        PublicIpCall::List(_) => "list",
        PublicIpCall::Acquire(_) => "acquire",
        PublicIpCall::Associate(..) => "associate",
        PublicIpCall::Disassociate(..) => "disassociate",
        PublicIpCall::Release(..) => "release",
    };
    world.addresses.calls().into_iter().map(name).collect()
}

async fn balanced(spec: &LbaasServiceSpec) -> World {
    let world = world();
    world.want(spec);
    world.event().await.unwrap();
    world.event().await.unwrap();
    world
}

#[tokio::test]
async fn a_service_of_type_load_balancer_has_its_public_address_after_two_writes() {
    let world = balanced(&public()).await;
    let held = world.services.public_ips().remove(0).1;
    assert_eq!(held.port, Some(world.tree().port));
    assert_eq!(world.shown().unwrap().public_ip, Some(held.clone()));
    assert_eq!(world.ingress(), [held.ip]);
    let written: Vec<_> = world.api.patches().into_iter().map(|(what, _)| what).collect();
    assert_eq!(written, ["metadata", "status"]);
    assert_eq!(calls(&world), ["acquire", "associate"]);
}

#[tokio::test]
async fn a_status_that_the_server_completed_is_not_rewritten() {
    let world = balanced(&public()).await;
    world.api.change(|service| service["status"]["loadBalancer"]["ingress"][0]["ipMode"] = json!("VIP"));
    world.event().await.unwrap();
    assert_eq!(world.api.patches().len(), 2);
}

#[tokio::test]
async fn a_service_of_another_type_releases_and_unpublishes_its_public_address() {
    let world = balanced(&public()).await;
    world.want(&spec());
    world.event().await.unwrap();
    assert_eq!(calls(&world)[2..], ["disassociate", "release"]);
    assert!(world.services.public_ips().is_empty());
    assert_eq!(world.ingress(), [] as [IpAddr; 0]);
    assert_eq!(world.shown().unwrap().public_ip, None);
    assert_eq!(world.services.load_balancers().len(), 1);
}

#[tokio::test]
async fn an_address_whose_annotation_or_finalizer_was_lost_leaves_the_status_of_a_service_of_another_type() {
    let lost: [fn(&mut Value); 2] = [
        |metadata| drop(metadata["annotations"].as_object_mut().unwrap().remove(STATE_ANNOTATION)),
        |metadata| metadata["finalizers"] = json!([]),
    ];
    for lose in lost {
        let mut world = balanced(&public()).await;
        world.want(&spec());
        world.api.change(|service| lose(&mut service["metadata"]));
        world.restart().await;
        world.event().await.unwrap();
        assert!(world.services.public_ips().is_empty());
        assert_eq!(world.ingress(), [] as [IpAddr; 0]);
    }
}

#[tokio::test]
async fn a_type_that_changes_while_the_address_is_published_is_no_failure() {
    let world = world();
    world.want(&public());
    let private = spec();
    world.api.change_before_next(move |service| {
        service["spec"]["type"] = json!("ClusterIP");
        service["metadata"]["annotations"][SPEC_ANNOTATION] = json!(private.to_text());
    });
    let error = world.event().await.unwrap_err();
    assert!(error.transient() && error.pending().is_some(), "the event of the change follows: {error}");
    world.event().await.unwrap();
    assert_eq!((world.services.public_ips().len(), world.ingress().len()), (0, 0));
}

#[tokio::test]
async fn the_address_is_removed_from_the_status_even_if_the_first_write_fails() {
    let world = balanced(&public()).await;
    world.want(&spec());
    world.api.answer(Answer::Refuse(503, vec![]));
    assert!(world.event().await.unwrap_err().transient());
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.ingress(), [] as [IpAddr; 0]);
}

#[tokio::test]
async fn a_status_that_could_not_be_written_is_written_later() {
    let world = world();
    world.want(&public());
    world.event().await.unwrap();
    world.api.change(|service| service["status"]["loadBalancer"] = json!({}));
    world.event().await.unwrap();
    assert_eq!(world.ingress().len(), 1);
}

#[tokio::test]
async fn addresses_of_others_in_the_status_stay() {
    let world = world();
    world
        .api
        .change(|service| service["status"]["loadBalancer"]["ingress"] = json!([{ "ip": "198.51.100.1" }]));
    world.event().await.unwrap();
    world.event().await.unwrap();
    world.want_nothing();
    world.event().await.unwrap();
    assert_eq!(world.ingress(), [IpAddr::from([198, 51, 100, 1])]);
}

#[tokio::test]
async fn a_user_provided_address_is_associated_and_disassociated_and_never_released() {
    let world = world();
    let ip = IpAddr::from([192, 0, 2, 1]);
    let named = LbaasServiceSpec { lb_ip: Some(ip), ..public() };
    world.want(&named);
    let missing = world.event().await.unwrap_err();
    assert!(!missing.transient(), "there is no such address");
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));

    world.services.insert_public_ip(ip);
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.ingress(), [ip]);
    assert_eq!(world.shown().unwrap().public_ip.unwrap().allocation, Allocation::User);

    world.want(&public());
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_ne!(world.ingress(), [ip]);
    let users = world.services.public_ips().into_iter().find(|(_, held)| held.ip == ip).unwrap().1;
    assert_eq!(users.port, None);

    world.want(&named);
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(
        (world.ingress(), world.services.public_ips().len()),
        (vec![ip], 1),
        "the pooled one was released"
    );
    world.delete();
    world.event().await.unwrap();
    let left = world.services.public_ips();
    assert_eq!((left.len(), left[0].1.port.clone()), (1, None));
}

#[tokio::test]
async fn a_new_cluster_ip_keeps_the_public_address_which_is_not_associated_meanwhile() {
    let world = balanced(&public()).await;
    let ip = world.ingress();
    world.want(&LbaasServiceSpec { ip: [10, 0, 0, 2].into(), ..public() });
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(calls(&world)[2..], ["disassociate", "associate"]);
    assert_eq!(world.ingress(), ip);
    assert_eq!(world.services.public_ips()[0].1.port, Some(world.tree().port));
}

#[tokio::test(start_paused = true)]
async fn without_a_free_address_the_load_balancer_is_complete_and_the_address_follows() {
    let public_ips = "203.0.113.0/30".parse().unwrap();
    let options =
        MemoryOptions { load_balancer_delay_ms: 0, cool_down_ms: 0, public_ips, ..MemoryOptions::default() };
    let world = World::new(options);
    let other = Owner { namespace: "default".into(), name: "other".into(), uid: "other".into() };
    let request =
        PublicIpRequest { project: "memory".into(), named: None, port: "other".into(), adopt: None };
    let only = world.drivers().public_ip.acquire(&other, &request).await.unwrap();
    world.want(&public());
    world.slice("s1", &["10.1.0.1"]).await.unwrap();
    let error = world.event().await.unwrap_err();
    assert!(error.transient());
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));
    assert!(world.finalizers().contains(&FINALIZER.to_owned()));
    assert_eq!(world.ingress(), [] as [IpAddr; 0]);

    world.event().await.unwrap_err();
    assert_eq!(world.api.patches().len(), 1, "the annotation is not written again");
    world.drivers().public_ip.release(&other, &only).await.unwrap();
    world.event().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.ingress(), [only.ip]);
}

#[tokio::test]
async fn a_deletion_midway_releases_the_unpublished_address() {
    let world = world();
    world.want(&public());
    let broken = Fault::Fail(DriverError::new(Reason::Unavailable, "associate"));
    world.addresses.faults().inject(staffetta_memory::PublicIpMethod::Associate, 1, broken);
    world.event().await.unwrap_err();
    assert_eq!((world.services.public_ips().len(), world.shown().unwrap().public_ip), (1, None));
    world.delete();
    world.event().await.unwrap();
    assert!(world.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_user_provided_address_that_is_no_longer_named_is_disassociated() {
    let world = world();
    let ip = IpAddr::from([192, 0, 2, 1]);
    world.services.insert_public_ip(ip);
    world.want(&LbaasServiceSpec { lb_ip: Some(ip), ..public() });
    world.addresses.faults().inject(staffetta_memory::PublicIpMethod::Associate, 1, Fault::DoneThenHang);
    assert!(tokio::time::timeout(Duration::from_secs(1), world.event()).await.is_err());
    assert!(world.services.public_ips()[0].1.port.is_some());
    world.want(&spec());
    world.event().await.unwrap();
    assert_eq!(world.services.public_ips()[0].1.port, None);
}

#[tokio::test]
async fn a_failed_release_of_the_address_does_not_block_the_members_nor_a_refused_listener_the_release() {
    let ports = |second| vec![port("http", 80), port("http", second)];
    let world = balanced(&LbaasServiceSpec { ports: ports(81), ..public() }).await;
    world.want(&LbaasServiceSpec { ports: ports(443), ..spec() });
    world.index(&Event::Modified(slice("s1", &["10.1.0.2"])).erase());
    let fail = |reason| Fault::Fail(DriverError::new(reason, "ask"));
    let broken = fail(Reason::Unavailable);
    world.addresses.faults().inject(staffetta_memory::PublicIpMethod::Disassociate, 1, broken);
    assert!(world.event().await.unwrap_err().transient());
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
    assert_eq!(world.tree().listeners.len(), 1, "the surplus one was released");
    assert_eq!(world.shown().unwrap().load_balancer, Some(world.tree()));

    world.balancers.faults().inject(LoadBalancerMethod::EnsureListener, 1, fail(Reason::Quota));
    assert_eq!(world.event().await.unwrap_err().reason(), "QuotaExceeded");
    assert!(world.services.public_ips().is_empty());
}

#[tokio::test]
async fn the_address_of_a_service_that_is_no_longer_public_is_released_although_its_members_cannot_be_changed()
 {
    let world = balanced(&public()).await;
    world.want(&spec());
    world.index(&Event::Modified(slice("s1", &["10.1.0.2"])).erase());
    let refused = Fault::Fail(DriverError::new(Reason::Quota, "ask"));
    world.balancers.faults().inject(LoadBalancerMethod::SetMembers, 1, refused);
    assert_eq!(world.event().await.unwrap_err().reason(), "QuotaExceeded");
    assert!(world.services.public_ips().is_empty() && world.members(HTTP).is_empty());
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), ["10.1.0.2:8080"]);
}

#[tokio::test]
async fn a_restricted_service_is_not_opened_while_it_has_its_public_address() {
    let world = world();
    world.api.change(|service| service["spec"]["loadBalancerSourceRanges"] = json!(["192.0.2.0/24"]));
    world.want(&public());
    world.event().await.unwrap();
    world.event().await.unwrap();
    let ranges = || world.tree().listeners[0].settings.allowed_cidrs.len();
    assert_eq!((ranges(), world.ingress().len()), (1, 1));
    world.want(&spec());
    let broken = Fault::Fail(DriverError::new(Reason::Unavailable, "disassociate"));
    world.addresses.faults().inject(staffetta_memory::PublicIpMethod::Disassociate, 1, broken);
    assert!(world.event().await.unwrap_err().transient());
    assert_eq!((ranges(), world.services.public_ips().len()), (1, 1));
    world.event().await.unwrap();
    assert_eq!((ranges(), world.services.public_ips().len()), (0, 0));
}

#[tokio::test]
async fn after_a_lost_answer_about_members_the_marks_are_read_although_the_address_was_released() {
    let world = balanced(&public()).await;
    world.want(&spec());
    world.index(&Event::Modified(slice("s1", &["10.1.0.2"])).erase());
    let lost = Fault::DoneThenFail(DriverError::new(Reason::Unavailable, "set members"));
    world.balancers.faults().inject(LoadBalancerMethod::SetMembers, 1, lost);
    assert!(world.event().await.unwrap_err().transient());
    assert!(world.services.public_ips().is_empty() && world.members(HTTP) == ["10.1.0.2:8080"]);
    world.index(&Event::Modified(slice("s1", &[])).erase());
    world.event().await.unwrap();
    assert_eq!(world.members(HTTP), [""; 0]);
}
