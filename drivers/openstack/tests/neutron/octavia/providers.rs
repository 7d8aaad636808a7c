//! The gaps of providers and releases, and the options.

use k8s_openapi::api::core::v1::Namespace;
use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{
    Algorithm, HealthMonitor, ListenerPort, LoadBalancer, LoadBalancerDriver, LoadBalancerSpec, MemberSpec,
    NAMESPACE_NETWORK, Reason, SessionPersistence, Subnet,
};
use staffetta_openstack::{LbaasV2Driver, MemberMode, OctaviaDefaults};

use super::{SCTP, asked_of_octavia, listeners, made, started};
use crate::scenarios::balancers::{
    HTTP, ListenerCalls, asked, listener, members, patiently, spec, until_not_pending,
};
use crate::scenarios::world::World;

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
    let feasible = driver.normalize(wanted).await.unwrap();
    assert_eq!(feasible.without, ["SCTP:9000"]);
    let made = made(&driver, &world, &feasible.spec).await;
    assert!(
        fake.state().octavia.balancers.values().all(|balancer| balancer["tags"] == serde_json::json!([]))
    );
    let other = world.balancers("east", &OctaviaDefaults::default());
    let found = other.load_balancers(Some(&world.owner("web"))).await.unwrap();
    assert_eq!((found.len(), &found[0].resource.id), (1, &made.id));
    assert!(
        world.balancers("west", &OctaviaDefaults::default()).load_balancers(None).await.unwrap().is_empty()
    );
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
    let guarded = LoadBalancerSpec { security_groups: Some(vec!["g".into()]), listeners: wanted, ..bare };
    let feasible = driver.normalize(guarded).await.unwrap();
    assert_eq!(feasible.without, ["security groups", "loadBalancerSourceRanges of TCP:80"]);
    let made = made(&driver, &world, &feasible.spec).await;
    assert_eq!((made.provider.as_deref(), asked(&made)), (Some("ovn"), feasible.spec.listeners.clone()));
    let pool = |at| made.listener(at).unwrap().pool.clone().unwrap();
    assert_eq!(pool(HTTP).settings.algorithm, Some(Algorithm::SourceIpPort));
    assert_eq!(pool(HTTP).settings.persistence, Some(SessionPersistence { timeout_s: None }));
    assert_eq!((pool(HTTP).settings.monitor, pool(SCTP).settings.monitor), (Some(monitor), None));
    let set = driver.set_members(&made, SCTP, &members(&subnet, &[3])).await.unwrap();
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
    let found = driver.load_balancers(None).await.unwrap().remove(0).resource;
    assert_eq!(asked(&found), spec.listeners);
    let state = fake.state();
    let reported = |things: &std::collections::BTreeMap<String, Value>, name: &str| {
        things.values().map(|thing| thing[name].clone()).collect::<Vec<_>>()
    };
    assert_eq!(reported(&state.octavia.listeners, "protocol"), ["SCTP"]);
    assert_eq!(reported(&state.octavia.monitors, "type"), ["SCTP"]);
}

#[tokio::test]
async fn the_options_are_what_octavia_is_asked_for_where_a_service_leaves_it_open() {
    let (fake, world) = crate::fake().await;
    let subnet = world.subnet("10.1.0.0/24").await;
    let options = OctaviaDefaults {
        lb_algorithm: Algorithm::LeastConnections,
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
    let guarded = driver.normalize(guarded).await.unwrap();
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
async fn beside_pods(world: &World, pods: &Subnet) -> LbaasV2Driver {
    let mark = format!("staffetta:cluster={} staffetta:uid=u staffetta:name=shop", world.cluster("east"));
    let (network, marked) = (&pods.network.id, json!({ "network": { "description": mark } }));
    assert_eq!(world.ask(Method::PUT, &format!("networks/{network}"), &marked).await.0, 200);
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
    let driver = beside_pods(&world, &pods).await;
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
    let other = beside_pods(&world, &pods).await;
    assert_eq!(subnets(&other.load_balancers(None).await.unwrap().remove(0).resource), expected);
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
    let driver = beside_pods(&world, &pods).await;
    let wanted = driver.normalize(routed.clone()).await.unwrap().spec.listeners.remove(0).pool.members;
    assert_eq!(wanted[0].subnet, pods.id);
    let mut stands = driver.load_balancers(None).await.unwrap().remove(0).resource;
    assert_eq!(asked(&stands), routed.listeners, "they are still reached by the router");
    let pool = stands.listeners[0].pool.clone().unwrap().id;
    for left in [&[][..], &wanted] {
        let set = patiently(async || driver.set_members(&stands, HTTP, &wanted).await).await;
        assert_eq!(set.iter().map(|member| member.spec.clone()).collect::<Vec<_>>(), left);
        until_not_pending(&driver, &stands).await;
        stands.listeners[0].pool.as_mut().unwrap().members = set;
    }
    let kept = fake.state().octavia.pools[pool.as_str()]["members"].clone();
    assert_eq!((kept.as_array().unwrap().len(), &kept[0]["subnet_id"]), (1, &json!(pods.id)));
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
