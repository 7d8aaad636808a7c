//! Octavia: which calls are made, and what only one does that can be told to fail.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{
    Algorithm, HealthMonitor, ListenerPort, ListenerSpec, LoadBalancer, LoadBalancerDriver, LoadBalancerId,
    LoadBalancerSpec, MemberSpec, NAMESPACE_NETWORK, Progress, Protocol, Provisioning, Reason,
    SessionPersistence, Subnet,
};
use staffetta_openstack::{LbAlgorithm, LbaasV2Driver, MemberMode, OctaviaDefaults};
use tokio::sync::mpsc;

use crate::PROJECT;
use crate::fake::{Fake, Fault};
use crate::scenarios::balancers::{HTTP, asked, listener, members, patiently, settled, spec};
use crate::scenarios::world::World;

const SCTP: ListenerPort = ListenerPort { protocol: Protocol::Sctp, port: 9000 };

/// A cluster that has looked at what stands, as each does at its start.
async fn started(fake: &Fake, world: &World) -> (LbaasV2Driver, Subnet) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    assert!(driver.load_balancers(None).await.unwrap().is_empty());
    fake.requests();
    (driver, subnet)
}

/// The spec of the service of that number.
fn numbered(spec: &LoadBalancerSpec, number: u8) -> LoadBalancerSpec {
    LoadBalancerSpec { vip: [10, 1, 0, 100 + number].into(), ..spec.clone() }
}

/// The requests to Octavia so far, without what they ask for.
fn asked_of_octavia(fake: &Fake) -> Vec<String> {
    let requests = fake.requests().into_iter().filter_map(|request| {
        let (method, path) = request.split_once(" /v2/lbaas/")?;
        let path = path.split(['?', '/']).collect::<Vec<_>>();
        let last = path.iter().rev().find(|part| ["members", "status"].contains(part));
        Some(format!("{method} {}{}", path[0], last.map(|last| format!("/{last}")).unwrap_or_default()))
    });
    requests.collect()
}

async fn made(driver: &LbaasV2Driver, world: &World, spec: &LoadBalancerSpec) -> LoadBalancer {
    let made = driver.ensure_load_balancer(&world.owner("web"), spec).await.unwrap();
    assert_eq!(settled(driver, &made).await, Progress::Active);
    made
}

fn listeners(subnet: &Subnet) -> Vec<ListenerSpec> {
    let at = |port| ListenerPort { port, ..HTTP };
    (80..83).map(|port| listener(at(port), members(subnet, &[1, 2, 3]))).collect()
}

#[tokio::test]
async fn a_load_balancer_costs_one_call_and_a_change_of_its_members_one_and_a_look_at_new_ids() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(asked_of_octavia(&fake), ["POST loadbalancers"]);
    settled(&driver, &made).await;
    fake.requests();
    let pool = made.listeners[0].pool.clone().unwrap();
    let fewer = driver.set_members(&made, &pool.id, &members(&subnet, &[1, 2])).await.unwrap();
    assert_eq!((asked_of_octavia(&fake), fewer.len()), (vec!["PUT pools/members".to_owned()], 2));
    let wanted = members(&subnet, &[1, 4]);
    patiently(async || driver.set_members(&made, &pool.id, &wanted).await).await;
    let asked = asked_of_octavia(&fake);
    assert_eq!(asked.iter().filter(|call| *call == "PUT pools/members").count(), 1, "{asked:?}");
}

#[tokio::test]
async fn whole_trees_are_read_by_one_list_a_kind_whatever_their_number() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    for number in 0..5 {
        let owner = world.owner(&format!("web-{number}"));
        driver.ensure_load_balancer(&owner, &numbered(&spec, number)).await.unwrap();
    }
    fake.requests();
    for _ in 0..2 {
        let trees = driver.load_balancers(None).await.unwrap();
        assert!(trees.len() == 5 && trees.iter().all(|tree| asked(&tree.thing) == spec.listeners));
        let mut calls = asked_of_octavia(&fake);
        calls.sort();
        assert_eq!(calls, ["GET listeners", "GET loadbalancers", "GET pools"]);
    }
    // Another process reads the members of each load balancer once.
    let other = world.balancers("east", &OctaviaDefaults::default());
    for statuses in [5, 0] {
        assert_eq!(other.load_balancers(None).await.unwrap().len(), 5);
        let calls = asked_of_octavia(&fake);
        assert_eq!(
            calls.iter().filter(|call| *call == "GET loadbalancers/status").count(),
            statuses,
            "{calls:?}"
        );
    }
    fake.state().page = Some(2);
    let trees = driver.load_balancers(None).await.unwrap();
    assert!(trees.len() == 5 && trees.iter().all(|tree| asked(&tree.thing) == spec.listeners));
}

#[tokio::test]
async fn many_that_wait_share_their_looks() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    fake.state().octavia.delay = Duration::from_secs(2);
    let spec = spec(&world, &driver, &subnet, Vec::new()).await;
    let mut waiting = Vec::new();
    for number in 0..40 {
        let owner = world.owner(&format!("web-{number}"));
        waiting.push(driver.ensure_load_balancer(&owner, &numbered(&spec, number)).await.unwrap());
    }
    fake.requests();
    for end in futures_util::future::join_all(waiting.iter().map(|made| settled(&driver, made))).await {
        assert_eq!(end, Progress::Active);
    }
    let looks = asked_of_octavia(&fake).len();
    // Who waits for a look that is under way needs none of its own.
    assert!(looks <= 8, "{looks} looks at 40 load balancers");
}

#[tokio::test]
async fn a_project_has_four_made_at_a_time_and_who_waits_for_a_turn_gets_it_whatever_became_of_another() {
    const LOAD_BALANCERS: &str = "/v2/lbaas/loadbalancers";
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, Vec::new()).await;
    let driver = Arc::new(driver);
    let ensure = |number: u8| {
        let (driver, owner) = (Arc::clone(&driver), world.owner(&format!("web-{number}")));
        let spec = numbered(&spec, number);
        async move { driver.ensure_load_balancer(&owner, &spec).await }
    };
    let (sender, mut held) = mpsc::unbounded_channel();
    let (mut under_way, mut holds) = (Vec::new(), Vec::new());
    for number in 0..4 {
        fake.inject(Method::POST, LOAD_BALANCERS, Fault::Hold(sender.clone()));
        under_way.push(tokio::spawn(ensure(number)));
        holds.push(held.recv().await.unwrap());
    }
    fake.requests();
    let queued = ensure(4).await.unwrap_err();
    assert_eq!((queued.reason(), queued.transient(), queued.ambiguous()), (Reason::Queued, true, false));
    assert!(queued.retry_after().is_some() && queued.to_string().contains(PROJECT), "{queued}");
    assert_eq!(asked_of_octavia(&fake), [""; 0], "Octavia is not asked");
    let elsewhere = LoadBalancerSpec { project: "elsewhere".into(), ..numbered(&spec, 5) };
    driver.ensure_load_balancer(&world.owner("elsewhere"), &elsewhere).await.unwrap();

    // One whose caller gives up leaves its turn to the next, and so does one that is refused.
    let aborted = under_way.remove(0);
    aborted.abort();
    assert!(aborted.await.unwrap_err().is_cancelled());
    fake.inject(Method::POST, LOAD_BALANCERS, Fault::Refuse(400, "It is not to be."));
    assert_eq!(ensure(6).await.unwrap_err().reason(), Reason::Refused);
    ensure(4).await.unwrap();
    drop(holds);
    for made in under_way {
        made.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_is_stuck_is_asked_about_ever_more_seldom_and_gets_no_change() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = made(&driver, &world, &spec).await;
    let pool = made.listeners[0].pool.clone().unwrap();
    fake.state().octavia.stuck = true;
    driver.set_members(&made, &pool.id, &members(&subnet, &[1])).await.unwrap();
    fake.requests();
    for number in 0..100 {
        let wanted = members(&subnet, &[number + 1]);
        let busy = driver.set_members(&made, &pool.id, &wanted).await.unwrap_err();
        assert_eq!((busy.reason(), busy.retry_after().is_some()), (Reason::Conflict, true));
    }
    let calls = asked_of_octavia(&fake);
    assert!(!calls.contains(&"PUT pools/members".to_owned()) && calls.len() <= 3, "{calls:?}");
    assert!(matches!(driver.progress(&made).await.unwrap(), Progress::Pending { .. }));
}

#[tokio::test]
async fn a_load_balancer_in_error_is_told_as_such_and_can_be_released() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    fake.state().octavia.doomed = 1;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(settled(&driver, &made).await, Progress::Error);
    let pool = made.listeners[0].pool.clone().unwrap();
    let error = driver.set_members(&made, &pool.id, &[]).await.unwrap_err();
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
    let pool = made.listeners[0].pool.clone().unwrap();
    // Both attempts: a call that may be made twice is made twice.
    for _ in 0..2 {
        fake.inject(Method::PUT, "/v2/lbaas/pools", Fault::DoneThenClose);
    }
    assert!(driver.set_members(&made, &pool.id, &members(&subnet, &[7])).await.unwrap_err().transient());
    let tree = driver.load_balancers(None).await.unwrap().remove(0).thing;
    let stands = tree.listener(HTTP).unwrap().pool.clone().unwrap().members;
    assert_eq!(stands.into_iter().map(|member| member.spec).collect::<Vec<_>>(), members(&subnet, &[7]));
}

#[tokio::test]
async fn an_exchange_of_members_is_one_batch_and_what_goes_is_no_member_any_more() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = made(&driver, &world, &spec).await;
    fake.state().octavia.delay = Duration::from_secs(600);
    let pool = made.listeners[0].pool.clone().unwrap();
    let wanted = members(&subnet, &[1, 2, 4]);
    let set = driver.set_members(&made, &pool.id, &wanted).await.unwrap();
    assert_eq!(set.into_iter().map(|member| member.spec).collect::<Vec<_>>(), wanted);
    // Octavia tells of the one that goes until the change is done, and so it does to a process that knows nothing.
    for driver in [&driver, &world.balancers("east", &OctaviaDefaults::default())] {
        let tree = driver.load_balancers(None).await.unwrap().remove(0).thing;
        assert_eq!(tree.status, Provisioning::Pending);
        assert_eq!(asked(&tree)[0].pool.members, wanted);
    }
}

#[tokio::test]
async fn members_that_are_set_and_whose_ids_cannot_be_read_may_have_been_set() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = made(&driver, &world, &spec).await;
    let pool = made.listeners[0].pool.clone().unwrap();
    fake.inject(Method::GET, "/v2/lbaas/pools", Fault::Html(503));
    let wanted = members(&subnet, &[1, 9]);
    let unsure = driver.set_members(&made, &pool.id, &wanted).await.unwrap_err();
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
    let pool = made.listeners[0].pool.clone().unwrap();
    driver.set_members(&made, &pool.id, &members(&subnet, &[1])).await.unwrap();
    let Progress::Pending { ask_again } = driver.progress(&made).await.unwrap() else { panic!("it is busy") };
    tokio::time::sleep(ask_again).await;
    fake.inject(Method::GET, "/v2/lbaas/loadbalancers", Fault::Html(503));
    assert_eq!(driver.progress(&made).await.unwrap_err().reason(), Reason::Unavailable);
    assert_eq!(settled(&driver, &made).await, Progress::Active);
}

#[tokio::test]
async fn what_a_provider_lacks_is_refused_by_itself_and_the_rest_is_served() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    fake.state().lacks_sctp = true;
    let wanted = vec![listener(HTTP, Vec::new()), listener(SCTP, Vec::new())];
    let spec = spec(&world, &driver, &subnet, wanted).await;
    let made = made(&driver, &world, &spec).await;
    assert_eq!(made.listeners, []);
    let refused = driver.ensure_listener(&made, &spec.listeners[1]).await.unwrap_err();
    assert_eq!(refused.reason(), Reason::Unsupported, "{refused}");
    assert_eq!(driver.ensure_listener(&made, &spec.listeners[0]).await.unwrap().at, HTTP);
}

#[tokio::test]
async fn an_old_octavia_has_neither_tags_nor_sctp_and_serves_all_the_same() {
    let (fake, world) = crate::fake().await;
    fake.state().octavia.version = 0;
    let (driver, subnet) = started(&fake, &world).await;
    let wanted = LoadBalancerSpec {
        name: "shop/web".into(),
        project: world.project.clone(),
        subnet: subnet.id.clone(),
        vip: [10, 1, 0, 100].into(),
        provider: None,
        security_groups: None,
        listeners: vec![listener(HTTP, members(&subnet, &[1])), listener(SCTP, Vec::new())],
        adopt: None,
    };
    let feasible = driver.feasible(wanted).await.unwrap();
    assert_eq!(feasible.without, ["SCTP:9000"]);
    let made = made(&driver, &world, &feasible.spec).await;
    assert!(
        fake.state().octavia.balancers.values().all(|balancer| balancer["tags"] == serde_json::json!([]))
    );
    let other = world.balancers("east", &OctaviaDefaults::default());
    let found = other.load_balancers(Some(&world.owner("web"))).await.unwrap();
    assert_eq!((found.len(), &found[0].thing.id), (1, &made.id));
    assert!(
        world.balancers("west", &OctaviaDefaults::default()).load_balancers(None).await.unwrap().is_empty()
    );
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
async fn what_ovn_has_is_served_and_what_it_lacks_is_left_out_and_not_asked_for() {
    let (_fake, world) = crate::fake().await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers_by("east", &OctaviaDefaults::default(), Some("ovn"));
    let monitor = HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 };
    let mut wanted = vec![listener(HTTP, members(&subnet, &[1])), listener(SCTP, members(&subnet, &[2]))];
    wanted[0].settings.allowed_cidrs = vec!["192.0.2.0/24".parse().unwrap()];
    wanted[0].pool.settings.persistence = Some(SessionPersistence { timeout_s: None });
    for listener in &mut wanted {
        listener.pool.settings.monitor = Some(monitor);
    }
    let bare = spec(&world, &driver, &subnet, Vec::new()).await;
    let feasible = driver.feasible(LoadBalancerSpec { listeners: wanted, ..bare }).await.unwrap();
    assert_eq!(feasible.without, ["loadBalancerSourceRanges of TCP:80", "session affinity of TCP:80"]);
    let made = made(&driver, &world, &feasible.spec).await;
    assert_eq!((made.provider.as_deref(), asked(&made)), (Some("ovn"), feasible.spec.listeners.clone()));
    let pool = |at| made.listener(at).unwrap().pool.clone().unwrap();
    assert_eq!(pool(HTTP).settings.algorithm, Some(Algorithm::SourceIpPort));
    assert_eq!((pool(HTTP).settings.monitor, pool(SCTP).settings.monitor), (Some(monitor), None));
    let set = driver.set_members(&made, &pool(SCTP).id, &members(&subnet, &[3])).await.unwrap();
    assert_eq!(set.into_iter().map(|member| member.spec).collect::<Vec<_>>(), members(&subnet, &[3]));
}

#[tokio::test]
async fn sctp_is_served_with_its_own_kind_of_monitor() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let mut sctp = listener(SCTP, members(&subnet, &[1]));
    sctp.pool.settings.monitor = Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 });
    let spec = spec(&world, &driver, &subnet, vec![sctp]).await;
    assert_eq!(asked(&made(&driver, &world, &spec).await), spec.listeners);
    let found = driver.load_balancers(None).await.unwrap().remove(0).thing;
    assert_eq!(asked(&found), spec.listeners);
    let state = fake.state();
    let told = |things: &std::collections::BTreeMap<String, Value>, name: &str| {
        things.values().map(|thing| thing[name].clone()).collect::<Vec<_>>()
    };
    assert_eq!(told(&state.octavia.listeners, "protocol"), ["SCTP"]);
    assert_eq!(told(&state.octavia.monitors, "type"), ["SCTP"]);
}

#[tokio::test]
async fn the_options_are_what_octavia_is_asked_for_where_a_service_leaves_it_open() {
    let (fake, world) = crate::fake().await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let options = OctaviaDefaults {
        lb_algorithm: LbAlgorithm::LeastConnections,
        timeout_client_data: 7_000,
        timeout_member_data: 8_000,
        enforce_sg_rules: false,
        ..OctaviaDefaults::default()
    };
    let driver = world.balancers("east", &options);
    let mut wanted = vec![listener(HTTP, Vec::new()), listener(SCTP, Vec::new())];
    wanted[1].settings.client_timeout_ms = Some(9_000);
    let plain = spec(&world, &driver, &subnet, wanted).await;
    let guarded = LoadBalancerSpec { security_groups: Some(vec!["g".into()]), ..plain };
    let guarded = driver.feasible(guarded).await.unwrap();
    assert_eq!(guarded.without, [""; 0], "nobody misses what is not to be");
    made(&driver, &world, &guarded.spec).await;
    let state = fake.state();
    assert!(state.octavia.balancers.values().all(|balancer| balancer["vip_sg_ids"] == json!([])));
    assert!(state.octavia.pools.values().all(|pool| pool["lb_algorithm"] == "LEAST_CONNECTIONS"));
    let timeouts = |at: ListenerPort| {
        let mut found = state.octavia.listeners.values();
        let found = found.find(|listener| listener["protocol_port"] == at.port).unwrap();
        (found["timeout_client_data"].as_u64(), found["timeout_member_data"].as_u64())
    };
    assert_eq!(timeouts(HTTP), (Some(7_000), Some(8_000)));
    assert_eq!(timeouts(SCTP), (Some(9_000), Some(8_000)));
}

/// A driver that reaches members through their own subnets, and knows that of the namespace `shop`.
fn beside_pods(world: &World, pods: &Subnet) -> LbaasV2Driver {
    let options = OctaviaDefaults { member_mode: MemberMode::L2, ..OctaviaDefaults::default() };
    let driver = world.balancers("east", &options);
    let network = json!({ "network": pods.network.id, "subnet": pods.id }).to_string();
    let namespace =
        json!({ "metadata": { "name": "shop", "uid": "u", "annotations": { NAMESPACE_NETWORK: network } } });
    let namespace: Namespace = serde_json::from_value(namespace).unwrap();
    driver.namespaces().expect("it wants to know namespaces").present(&namespace);
    driver
}

#[tokio::test]
async fn in_mode_l2_members_are_reached_through_the_subnet_of_their_namespace() {
    let (fake, world) = crate::fake().await;
    let (services, pods) = (world.subnet("10.1.0.0/24").await, world.subnet("10.2.0.0/24").await);
    let driver = beside_pods(&world, &pods);
    let inside = MemberSpec { ip: [10, 2, 0, 7].into(), ..members(&services, &[1]).remove(0) };
    let outside = MemberSpec { ip: [192, 0, 2, 7].into(), ..inside.clone() };
    let wanted = vec![listener(HTTP, vec![inside, outside])];
    let spec = spec(&world, &driver, &services, wanted).await;
    let subnets = |balancer: &LoadBalancer| {
        let members = asked(balancer).remove(0).pool.members.into_iter();
        members.map(|member| (member.ip.to_string(), member.subnet)).collect::<Vec<_>>()
    };
    let expected = [("10.2.0.7".to_owned(), pods.id.clone()), ("192.0.2.7".to_owned(), services.id.clone())];
    let made = made(&driver, &world, &spec).await;
    assert_eq!(subnets(&made), expected);
    fake.requests();
    // A process that knows nothing reads the subnets too.
    let other = beside_pods(&world, &pods);
    assert_eq!(subnets(&other.load_balancers(None).await.unwrap().remove(0).thing), expected);
    assert!(asked_of_octavia(&fake).contains(&"GET pools/members".to_owned()));
    let plain = world.balancers("east", &OctaviaDefaults::default());
    assert!(plain.namespaces().is_none(), "nobody watches namespaces for nothing");
}

#[tokio::test]
async fn members_that_are_to_be_reached_through_another_subnet_are_seen_and_made_anew() {
    let (fake, world) = crate::fake().await;
    let (services, pods) = (world.subnet("10.1.0.0/24").await, world.subnet("10.2.0.0/24").await);
    let before = world.balancers("east", &OctaviaDefaults::default());
    let member = MemberSpec { ip: [10, 2, 0, 7].into(), ..members(&services, &[1]).remove(0) };
    let routed = spec(&world, &before, &services, vec![listener(HTTP, vec![member])]).await;
    made(&before, &world, &routed).await;
    let driver = beside_pods(&world, &pods);
    let wanted = driver.feasible(routed.clone()).await.unwrap().spec.listeners.remove(0).pool.members;
    assert_eq!(wanted[0].subnet, pods.id);
    let mut stands = driver.load_balancers(None).await.unwrap().remove(0).thing;
    assert_eq!(asked(&stands), routed.listeners, "they are still reached by the router");
    let pool = stands.listeners[0].pool.clone().unwrap().id;
    for left in [&[][..], &wanted] {
        let set = patiently(async || driver.set_members(&stands, &pool, &wanted).await).await;
        assert_eq!(set.iter().map(|member| member.spec.clone()).collect::<Vec<_>>(), left);
        settled(&driver, &stands).await;
        stands.listeners[0].pool.as_mut().unwrap().members = set;
    }
    let kept = fake.state().octavia.pools[pool.as_str()]["members"].clone();
    assert_eq!((kept.as_array().unwrap().len(), &kept[0]["subnet_id"]), (1, &json!(pods.id)));
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
    for told in futures_util::future::join_all(waiting.iter().map(|tree| driver.progress(tree))).await {
        assert!(matches!(told.unwrap(), Progress::Pending { .. }));
    }
    let lists = fake.requests().into_iter().filter(|request| request.contains("loadbalancers?"));
    assert!(lists.count() > 0, "one list answers for many");
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
    assert!(failed.to_string().contains("was to be deleted, and is in the state ERROR"), "{failed}");
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
        assert!(found.iter().all(|marked| marked.thing.is_port_alone()), "lists go by tags: {found:?}");
        let taken = driver.ensure_load_balancer(&world.owner("other"), &spec).await.unwrap_err();
        assert_eq!((taken.reason(), taken.retry_after()), (Reason::Conflict, None), "it is another's");
        let again = patiently(async || driver.ensure_load_balancer(&world.owner("web"), &spec).await).await;
        assert_eq!((&again.id, asked(&again)), (&made.id, spec.listeners));
        let tags = fake.state().octavia.balancers[made.id.as_str()]["tags"].clone();
        let tags: Vec<String> = serde_json::from_value(tags).unwrap();
        assert!(tags.len() == 3 && tags.contains(&"theirs".to_owned()), "{tags:?}");
        let found = driver.load_balancers(None).await.unwrap();
        assert_eq!((found.len(), &found[0].thing.id), (1, &made.id));
    }
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
        settled(&driver, &made).await;
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

#[tokio::test]
async fn what_is_called_a_listener_is_never_taken_for_a_path() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let mut made = made(&driver, &world, &spec).await;
    let mut wanted = spec.listeners[0].clone();
    wanted.settings.client_timeout_ms = Some(1);
    made.listeners[0].id = "../pools/x".into();
    fake.requests();
    assert_eq!(driver.ensure_listener(&made, &wanted).await.unwrap_err().reason(), Reason::NotFound);
    made.listeners[0] = made.listeners[1].clone();
    made.listeners[0].at = HTTP;
    made.listeners[0].pool.as_mut().unwrap().id = "x?y".into();
    assert_eq!(driver.ensure_listener(&made, &wanted).await.unwrap_err().reason(), Reason::NotFound);
    assert_eq!(asked_of_octavia(&fake), [""; 0]);
}
