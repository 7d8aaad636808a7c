//! Services with more endpoints than one request holds.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use staffetta_driver::{
    ListenerPort, LoadBalancer, LoadBalancerProgress, Member, MemberId, MemberSpec, Reason, SubnetId,
};
use staffetta_openstack::LbaasV2Driver;

use super::{asked_of_octavia, made, started};
use crate::scenarios::balancers::{
    HTTP, ListenerCalls, asked, listener, members, only, patiently, spec, until_made, until_not_pending,
};

/// The members of these numbers.
fn numbered(subnet: &SubnetId, numbers: impl IntoIterator<Item = u16>) -> Vec<MemberSpec> {
    let member = |number: u16| {
        let [high, low] = number.to_be_bytes();
        let name = format!("shop/a-deployment-with-a-name-of-usual-length-{number}:8080");
        MemberSpec { ip: [10, 2, high, low].into(), port: 8080, name, subnet: subnet.clone() }
    };
    numbers.into_iter().map(member).collect()
}

/// Sets the members of a listener by as many calls as that takes, at most `calls`, and returns the load balancer with their number.
async fn set_all(
    driver: &LbaasV2Driver,
    balancer: &LoadBalancer,
    at: ListenerPort,
    wanted: &[MemberSpec],
    calls: usize,
) -> (LoadBalancer, usize) {
    let mut balancer = balancer.clone();
    for call in 0..=calls {
        let pool = balancer.listener(at).unwrap().pool.clone().unwrap();
        let mut present: Vec<_> = pool.members.iter().map(|member| &member.spec).collect();
        present.sort_unstable();
        if present.into_iter().eq(wanted) {
            return (balancer, call);
        }
        let members = patiently(async || driver.set_members(&balancer, at, wanted).await).await;
        let place = balancer.listeners.iter().position(|listener| listener.at == at).unwrap();
        balancer.listeners[place].pool.as_mut().unwrap().members = members;
        assert_eq!(until_not_pending(driver, &balancer).await, LoadBalancerProgress::Active);
    }
    panic!("{calls} calls are not enough for {} members", wanted.len());
}

fn ids(balancer: &LoadBalancer, at: ListenerPort) -> BTreeMap<IpAddr, MemberId> {
    let members = balancer.listener(at).unwrap().pool.clone().unwrap().members.into_iter();
    members.map(|Member { id, spec }| (spec.ip, id)).collect()
}

#[tokio::test]
async fn a_service_with_more_members_than_a_request_holds_is_served() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let ports = [80, 81, 82].map(|port| ListenerPort { port, ..HTTP });
    let all = numbered(&subnet.id, 0..5000);
    let wanted = spec(&world, &driver, &subnet, ports.map(|at| listener(at, all.clone())).into()).await;
    let mut balancer = made(&driver, &world, &wanted).await;
    assert_eq!(asked_of_octavia(&fake).iter().filter(|call| call.starts_with("POST")).count(), 1);
    let first = asked(&balancer);
    assert_eq!(first.len(), 3);
    assert!(first.iter().all(|listener| listener.pool.members.len() > 200), "each port is served at once");
    for at in ports {
        balancer = set_all(&driver, &balancer, at, &all, 8).await.0;
    }
    assert_eq!(asked(&only(&driver).await), wanted.listeners);

    // Few members go one by one, and the others stay.
    let before = ids(&balancer, HTTP);
    let fewer: Vec<_> = all.iter().filter(|spec| !spec.name.contains("-7:")).cloned().collect();
    let fewer = fewer.into_iter().chain(numbered(&subnet.id, [6000])).collect::<Vec<_>>();
    let (changed, calls) = set_all(&driver, &balancer, HTTP, &fewer, 4).await;
    assert_eq!(calls, 2, "one for the new member and one for the old one");
    let after = ids(&changed, HTTP);
    assert!(after.iter().all(|(ip, id)| before.get(ip).is_none_or(|known| known == id)));

    // Many go together.
    let others = numbered(&subnet.id, 7000..8500);
    let (changed, calls) = set_all(&driver, &changed, HTTP, &others, 4).await;
    assert_eq!((asked(&only(&driver).await)[0].pool.members.clone(), calls), (others, 3));
    assert_eq!(ids(&changed, HTTP).into_values().collect::<BTreeSet<_>>().len(), 1500);
    let (changed, calls) = set_all(&driver, &changed, HTTP, &numbered(&subnet.id, [7007]), 2).await;
    assert_eq!((ids(&changed, HTTP).len(), calls), (1, 1));
}

#[tokio::test]
async fn a_limit_that_is_lower_than_the_usual_one_is_found_and_remembered() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    fake.state().body_limit = 20 * 1024;
    let wanted = spec(&world, &driver, &subnet, vec![listener(HTTP, numbered(&subnet.id, 0..600))]).await;
    let balancer = made(&driver, &world, &wanted).await;
    let asked = asked_of_octavia(&fake);
    // From 112 KiB to 56, 28 and 14.
    assert_eq!(asked.iter().filter(|call| *call == "POST loadbalancers").count(), 4, "{asked:?}");
    let (_, calls) = set_all(&driver, &balancer, HTTP, &wanted.listeners[0].pool.members, 20).await;
    let asked = asked_of_octavia(&fake);
    assert_eq!(asked.iter().filter(|call| *call == "PUT pools/members").count(), calls, "{asked:?}");
    assert_eq!(crate::scenarios::balancers::asked(&only(&driver).await), wanted.listeners);
}

#[tokio::test]
async fn a_port_that_no_request_holds_is_reported_as_such_and_the_others_are_served() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let ranges = |count: u32| (0..count).map(|number| format!("{}/32", Ipv4Addr::from(0x0b00_0000 + number)));
    let mut ranged = listener(HTTP, members(&subnet, &[1]));
    ranged.settings.allowed_cidrs = ranges(8000).map(|range| range.parse().unwrap()).collect();
    let dns = listener(ListenerPort { port: 81, ..HTTP }, members(&subnet, &[1]));
    let wanted = spec(&world, &driver, &subnet, vec![ranged.clone(), dns.clone()]).await;
    let balancer = made(&driver, &world, &wanted).await;
    let refused = driver.ensure_listener(&balancer, &wanted.listeners[0]).await.unwrap_err();
    assert_eq!((refused.reason(), refused.name()), (Reason::Refused, Some("RequestTooLarge")));
    assert!(refused.to_string().contains("HTTP 413") && refused.to_string().contains("bytes"), "{refused}");
    assert!(!refused.ambiguous() && !refused.transient());
    until_made(&driver, &balancer, &wanted.listeners[1]).await;
}

#[tokio::test]
async fn a_release_that_cannot_add_members_serves_those_that_fit_and_says_that_the_others_do_not() {
    let (fake, world) = crate::fake().await;
    fake.state().octavia.version = 10;
    fake.state().body_limit = 2048;
    let (driver, subnet) = started(&fake, &world).await;
    let wanted = spec(&world, &driver, &subnet, vec![listener(HTTP, numbered(&subnet.id, 0..20))]).await;
    let balancer = made(&driver, &world, &wanted).await;
    let served = asked(&balancer)[0].pool.members.len();
    assert!((1..20).contains(&served), "{served}");
    let refused = driver.set_members(&balancer, HTTP, &wanted.listeners[0].pool.members).await.unwrap_err();
    assert_eq!(refused.name(), Some("RequestTooLarge"));
    assert_eq!(asked(&only(&driver).await)[0].pool.members.len(), served);
}
