//! Calls that fail or whose answers are lost, and what somebody else did beside them.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use staffetta_driver::{LoadBalancer, LoadBalancerDriver, LoadBalancerId, LoadBalancerProgress, Reason};
use staffetta_openstack::OctaviaDefaults;

use super::{listeners, made, numbered, started};
use crate::fake::Fault;
use crate::scenarios::balancers::{HTTP, ListenerCalls, asked, members, patiently, spec, until_not_pending};

#[tokio::test]
async fn a_load_balancer_in_error_is_reported_as_such_and_can_be_released() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    fake.state().octavia.doomed = 1;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(until_not_pending(&driver, &made).await, LoadBalancerProgress::Error);
    let error = driver.set_members(&made, HTTP, &[]).await.unwrap_err();
    assert!(error.reason() == Reason::Refused && error.to_string().contains("state ERROR"), "{error}");
    driver.release_load_balancer(&world.owner("web"), &made.id).await.unwrap();
    assert!(driver.load_balancers(None).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_creation_whose_answer_was_lost_is_found_and_not_made_twice() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    fake.inject(Method::POST, "/v2/lbaas/loadbalancers", Fault::DoneThenClose);
    let lost = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap_err();
    assert!(lost.ambiguous() && lost.transient(), "{lost}");
    let found = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(asked(&found), spec.listeners);
    assert_eq!(fake.state().octavia.balancers.len(), 1);
}

#[tokio::test]
async fn a_batch_whose_answer_was_lost_is_read_again() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = made(&driver, &world, &spec).await;
    // Both attempts: a call that may be made twice is made twice.
    for _ in 0..2 {
        fake.inject(Method::PUT, "/v2/lbaas/pools", Fault::DoneThenClose);
    }
    assert!(driver.set_members(&made, HTTP, &members(&subnet, &[7])).await.unwrap_err().transient());
    let tree = driver.load_balancers(None).await.unwrap().remove(0).resource;
    let stands = tree.listener(HTTP).unwrap().pool.clone().unwrap().members;
    assert_eq!(stands.into_iter().map(|member| member.spec).collect::<Vec<_>>(), members(&subnet, &[7]));
}

#[tokio::test]
async fn members_that_are_set_and_whose_ids_cannot_be_read_may_have_been_set() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = made(&driver, &world, &spec).await;
    fake.inject(Method::GET, "/v2/lbaas/pools", Fault::Html(503));
    let wanted = members(&subnet, &[1, 9]);
    let unsure = driver.set_members(&made, HTTP, &wanted).await.unwrap_err();
    assert!(unsure.ambiguous() && unsure.transient(), "{unsure}");
}

#[tokio::test]
async fn an_octavia_that_is_away_costs_time_only() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    fake.inject(Method::POST, "/v2/lbaas/loadbalancers", Fault::Html(503));
    let away = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap_err();
    assert_eq!((away.reason(), away.transient()), (Reason::Unavailable, true));
    assert!(away.to_string().contains("(request req-of-the-fake)"), "{away}");
    let made = made(&driver, &world, &spec).await;
    driver.set_members(&made, HTTP, &members(&subnet, &[1])).await.unwrap();
    let LoadBalancerProgress::Pending { poll_after } = driver.progress(&made).await.unwrap() else {
        panic!("it is busy")
    };
    tokio::time::sleep(poll_after).await;
    fake.inject(Method::GET, "/v2/lbaas/loadbalancers", Fault::Html(503));
    assert_eq!(driver.progress(&made).await.unwrap_err().reason(), Reason::Unavailable);
    assert_eq!(until_not_pending(&driver, &made).await, LoadBalancerProgress::Active);
}

#[tokio::test]
async fn a_listener_that_is_there_already_is_found() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = made(&driver, &world, &spec).await;
    let unaware = LoadBalancer { listeners: Vec::new(), ..made.clone() };
    let found = driver.ensure_listener(&unaware, &spec.listeners[0]).await.unwrap();
    assert_eq!(found.id, made.listener(HTTP).unwrap().id);
    assert_eq!(fake.state().octavia.listeners.len(), 3);
}

#[tokio::test]
async fn a_busy_load_balancer_that_bears_no_mark_yet_is_waited_for_and_not_called_gone() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, Vec::new()).await;
    fake.state().octavia.stuck = true;
    let mut waiting = Vec::new();
    for number in 0..3 {
        let owner = world.owner(&format!("web-{number}"));
        waiting.push(driver.ensure_load_balancer(&owner, &numbered(&spec, number)).await.unwrap());
    }
    let theirs = json!({ "loadbalancer": { "name": "shop/other", "project_id": world.project,
        "vip_address": "10.1.0.110", "vip_subnet_id": subnet.id } });
    let (_, answer) = world.balance(Method::POST, "loadbalancers", &theirs).await;
    let id: LoadBalancerId = answer["loadbalancer"]["id"].as_str().unwrap().into();
    waiting.push(LoadBalancer { id, ..waiting[0].clone() });
    // Those who come meanwhile are looked at by one list, which lacks the one without a mark.
    tokio::time::sleep(Duration::from_millis(250)).await;
    fake.requests();
    for reported in futures_util::future::join_all(waiting.iter().map(|tree| driver.progress(tree))).await {
        assert!(matches!(reported.unwrap(), LoadBalancerProgress::Pending { .. }));
    }
    let lists = fake.requests().into_iter().filter(|request| request.contains("loadbalancers?")).count();
    assert!((1..=2).contains(&lists), "{lists} lists for four who ask");
}

#[tokio::test]
async fn a_deletion_that_octavia_fails_is_a_failure_and_no_reason_to_hurry() {
    let (fake, world) = crate::fake().await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let options = OctaviaDefaults { own_vip_port: true, ..OctaviaDefaults::default() };
    let driver = world.balancers("east", &options);
    let spec = spec(&world, &driver, &subnet, Vec::new()).await;
    let made = made(&driver, &world, &spec).await;
    fake.state().octavia.doomed = 1;
    let owner = world.owner("web");
    let failed = crate::scenarios::world::within(async {
        loop {
            let error = driver.release_load_balancer(&owner, &made.id).await.unwrap_err();
            match error.retry_after() {
                Some(after) => tokio::time::sleep(after).await,
                None => return error,
            }
        }
    })
    .await;
    assert_eq!((failed.reason(), failed.transient()), (Reason::Unavailable, true));
    assert!(failed.to_string().contains("could not be deleted; it is in the state ERROR"), "{failed}");
    assert!(!world.port(made.port.as_str()).await.is_null(), "it is Octavia's as long as that stands");
    patiently(async || driver.release_load_balancer(&owner, &made.id).await).await;
    assert!(world.port(made.port.as_str()).await.is_null());
}

#[tokio::test]
async fn a_load_balancer_whose_tags_somebody_took_off_gets_them_back_and_is_found() {
    for own_vip_port in [false, true] {
        let (fake, world) = crate::fake().await;
        let subnet = world.subnet("10.1.0.0/24").await;
        let options = OctaviaDefaults { own_vip_port, ..OctaviaDefaults::default() };
        let driver = world.balancers("east", &options);
        let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
        let made = made(&driver, &world, &spec).await;
        fake.state().octavia.balancers.get_mut(made.id.as_str()).unwrap()["tags"] = json!(["theirs"]);
        let found = driver.load_balancers(None).await.unwrap();
        assert!(found.iter().all(|marked| marked.resource.is_port_alone()), "lists go by tags: {found:?}");
        let taken = driver.ensure_load_balancer(&world.owner("other"), &spec).await.unwrap_err();
        assert_eq!((taken.reason(), taken.retry_after()), (Reason::Conflict, None), "it is another's");
        let again = patiently(async || driver.ensure_load_balancer(&world.owner("web"), &spec).await).await;
        assert_eq!((&again.id, asked(&again)), (&made.id, spec.listeners));
        let tags = fake.state().octavia.balancers[made.id.as_str()]["tags"].clone();
        let tags: Vec<String> = serde_json::from_value(tags).unwrap();
        assert!(tags.len() == 3 && tags.contains(&"theirs".to_owned()), "{tags:?}");
        let found = driver.load_balancers(None).await.unwrap();
        assert_eq!((found.len(), &found[0].resource.id), (1, &made.id));
    }
}

#[tokio::test]
async fn a_port_of_ours_that_was_made_before_ports_could_be_tagged_is_found_afterwards() {
    let (fake, world) = crate::fake().await;
    fake.state().extensions.remove("tag-ports-during-bulk-creation");
    let subnet = world.subnet("10.1.0.0/24").await;
    let options = OctaviaDefaults { own_vip_port: true, ..OctaviaDefaults::default() };
    let before = world.balancers("east", &options);
    let spec = spec(&world, &before, &subnet, Vec::new()).await;
    world.allow_balancers(0).await;
    let error = before.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap_err();
    assert_eq!(error.reason(), Reason::Quota, "{error}");
    world.allow_balancers(-1).await;
    fake.state().extensions.insert("tag-ports-during-bulk-creation");
    crate::an_hour_passes().await;
    let driver = world.balancers("east", &options);
    let left = driver.load_balancers(None).await.unwrap().remove(0).resource;
    assert!(left.is_port_alone());
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(made.port, left.port);
}

#[tokio::test]
async fn for_whom_there_is_no_port_of_ours_any_more_none_is_looked_for() {
    let (fake, world) = crate::fake().await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let options = OctaviaDefaults { own_vip_port: true, ..OctaviaDefaults::default() };
    let driver = world.balancers("east", &options);
    driver.load_balancers(None).await.unwrap();
    let spec = spec(&world, &driver, &subnet, Vec::new()).await;
    let looks = async |name: &str| {
        fake.requests();
        driver.load_balancers(Some(&world.owner(name))).await.unwrap();
        fake.requests().iter().filter(|request| request.starts_with("GET ports")).count()
    };
    for (number, name) in [(0, "released"), (1, "vanished"), (2, "stays")] {
        let made = driver.ensure_load_balancer(&world.owner(name), &numbered(&spec, number)).await.unwrap();
        until_not_pending(&driver, &made).await;
        assert_eq!(looks(name).await, 1, "{name}");
        match name {
            "released" => {
                patiently(async || driver.release_load_balancer(&world.owner(name), &made.id).await).await;
            }
            "vanished" => {
                fake.state().octavia.remove(made.id.as_str());
                world.remove(&format!("ports/{}", made.port)).await;
            }
            _ => {}
        }
    }
    assert_eq!((looks("released").await, looks("vanished").await), (0, 1));
    driver.load_balancers(None).await.unwrap();
    assert_eq!((looks("vanished").await, looks("stays").await), (0, 1));
}

#[tokio::test]
async fn a_load_balancer_that_was_busy_with_its_end_is_released() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let made = made(&driver, &world, &spec(&world, &driver, &subnet, Vec::new()).await).await;
    fake.state().octavia.balancers.clear();
    let busy = Fault::Refuse(409, "Load Balancer is immutable and cannot be updated.");
    fake.inject(Method::DELETE, "/v2/lbaas/loadbalancers", busy);
    driver.release_load_balancer(&world.owner("web"), &made.id).await.unwrap();
    assert_eq!(driver.load_balancers(None).await.unwrap(), []);
}
