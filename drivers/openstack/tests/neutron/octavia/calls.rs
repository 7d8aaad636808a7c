//! The requests to Octavia, and their number.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Method;
use staffetta_driver::{
    Algorithm, HealthMonitor, ListenerChange, ListenerDriver, LoadBalancerDriver, LoadBalancerProgress,
    LoadBalancerSpec, ProvisioningStatus, Reason,
};
use staffetta_openstack::OctaviaDefaults;
use tokio::sync::mpsc;

use super::{asked_of_octavia, listeners, made, numbered, started};
use crate::PROJECT;
use crate::fake::Fault;
use crate::scenarios::balancers::{HTTP, ListenerCalls, asked, members, patiently, spec, until_not_pending};

#[tokio::test]
async fn a_load_balancer_costs_one_call_and_a_change_of_its_members_one_and_a_look_at_new_ids() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = driver.ensure_load_balancer(&world.owner("web"), &spec).await.unwrap();
    assert_eq!(asked_of_octavia(&fake), ["POST loadbalancers"]);
    until_not_pending(&driver, &made).await;
    fake.requests();
    let fewer = driver.set_members(&made, HTTP, &members(&subnet, &[1, 2])).await.unwrap();
    assert_eq!((asked_of_octavia(&fake), fewer.len()), (vec!["PUT pools/members".to_owned()], 2));
    let wanted = members(&subnet, &[1, 4]);
    patiently(async || driver.set_members(&made, HTTP, &wanted).await).await;
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
        assert!(trees.len() == 5 && trees.iter().all(|tree| asked(&tree.resource) == spec.listeners));
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
    assert!(trees.len() == 5 && trees.iter().all(|tree| asked(&tree.resource) == spec.listeners));
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
    for end in
        futures_util::future::join_all(waiting.iter().map(|made| until_not_pending(&driver, made))).await
    {
        assert_eq!(end, LoadBalancerProgress::Active);
    }
    let looks = asked_of_octavia(&fake).len();
    // Who waits for a look that is under way needs none of its own.
    assert!(looks <= 8, "{looks} looks at 40 load balancers");
}

#[tokio::test]
async fn a_project_has_four_made_at_a_time_and_who_waits_for_one_gets_it_whatever_became_of_another() {
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
    fake.state().octavia.stuck = true;
    driver.set_members(&made, HTTP, &members(&subnet, &[1])).await.unwrap();
    fake.requests();
    for number in 0..100 {
        let wanted = members(&subnet, &[number + 1]);
        let busy = driver.set_members(&made, HTTP, &wanted).await.unwrap_err();
        assert_eq!((busy.reason(), busy.retry_after().is_some()), (Reason::Conflict, true));
    }
    let calls = asked_of_octavia(&fake);
    assert!(!calls.contains(&"PUT pools/members".to_owned()) && calls.len() <= 3, "{calls:?}");
    assert!(matches!(driver.progress(&made).await.unwrap(), LoadBalancerProgress::Pending { .. }));
}

#[tokio::test]
async fn an_exchange_of_members_is_one_batch_and_what_goes_is_no_member_any_more() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let made = made(&driver, &world, &spec).await;
    fake.state().octavia.delay = Duration::from_secs(600);
    let wanted = members(&subnet, &[1, 2, 4]);
    let set = driver.set_members(&made, HTTP, &wanted).await.unwrap();
    assert_eq!(set.into_iter().map(|member| member.spec).collect::<Vec<_>>(), wanted);
    // Octavia tells of the one that goes until the change is done, and so it does to a process that knows nothing.
    for driver in [&driver, &world.balancers("east", &OctaviaDefaults::default())] {
        let tree = driver.load_balancers(None).await.unwrap().remove(0).resource;
        assert_eq!(tree.status, ProvisioningStatus::Pending);
        assert_eq!(asked(&tree)[0].pool.members, wanted);
    }
}

#[tokio::test]
async fn a_listener_is_changed_by_one_request_a_call_first_its_settings_then_its_pool_and_the_monitor_last() {
    let (fake, world) = crate::fake().await;
    let (driver, subnet) = started(&fake, &world).await;
    let spec = spec(&world, &driver, &subnet, listeners(&subnet)).await;
    let mut balancer = made(&driver, &world, &spec).await;
    let mut wanted = spec.listeners[0].clone();
    wanted.settings.client_timeout_ms = Some(1);
    wanted.pool.settings.algorithm = Some(Algorithm::LeastConnections);
    wanted.pool.settings.monitor = Some(HealthMonitor { delay_s: 5, timeout_s: 3, max_retries: 2 });
    let (release, ensure) = (ListenerChange::Release(HTTP), ListenerChange::Ensure(wanted.clone()));
    let updated = ["PUT listeners", "PUT pools", "POST healthmonitors"];
    let released = ["DELETE pools", "DELETE listeners"];
    let created = ["POST listeners", "POST pools", "POST healthmonitors"];
    for (change, expected) in [(&ensure, &updated[..]), (&release, &released), (&ensure, &created)] {
        for request in expected {
            fake.requests();
            balancer = driver.change_listener(&balancer, change).await.unwrap();
            let mut asked = asked_of_octavia(&fake);
            asked.retain(|call| !call.starts_with("GET"));
            assert_eq!(asked, [*request], "{change:?}");
            assert_eq!(until_not_pending(&driver, &balancer).await, LoadBalancerProgress::Active);
        }
        assert_eq!(balancer.listener(HTTP).is_some_and(|found| wanted.is_made(found)), change == &ensure);
    }
}
