//! The driver `lbaasv2`.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{
    Algorithm, DriverError, HealthMonitor, Listener, ListenerChange, ListenerDriver, ListenerPort,
    ListenerSettings, ListenerSpec, LoadBalancer, LoadBalancerDriver, LoadBalancerProgress, LoadBalancerSpec,
    Member, MemberSpec, NetworkPolicyDriver, Owned, PoolSettings, PoolSpec, Protocol, ProvisioningStatus,
    Reason, SessionPersistence, Subnet,
};
use staffetta_openstack::{LbaasV2Driver, OctaviaDefaults, Quota};

use super::world::{World, text, within};

pub(crate) const HTTP: ListenerPort = ListenerPort { protocol: Protocol::Tcp, port: 80 };
const DNS: ListenerPort = ListenerPort { protocol: Protocol::Udp, port: 53 };
const DIAMETER: ListenerPort = ListenerPort { protocol: Protocol::Sctp, port: 3868 };

/// The changes of listeners, each with the part of the load balancer that it is about.
pub(crate) trait ListenerCalls: ListenerDriver {
    async fn ensure_listener(
        &self,
        balancer: &LoadBalancer,
        spec: &ListenerSpec,
    ) -> Result<Listener, DriverError> {
        let changed = self.change_listener(balancer, &ListenerChange::Ensure(spec.clone())).await?;
        Ok(changed.listener(spec.at).cloned().expect("it was ensured"))
    }

    async fn release_listener(
        &self,
        balancer: &LoadBalancer,
        listener: &Listener,
    ) -> Result<Option<Listener>, DriverError> {
        let observed = balancer.with_listener(listener.at, Some(listener.clone()));
        let changed = self.change_listener(&observed, &ListenerChange::Release(listener.at)).await?;
        Ok(changed.listener(listener.at).cloned())
    }

    async fn set_members(
        &self,
        balancer: &LoadBalancer,
        at: ListenerPort,
        members: &[MemberSpec],
    ) -> Result<Vec<Member>, DriverError> {
        let changed =
            self.change_listener(balancer, &ListenerChange::SetMembers(at, members.to_vec())).await?;
        Ok(changed.listener(at).and_then(|listener| listener.pool.clone()).expect("it has a pool").members)
    }
}

impl<D: ListenerDriver + ?Sized> ListenerCalls for D {}

/// Waits until the load balancer takes changes, as the handler does.
pub(crate) async fn until_not_pending(
    driver: &LbaasV2Driver,
    balancer: &LoadBalancer,
) -> LoadBalancerProgress {
    within(async {
        loop {
            match driver.progress(balancer).await.unwrap() {
                LoadBalancerProgress::Pending { poll_after } => tokio::time::sleep(poll_after).await,
                end => return end,
            }
        }
    })
    .await
}

/// Asks again as long as the load balancer is busy, and no sooner than it is told to.
pub(crate) async fn patiently<T>(mut ask: impl AsyncFnMut() -> Result<T, DriverError>) -> T {
    within(async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(busy) if busy.reason() == Reason::Conflict => {
                    tokio::time::sleep(busy.retry_after().expect("it says when to ask again")).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await
}

pub(crate) fn members(subnet: &Subnet, last: &[u8]) -> Vec<MemberSpec> {
    let member = |last: &u8| MemberSpec {
        ip: [10, 1, 0, *last].into(),
        port: 8080,
        name: format!("shop/web-{last}:8080"),
        subnet: subnet.id.clone(),
    };
    last.iter().map(member).collect()
}

pub(crate) fn listener(at: ListenerPort, members: Vec<MemberSpec>) -> ListenerSpec {
    ListenerSpec {
        at,
        settings: ListenerSettings::default(),
        pool: PoolSpec { members, ..PoolSpec::default() },
    }
}

/// The spec of a service with these listeners, as the driver carries it out.
pub(crate) async fn spec(
    world: &World,
    driver: &LbaasV2Driver,
    subnet: &Subnet,
    listeners: Vec<ListenerSpec>,
) -> LoadBalancerSpec {
    let spec = LoadBalancerSpec {
        name: "shop/web".into(),
        project: world.project.clone(),
        subnet: subnet.id.clone(),
        vip: [10, 1, 0, 100].into(),
        provider: None,
        security_groups: None,
        listeners,
        adopt: None,
    };
    let feasible = driver.normalize(spec).await.unwrap();
    assert_eq!(feasible.without, [""; 0]);
    feasible.spec
}

/// The specs of the listeners of a load balancer.
pub(crate) fn asked(balancer: &LoadBalancer) -> Vec<ListenerSpec> {
    let listeners = balancer.listeners.iter().map(|listener| {
        let pool = listener.pool.clone().unwrap();
        let mut members: Vec<_> = pool.members.into_iter().map(|member| member.spec).collect();
        members.sort();
        let pool = PoolSpec { settings: pool.settings, members };
        ListenerSpec { at: listener.at, settings: listener.settings.clone(), pool }
    });
    let mut listeners: Vec<_> = listeners.collect();
    listeners.sort_by_key(|listener| listener.at);
    listeners
}

pub(crate) async fn only(driver: &LbaasV2Driver) -> LoadBalancer {
    let mut found = driver.load_balancers(None).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0).resource
}

pub(crate) async fn a_load_balancer_is_made_with_its_whole_tree_and_read_as_it_was_asked_for(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let owner = world.owner("web");
    let mut wanted = [(HTTP, &[1, 2][..]), (DNS, &[3]), (DIAMETER, &[4])]
        .map(|(at, last)| listener(at, members(&subnet, last)));
    wanted[0].settings.allowed_cidrs = vec!["192.0.2.0/24".parse().unwrap()];
    wanted[0].pool.settings.persistence = Some(SessionPersistence { timeout_s: None });
    for listener in &mut wanted[1..] {
        listener.pool.settings.persistence = Some(SessionPersistence { timeout_s: Some(60) });
        listener.pool.settings.monitor = Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 });
    }
    let spec = spec(world, &driver, &subnet, wanted.into()).await;
    let made = driver.ensure_load_balancer(&owner, &spec).await.unwrap();
    assert_eq!((made.vip, &made.subnet, made.status), (spec.vip, &subnet.id, ProvisioningStatus::Pending));
    assert_eq!(asked(&made), spec.listeners);
    assert_eq!(until_not_pending(&driver, &made).await, LoadBalancerProgress::Active);
    // Whether this process made it or not.
    for driver in [&driver, &world.balancers("east", &OctaviaDefaults::default())] {
        for marks in [None, Some(&owner)] {
            let found = driver.load_balancers(marks).await.unwrap();
            let [Owned { owner: marked, resource }] = &*found else { panic!("{found:?}") };
            assert_eq!((marked.as_ref(), resource.status), (Some(&owner), ProvisioningStatus::Active));
            assert_eq!(asked(resource), spec.listeners);
        }
        let again = driver.ensure_load_balancer(&owner, &spec).await.unwrap();
        assert_eq!((&again.id, asked(&again)), (&made.id, spec.listeners.clone()));
    }
}

pub(crate) async fn members_are_set_as_a_whole_and_those_that_stay_keep_their_ids(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let spec = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1, 2]))]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    let pool = made.listeners[0].pool.clone().unwrap();
    let busy = driver.set_members(&made, HTTP, &members(&subnet, &[2, 3])).await.unwrap_err();
    assert_eq!((busy.reason(), busy.retry_after().is_some()), (Reason::Conflict, true), "{busy}");
    let wanted = members(&subnet, &[2, 3]);
    let set = patiently(async || driver.set_members(&made, HTTP, &wanted).await).await;
    let id = |found: &[Member], last: u8| {
        let found = found.iter().find(|member| member.spec.ip == std::net::IpAddr::from([10, 1, 0, last]));
        found.map(|member| member.id.clone())
    };
    assert_eq!(id(&set, 2), id(&pool.members, 2));
    assert!(id(&set, 1).is_none() && id(&set, 3).is_some());
    until_not_pending(&driver, &made).await;
    for driver in [&driver, &world.balancers("east", &OctaviaDefaults::default())] {
        let mut stands = only(driver).await.listeners[0].pool.clone().unwrap().members;
        stands.sort_by_key(|member| member.spec.ip);
        let mut set = set.clone();
        set.sort_by_key(|member| member.spec.ip);
        assert_eq!(stands, set);
    }
    let none = patiently(async || driver.set_members(&made, HTTP, &[]).await).await;
    assert_eq!(none, []);
}

pub(crate) async fn a_listener_that_comes_later_is_made_step_by_step_and_goes_with_its_pool(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let mut dns = listener(DNS, Vec::new());
    dns.pool.settings.monitor = Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 });
    let wanted = spec(world, &driver, &subnet, vec![listener(HTTP, Vec::new()), dns]).await;
    let first = LoadBalancerSpec { listeners: vec![wanted.listeners[0].clone()], ..wanted.clone() };
    let mut balancer = driver.ensure_load_balancer(&world.owner("web"), &first).await.unwrap();
    for _ in 0..6 {
        if asked_so_far(&balancer, DNS).as_ref() == Some(&wanted.listeners[1]) {
            break;
        }
        let step = patiently(async || driver.ensure_listener(&balancer, &wanted.listeners[1]).await).await;
        balancer.listeners.retain(|listener| listener.at != DNS);
        balancer.listeners.push(step);
        until_not_pending(&driver, &balancer).await;
    }
    assert_eq!(asked(&only(&driver).await), wanted.listeners);
    let dns = balancer.listener(DNS).unwrap().clone();
    let left = patiently(async || driver.release_listener(&balancer, &dns).await).await;
    assert_eq!(left, Some(Listener { pool: None, ..dns.clone() }), "one change at a time");
    let left = patiently(async || driver.release_listener(&balancer, left.as_ref().unwrap()).await).await;
    assert_eq!(left, None);
    until_not_pending(&driver, &balancer).await;
    let left = only(&driver).await;
    assert_eq!(asked(&left), first.listeners);
    assert_eq!(patiently(async || driver.release_listener(&left, &dns).await).await, None);
}

/// The spec of a listener that has a pool.
fn asked_so_far(balancer: &LoadBalancer, at: ListenerPort) -> Option<ListenerSpec> {
    let listener = balancer.listener(at)?.clone();
    let pool = listener.pool?;
    let pool = PoolSpec { settings: pool.settings, members: Vec::new() };
    Some(ListenerSpec { at, settings: listener.settings, pool })
}

pub(crate) async fn settings_are_changed_and_what_hangs_on_them_stays(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let before = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1]))]).await;
    let mut balancer = driver.ensure_load_balancer(&world.owner("web"), &before).await.unwrap();
    let mut other = before.listeners[0].clone();
    other.settings = ListenerSettings {
        client_timeout_ms: Some(7_000),
        member_timeout_ms: Some(8_000),
        allowed_cidrs: vec!["198.51.100.0/24".parse().unwrap()],
        disabled: false,
    };
    other.pool.settings = PoolSettings {
        algorithm: Some(Algorithm::LeastConnections),
        persistence: Some(SessionPersistence { timeout_s: None }),
        monitor: Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 }),
        disabled: false,
    };
    let mut slower = other.clone();
    slower.pool.settings.monitor = Some(HealthMonitor { delay_s: 9, timeout_s: 4, max_retries: 5 });
    for wanted in [&other, &slower, &before.listeners[0]] {
        for _ in 0..6 {
            if asked(&balancer) == *std::slice::from_ref(wanted) {
                break;
            }
            let step = patiently(async || driver.ensure_listener(&balancer, wanted).await).await;
            balancer.listeners = vec![step];
            until_not_pending(&driver, &balancer).await;
        }
        assert_eq!(asked(&only(&driver).await), *std::slice::from_ref(wanted));
    }
}

/// Asks for a listener until it is as it is wanted.
pub(crate) async fn until_made(driver: &LbaasV2Driver, balancer: &LoadBalancer, wanted: &ListenerSpec) {
    let mut balancer = balancer.clone();
    for _ in 0..6 {
        if balancer.listener(wanted.at).is_some_and(|listener| wanted.is_made(listener)) {
            return;
        }
        let step = patiently(async || driver.ensure_listener(&balancer, wanted).await).await;
        balancer.listeners.retain(|listener| listener.at != wanted.at);
        balancer.listeners.push(step);
        until_not_pending(driver, &balancer).await;
    }
    panic!("{wanted:?} is never made of {balancer:?}");
}

pub(crate) async fn ranges_take_the_place_of_security_groups_and_give_it_back(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let (owner, group) = (world.owner("web"), world.policies("east").create_group(&"g".into(), None).await);
    let plain = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1]))]).await;
    let guarded = LoadBalancerSpec { security_groups: Some(vec![group.unwrap().id]), ..plain };
    let guarded = driver.normalize(guarded).await.unwrap().spec;
    let mut ranged = guarded.clone();
    ranged.listeners[0].settings.allowed_cidrs = vec!["192.0.2.0/24".parse().unwrap()];
    let ranged = driver.normalize(ranged).await.unwrap();
    assert_eq!(ranged.without, ["security groups beside loadBalancerSourceRanges"]);
    let made = driver.ensure_load_balancer(&owner, &guarded).await.unwrap();
    until_not_pending(&driver, &made).await;
    assert_eq!(Some(only(&driver).await.security_groups), guarded.security_groups);
    for wanted in [&ranged.spec, &guarded] {
        let changed = patiently(async || driver.ensure_load_balancer(&owner, wanted).await).await;
        until_not_pending(&driver, &changed).await;
        until_made(&driver, &changed, &wanted.listeners[0]).await;
        let found = only(&driver).await;
        assert_eq!((&found.id, asked(&found)), (&made.id, wanted.listeners.clone()));
        assert_eq!(Some(found.security_groups), wanted.security_groups);
    }
}

pub(crate) async fn what_somebody_switched_off_is_reported_and_switched_on_again(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let mut wanted = listener(HTTP, members(&subnet, &[1]));
    wanted.pool.settings.monitor = Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 });
    let spec = spec(world, &driver, &subnet, vec![wanted]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    until_not_pending(&driver, &made).await;
    let (listener, pool) = (&made.listeners[0].id, &made.listeners[0].pool.as_ref().unwrap().id);
    let monitor = world.balance(Method::GET, &format!("pools/{pool}"), &Value::Null).await.1;
    for (path, key) in [
        (format!("loadbalancers/{}", made.id), "loadbalancer"),
        (format!("listeners/{listener}"), "listener"),
        (format!("pools/{pool}"), "pool"),
        (format!("healthmonitors/{}", text(&monitor["pool"]["healthmonitor_id"])), "healthmonitor"),
    ] {
        let off = json!({ key: { "admin_state_up": false } });
        assert_eq!(world.balance(Method::PUT, &path, &off).await.0, 200, "{path}");
        until_active(world, &made).await;
        let found = only(&driver).await;
        let is_off = found.disabled || !spec.listeners[0].is_made(&found.listeners[0]);
        assert!(is_off, "{path} is off: {found:?}");
        let changed = patiently(async || driver.ensure_load_balancer(&world.owner("web"), &spec).await).await;
        until_not_pending(&driver, &changed).await;
        until_made(&driver, &changed, &spec.listeners[0]).await;
        let found = only(&driver).await;
        assert_eq!((found.disabled, asked(&found)), (false, spec.listeners.clone()), "{path} is on");
    }
}

/// Waits until what somebody changed is done.
pub(crate) async fn until_active(world: &World, balancer: &LoadBalancer) {
    within(async {
        let path = format!("loadbalancers/{}", balancer.id);
        while world.balance(Method::GET, &path, &Value::Null).await.1["loadbalancer"]["provisioning_status"]
            != "ACTIVE"
        {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
}

pub(crate) async fn a_load_balancer_is_given_back_once_and_by_its_owner_only(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let spec = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1]))]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    until_not_pending(&driver, &made).await;
    for driver in [&driver, &world.balancers("east", &OctaviaDefaults::default())] {
        driver.release_load_balancer(&world.owner("other"), &made.id).await.unwrap();
        let west = world.balancers("west", &OctaviaDefaults::default());
        west.release_load_balancer(&world.owner("web"), &made.id).await.unwrap();
        assert_eq!(west.load_balancers(None).await.unwrap(), []);
        assert_eq!(only(driver).await.id, made.id);
    }
    for _ in 0..2 {
        driver.release_load_balancer(&world.owner("web"), &made.id).await.unwrap();
        assert_eq!(driver.load_balancers(None).await.unwrap(), []);
    }
    for path in [".", "../../pools", "x?cascade=true"] {
        driver.release_load_balancer(&world.owner("web"), &path.into()).await.unwrap();
    }
}

pub(crate) async fn what_somebody_removed_is_reported_and_can_be_made_again(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let spec = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1]))]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    until_not_pending(&driver, &made).await;
    let path = format!("loadbalancers/{}?cascade=true", made.id);
    assert_eq!(world.balance(Method::DELETE, &path, &Value::Null).await.0, 204);
    within(async {
        while world.balance(Method::GET, &format!("loadbalancers/{}", made.id), &Value::Null).await.0 != 404 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(driver.progress(&made).await.unwrap_err().reason(), Reason::NotFound);
    assert_eq!(driver.set_members(&made, HTTP, &[]).await.unwrap_err().reason(), Reason::NotFound);
    assert_eq!(driver.load_balancers(None).await.unwrap(), []);
    let again = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert!(again.id != made.id && asked(&again) == spec.listeners);
}

pub(crate) async fn what_others_change_is_seen_by_lists(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let spec = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1, 2]))]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    until_not_pending(&driver, &made).await;
    assert_eq!(asked(&only(&driver).await), spec.listeners);
    let pool = made.listeners[0].pool.as_ref().unwrap().id.clone();
    let others = json!({ "members": [{ "address": "10.1.0.2", "protocol_port": 8080, "subnet_id": subnet.id, "name": "shop/web-2:8080" }] });
    let (status, answer) = world.balance(Method::PUT, &format!("pools/{pool}/members"), &others).await;
    assert_eq!(status, 202, "{answer}");
    until_not_pending(&driver, &made).await;
    let stands = only(&driver).await.listeners[0].pool.clone().unwrap();
    assert_eq!(
        stands.members.iter().map(|member| member.spec.clone()).collect::<Vec<_>>(),
        members(&subnet, &[2])
    );
    let (status, answer) = world.balance(Method::DELETE, &format!("pools/{pool}"), &Value::Null).await;
    assert_eq!(status, 204, "{answer}");
    until_not_pending(&driver, &made).await;
    assert_eq!(only(&driver).await.listeners[0].pool, None);
}

pub(crate) async fn what_a_predecessor_made_is_marked_and_not_made_again(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let theirs = json!({ "loadbalancer": {
        "name": "shop/web", "project_id": world.project, "vip_address": "10.1.0.100", "vip_subnet_id": subnet.id,
        "description": "kuryr", "tags": ["kuryr"],
        "listeners": [{ "name": "shop/web:TCP:80", "protocol": "TCP", "protocol_port": 80, "default_pool":
            { "name": "shop/web:TCP:80", "protocol": "TCP", "lb_algorithm": "ROUND_ROBIN" } }],
    } });
    let (status, answer) = world.balance(Method::POST, "loadbalancers", &theirs).await;
    assert_eq!(status, 201, "{answer}");
    let id = text(&answer["loadbalancer"]["id"]).to_owned();
    let spec = spec(world, &driver, &subnet, vec![listener(HTTP, Vec::new())]).await;
    let adopting = LoadBalancerSpec { adopt: Some(id.as_str().into()), ..spec.clone() };
    let owner = world.owner("web");
    driver.release_load_balancer(&owner, &id.as_str().into()).await.unwrap();
    let adopted = patiently(async || driver.ensure_load_balancer(&owner, &adopting).await).await;
    assert_eq!((adopted.id.as_str(), asked(&adopted)), (&*id, spec.listeners.clone()));
    until_not_pending(&driver, &adopted).await;
    let found = world.balancers("east", &OctaviaDefaults::default());
    assert_eq!(found.load_balancers(Some(&owner)).await.unwrap()[0].owner, Some(owner.clone()));
    let (_, reported) = world.balance(Method::GET, &format!("loadbalancers/{id}"), &Value::Null).await;
    assert!(reported["loadbalancer"]["tags"].as_array().unwrap().contains(&json!("kuryr")), "{reported}");
    // Another service cannot have it, and one that is elsewhere is no predecessor's.
    let elsewhere = json!({ "loadbalancer": {
        "name": "shop/other", "project_id": world.project, "vip_address": "10.1.0.102", "vip_subnet_id": subnet.id } });
    let (status, answer) = world.balance(Method::POST, "loadbalancers", &elsewhere).await;
    assert_eq!(status, 201, "{answer}");
    let elsewhere = text(&answer["loadbalancer"]["id"]).to_owned();
    let other = world.owner("other");
    let anothers = driver
        .ensure_load_balancer(&other, &LoadBalancerSpec { vip: [10, 1, 0, 101].into(), ..adopting.clone() })
        .await;
    assert_ne!(anothers.unwrap().id.as_str(), id);
    let adopt = Some(elsewhere.as_str().into());
    let third = LoadBalancerSpec { vip: [10, 1, 0, 103].into(), adopt, ..adopting };
    let made = driver.ensure_load_balancer(&world.owner("third"), &third).await.unwrap();
    assert_ne!(made.id.as_str(), elsewhere);
    let (_, reported) = world.balance(Method::GET, &format!("loadbalancers/{elsewhere}"), &Value::Null).await;
    assert!(
        !reported["loadbalancer"]["description"].as_str().unwrap_or_default().contains("staffetta"),
        "{reported}"
    );
}

pub(crate) async fn a_quota_is_reported_and_its_raising_lets_services_go_on(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    world.allow_balancers(1).await;
    let spec = spec(world, &driver, &subnet, Vec::new()).await;
    driver.ensure_load_balancer(&world.owner("a"), &spec).await.unwrap();
    let other = LoadBalancerSpec { vip: [10, 1, 0, 101].into(), ..spec };
    let error = driver.ensure_load_balancer(&world.owner("b"), &other).await.unwrap_err();
    assert_eq!((error.reason(), error.ambiguous()), (Reason::Quota, false));
    assert!(error.to_string().contains("Quota") && error.to_string().contains("(request req-"), "{error}");
    world.allow_balancers(-1).await;
    driver.ensure_load_balancer(&world.owner("b"), &other).await.unwrap();
}

pub(crate) async fn a_quota_of_listeners_or_pools_keeps_no_other_port_from_being_served(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let listeners = vec![listener(HTTP, Vec::new()), listener(DNS, Vec::new())];
    let wanted = spec(world, &driver, &subnet, listeners).await;
    // The first service, once it is usable, has two of each.
    for (last, what, allowed) in [(100, "listener", 1), (101, "pool", 3)] {
        world.allow_of_octavia(what, allowed).await;
        let owner = world.owner(what);
        let wanted = LoadBalancerSpec { vip: [10, 1, 0, last].into(), ..wanted.clone() };
        let mut balancer = driver.ensure_load_balancer(&owner, &wanted).await.unwrap();
        assert_eq!(balancer.listeners, [], "{what}: each is made by itself");
        until_not_pending(&driver, &balancer).await;
        until_made(&driver, &balancer, &wanted.listeners[0]).await;
        let refused = within(async {
            loop {
                match driver.ensure_listener(&balancer, &wanted.listeners[1]).await {
                    Ok(step) => balancer.listeners = vec![step],
                    Err(error) => return error,
                }
                until_not_pending(&driver, &balancer).await;
            }
        })
        .await;
        assert_eq!((refused.reason(), refused.ambiguous()), (Reason::Quota, false), "{what}: {refused}");
        world.allow_of_octavia(what, -1).await;
        until_made(&driver, &balancer, &wanted.listeners[1]).await;
        let found = driver.load_balancers(Some(&owner)).await.unwrap();
        assert_eq!((found.len(), asked(&found[0].resource)), (1, wanted.listeners), "{what}");
    }
}

pub(crate) async fn quotas_of_octavia_are_read_and_what_is_in_use_is_counted(world: &World) {
    let octavia = world.cloud.load_balancer();
    let quotas = async || octavia.quotas(&world.project).await.unwrap().expect("the user may read them");
    let kinds = [
        ("loadbalancer", "load_balancer"),
        ("listener", "listener"),
        ("pool", "pool"),
        ("member", "member"),
        ("healthmonitor", "health_monitor"),
    ];
    for (limit, (_, kind)) in (10..).zip(kinds) {
        world.allow_of_octavia(kind, limit).await;
    }
    let expected = |used: [i64; 5]| {
        let quotas = (10..).zip(kinds).zip(used);
        quotas.map(|((limit, (name, _)), used)| (name.to_owned(), Quota { limit, used })).collect()
    };
    assert_eq!(quotas().await, expected([0; 5]));

    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let mut listeners =
        vec![listener(HTTP, members(&subnet, &[1, 2])), listener(DNS, members(&subnet, &[3]))];
    listeners[0].pool.settings.monitor = Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 });
    let wanted = spec(world, &driver, &subnet, listeners).await;
    let balancer = driver.ensure_load_balancer(&world.owner("a"), &wanted).await.unwrap();
    until_not_pending(&driver, &balancer).await;
    assert_eq!(quotas().await, expected([1, 2, 2, 3, 1]));

    for (_, kind) in kinds {
        world.allow_of_octavia(kind, -1).await;
    }
    assert_eq!(quotas().await, BTreeMap::new(), "without a limit, nothing is counted");
}
