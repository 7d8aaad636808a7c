//! The guarantees of the load balancer driver.

use std::time::Duration;

use staffetta_driver::{
    ListenerPort, ListenerSettings, ListenerSpec, LoadBalancerProgress, LoadBalancerSpec, PoolSpec, Protocol,
    ProvisioningStatus, Reason,
};
use staffetta_memory::MemoryOptions;

use crate::world::{HTTP, ListenerCalls, Place, balancer, http, instant, member, owner};

laws! {
    the_same_owner_gets_the_same_load_balancer,
    a_load_balancer_is_released_by_its_owner_alone,
    the_whole_tree_is_made_by_one_call,
    listeners_and_members_hang_on_it_as_they_were_asked_for,
    a_pending_load_balancer_says_when_it_takes_a_change,
    what_is_refused_keeps_its_reason,
}

async fn the_same_owner_gets_the_same_load_balancer(place: Place) {
    let drivers = place.drivers(instant());
    let made = drivers.balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    assert_eq!((made.status, made.provider.as_deref()), (ProvisioningStatus::Active, Some("memory")));
    let again = drivers.balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    assert_eq!(again, made);
    let guarded = LoadBalancerSpec { security_groups: Some(vec!["h".into()]), ..balancer("10.0.0.1") };
    let changed = drivers.balancers.ensure_load_balancer(&owner("a"), &guarded).await.unwrap();
    assert_eq!((changed.id, changed.security_groups), (made.id, vec!["h".into()]));
}

async fn a_load_balancer_is_released_by_its_owner_alone(place: Place) {
    let world = place.world(instant());
    let (east, west) = (world.drivers("east"), world.drivers("west"));
    let made = east.balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    east.balancers.release_load_balancer(&owner("b"), &made.id).await.unwrap();
    west.balancers.release_load_balancer(&owner("a"), &made.id).await.unwrap();
    assert_eq!(east.balancers.load_balancers(Some(&owner("a"))).await.unwrap().len(), 1);
    assert_eq!(west.balancers.load_balancers(None).await.unwrap(), []);
    east.balancers.release_load_balancer(&owner("a"), &made.id).await.unwrap();
    east.balancers.release_load_balancer(&owner("a"), &made.id).await.unwrap();
    assert_eq!(east.balancers.load_balancers(None).await.unwrap(), []);
}

async fn the_whole_tree_is_made_by_one_call(place: Place) {
    let drivers = place.drivers(instant());
    let balancers = drivers.balancers;
    let pool = PoolSpec { members: vec![member("10.1.0.1"), member("10.1.0.2")], ..PoolSpec::default() };
    let spec = LoadBalancerSpec { listeners: vec![ListenerSpec { pool, ..http() }], ..balancer("10.0.0.1") };
    let made = balancers.ensure_load_balancer(&owner("a"), &spec).await.unwrap();
    assert_eq!(made.listener(HTTP).unwrap().pool.as_ref().unwrap().members.len(), 2);
    assert_eq!(balancers.progress(&made).await.unwrap(), LoadBalancerProgress::Active);
    assert_eq!(balancers.load_balancers(None).await.unwrap()[0].resource, made);
}

async fn listeners_and_members_hang_on_it_as_they_were_asked_for(place: Place) {
    let drivers = place.drivers(instant());
    let balancers = drivers.balancers;
    let made = balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    let listener = balancers.ensure_listener(&made, &http()).await.unwrap();
    assert_eq!(balancers.ensure_listener(&made, &http()).await.unwrap(), listener);
    let settings = ListenerSettings { client_timeout_ms: Some(1000), ..ListenerSettings::default() };
    let dns = ListenerSpec { at: ListenerPort { protocol: Protocol::Udp, port: 53 }, settings, ..http() };
    let other = balancers.ensure_listener(&made, &dns).await.unwrap();
    assert!(dns.is_made(&other), "{other:?}");
    let specs = [member("10.1.0.1"), member("fd00::1")];
    let members = balancers.set_members(&made, HTTP, &specs).await.unwrap();
    assert_eq!(members.iter().map(|member| member.spec.clone()).collect::<Vec<_>>(), specs);
    balancers.release_listener(&made, &other).await.unwrap();
    let tree = balancers.load_balancers(Some(&owner("a"))).await.unwrap().remove(0).resource;
    assert_eq!(tree.listeners.len(), 1);
    assert_eq!(tree.listener(HTTP).unwrap().pool.as_ref().unwrap().members, members);
}

async fn a_pending_load_balancer_says_when_it_takes_a_change(place: Place) {
    let hour = Duration::from_secs(3600);
    let drivers = place.drivers(MemoryOptions { load_balancer_delay_ms: 3_600_000, ..instant() });
    let made = drivers.balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    assert_eq!(made.status, ProvisioningStatus::Pending);
    let busy = drivers.balancers.ensure_listener(&made, &http()).await.unwrap_err();
    let wait = busy.retry_after().unwrap();
    assert!(busy.reason() == Reason::Conflict && hour / 2 < wait && wait <= hour, "{busy} {wait:?}");
    let LoadBalancerProgress::Pending { poll_after } = drivers.balancers.progress(&made).await.unwrap()
    else {
        panic!()
    };
    assert!(hour / 2 < poll_after && poll_after <= hour, "{poll_after:?}");
}

async fn what_is_refused_keeps_its_reason(place: Place) {
    let drivers = place.drivers(MemoryOptions {
        load_balancer_quota: Some(1),
        service_subnet: Some("10.0.0.0/24".parse().unwrap()),
        ..instant()
    });
    let refused = async |name: &str, vip: &str| {
        let made = drivers.balancers.ensure_load_balancer(&owner(name), &balancer(vip)).await;
        let error = made.unwrap_err();
        (error.reason(), error.transient())
    };
    assert_eq!(refused("a", "10.0.1.1").await, (Reason::Refused, false));
    let made = drivers.balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    assert_eq!(refused("b", "10.0.0.2").await, (Reason::Quota, true));
    drivers.balancers.release_load_balancer(&owner("a"), &made.id).await.unwrap();
    let missing = drivers.balancers.ensure_listener(&made, &http()).await.unwrap_err();
    assert_eq!(missing.reason(), Reason::NotFound);
}
