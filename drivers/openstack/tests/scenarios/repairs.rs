//! Listeners and pools that were left half gone, or half removed by somebody.

use reqwest::Method;
use serde_json::{Value, json};
use staffetta_driver::{HealthMonitor, ListenerPort, LoadBalancer, LoadBalancerDriver};
use staffetta_openstack::OctaviaDefaults;

use super::balancers::{
    HTTP, ListenerCalls, asked, listener, members, only, patiently, spec, until_active, until_made,
    until_not_pending,
};
use super::world::{World, text};

const ALT: ListenerPort = ListenerPort { port: 81, ..HTTP };

pub(crate) async fn a_listener_that_is_wanted_again_while_it_goes_gets_a_pool_again(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let listeners = vec![listener(HTTP, members(&subnet, &[1])), listener(ALT, Vec::new())];
    let wanted = spec(world, &driver, &subnet, listeners).await;
    let mut balancer = driver.ensure_load_balancer(&world.owner("web"), &wanted).await.unwrap();
    until_not_pending(&driver, &balancer).await;
    let goes = balancer.listener(ALT).unwrap().clone();
    let left = patiently(async || driver.release_listener(&balancer, &goes).await).await.unwrap();
    assert_eq!((&left.id, &left.pool), (&goes.id, &None));
    balancer.listeners.retain(|listener| listener.at != ALT);
    balancer.listeners.push(left);
    until_made(&driver, &balancer, &wanted.listeners[1]).await;
    let found = only(&driver).await;
    assert_eq!(asked(&found), wanted.listeners);
    assert_eq!(found.listener(ALT).unwrap().id, goes.id);
}

/// The ids of the pools of a load balancer, those that hang on no listener too.
async fn pools(world: &World, balancer: &LoadBalancer) -> Vec<String> {
    let path = format!("pools?loadbalancer_id={}", balancer.id);
    let (_, reported) = world.balance(Method::GET, &path, &Value::Null).await;
    reported["pools"].as_array().unwrap().iter().map(|pool| text(&pool["id"]).to_owned()).collect()
}

pub(crate) async fn a_listener_that_somebody_removed_or_emptied_gets_the_pool_back_that_it_had(
    world: &World,
) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let mut wanted = listener(HTTP, members(&subnet, &[1, 2]));
    wanted.pool.settings.monitor = Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 });
    let wanted = spec(world, &driver, &subnet, vec![wanted]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &wanted).await.unwrap();
    until_not_pending(&driver, &made).await;
    let had = made.listeners[0].pool.clone().unwrap();
    let emptied = json!({ "listener": { "default_pool_id": null } });
    for (method, body) in
        [(Method::DELETE, Value::Null), (Method::PUT, emptied.clone()), (Method::PUT, emptied)]
    {
        let path = format!("listeners/{}", only(&driver).await.listeners[0].id);
        let (status, answer) = world.balance(method.clone(), &path, &body).await;
        assert!(status < 300, "{method} {path}: {status} {answer}");
        until_active(world, &made).await;
        let found = only(&driver).await;
        assert!(found.listener(HTTP).is_none_or(|listener| listener.pool.is_none()), "{found:?}");
        until_made(&driver, &found, &wanted.listeners[0]).await;
        let found = only(&driver).await;
        assert_eq!(asked(&found), wanted.listeners);
        assert_eq!(found.listeners[0].pool.as_ref().unwrap().id, had.id);
        assert_eq!(pools(world, &made).await, [had.id.as_str()], "nothing is left behind");
    }
}

pub(crate) async fn a_pool_of_somebody_else_is_hung_on_no_listener_of_ours(world: &World) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let wanted = spec(world, &driver, &subnet, vec![listener(HTTP, Vec::new())]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &wanted).await.unwrap();
    until_not_pending(&driver, &made).await;
    let had = made.listeners[0].pool.clone().unwrap().id;
    let theirs = json!({ "pool": { "name": "theirs" } });
    for (method, path, body) in [
        (Method::PUT, format!("pools/{had}"), theirs),
        (Method::DELETE, format!("listeners/{}", made.listeners[0].id), Value::Null),
    ] {
        let (status, answer) = world.balance(method, &path, &body).await;
        assert!(status < 300, "{path}: {status} {answer}");
        until_active(world, &made).await;
    }
    let found = only(&driver).await;
    until_made(&driver, &found, &wanted.listeners[0]).await;
    let pool = only(&driver).await.listeners[0].pool.clone().unwrap().id;
    assert!(pool != had && pools(world, &made).await.contains(&had.to_string()));
}

pub(crate) async fn a_member_that_somebody_switched_off_is_switched_on_by_the_next_change_of_its_pool(
    world: &World,
) {
    let subnet = world.subnet("10.1.0.0/24").await;
    let driver = world.balancers("east", &OctaviaDefaults::default());
    let wanted = spec(world, &driver, &subnet, vec![listener(HTTP, members(&subnet, &[1, 2]))]).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &wanted).await.unwrap();
    until_not_pending(&driver, &made).await;
    let pool = made.listeners[0].pool.clone().unwrap();
    let path = format!("pools/{}/members", pool.id);
    let (one, off) = (&pool.members[0].id, json!({ "member": { "admin_state_up": false, "weight": 7 } }));
    let (status, answer) = world.balance(Method::PUT, &format!("{path}/{one}"), &off).await;
    assert!(status < 300, "{status} {answer}");
    until_active(world, &made).await;
    assert_eq!(asked(&only(&driver).await), wanted.listeners, "no list tells of it");
    let more = members(&subnet, &[1, 2, 3]);
    patiently(async || driver.set_members(&made, HTTP, &more).await).await;
    until_not_pending(&driver, &made).await;
    let (_, reported) = world.balance(Method::GET, &path, &Value::Null).await;
    let found = reported["members"].as_array().unwrap().iter().find(|member| member["id"] == one.as_str());
    let found = found.unwrap_or_else(|| panic!("it stays: {reported}"));
    assert!(found["admin_state_up"] != json!(false) && found["weight"] != json!(7), "{found}");
}
