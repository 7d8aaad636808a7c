//! The requests to Neutron, and their number.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::Method;
use serde_json::Value;
use staffetta_driver::{Activation, BulkVifDriver, PodVifDriver, Reason, Vif, VifPoolObserver};
use staffetta_openstack::{
    NestedMacvlanDriver, NestedVlanDriver, NeutronVifDriver, PodVifNestedOptions, PortOptions,
};
use staffetta_pool::{MultiVifPool, NoopVifPool};

use crate::scenarios::stock::order;
use crate::scenarios::world::{activated, within};
use crate::{an_hour_passes, fake};

#[tokio::test]
async fn a_pod_costs_one_call_and_its_release_another() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    fake.requests();
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    driver.release_vif(&world.owner("web"), &vif).await.unwrap();
    assert_eq!(fake.requests(), ["POST ports".to_owned(), format!("DELETE ports/{}", vif.id)]);
}

#[tokio::test]
async fn the_activation_of_a_port_waits_for_no_call() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let vif = driver.request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    fake.requests();
    let activation = driver.activate_vif(&world.owner("web"), &vif).await.unwrap();
    // Nothing else runs in between on this thread; the polls follow.
    assert!(matches!(activation, Activation::NotYet { .. }) && fake.requests().is_empty());
}

#[tokio::test]
async fn what_the_marks_showed_is_released_without_another_look() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let vif = world.bound("east").request_vif(&world.request("web", &host, &subnet)).await.unwrap();
    let successor = world.bound("east");
    successor.vifs(None).await.unwrap();
    fake.requests();
    successor.release_vif(&world.owner("other"), &vif).await.unwrap();
    assert!(fake.requests().is_empty());
    successor.release_vif(&world.owner("web"), &vif).await.unwrap();
    assert_eq!(fake.requests(), [format!("DELETE ports/{}", vif.id)]);
}

#[tokio::test]
async fn the_drivers_of_a_multi_pool_share_one_list_of_our_ports_and_one_of_kuryrs() {
    let (fake, world) = fake().await;
    let machine = world.machine(&world.subnet("10.1.0.0/24").await).await;
    let ports = world.marked_ports("east", PortOptions { ovs_bridge: "br-int".into(), port_debug: false });
    let nested = || PodVifNestedOptions {
        worker_nodes_subnets: vec![machine.subnet.id.clone()],
        ..PodVifNestedOptions::default()
    };
    let drivers: [Arc<dyn PodVifDriver>; 3] = [
        Arc::new(NeutronVifDriver::new(Arc::clone(&ports))),
        Arc::new(NestedVlanDriver::new(Arc::clone(&ports), nested())),
        Arc::new(NestedMacvlanDriver::new(ports, nested())),
    ];
    let pools = ["bound", "vlan", "macvlan"].into_iter().zip(drivers);
    let pools = pools.map(|(name, driver)| (name.to_owned(), Arc::new(NoopVifPool::new(driver)) as _));
    let pool = MultiVifPool::new(pools.collect(), "bound", |_| None).unwrap();
    pool.vifs(None).await.unwrap();
    fake.requests();
    pool.resync().await.unwrap();
    pool.unmarked_vifs().await.unwrap();
    let lists = fake.requests().into_iter().filter(|request| request.starts_with("GET ports")).count();
    assert_eq!(lists, 2);
}

#[tokio::test]
async fn one_list_shows_what_is_marked_for_many_who_ask() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let requests: Vec<_> = (0..50).map(|pod| world.request(&format!("pod-{pod}"), &host, &subnet)).collect();
    let driver = world.bound("east");
    let made = join_all(requests[..49].iter().map(|request| driver.request_vif(request))).await;
    world.bound("west").request_vif(&requests[49]).await.unwrap();
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    for tags in [true, false] {
        if !tags {
            fake.state().extensions.remove("tag-ports-during-bulk-creation");
            an_hour_passes().await;
        }
        let driver = if tags { driver.clone() } else { world.bound("east") };
        fake.requests();
        let found = join_all(requests.iter().map(|request| driver.vifs(Some(&request.owner)))).await;
        let found: Vec<Vec<_>> = found
            .into_iter()
            .map(|found| found.unwrap().into_iter().map(|marked| marked.resource.id).collect())
            .collect();
        for (found, made) in found.iter().zip(&made) {
            assert_eq!(*found, [made.as_ref().unwrap().id.clone()]);
        }
        assert!(found[49].is_empty(), "another cluster made it");
        let lists = fake.requests().into_iter().filter(|request| request.starts_with("GET ports?")).count();
        assert!(lists <= 2, "as few as a URL allows: {lists}");
    }
}

#[tokio::test]
async fn one_list_answers_for_many_who_wait() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let requests: Vec<_> = (0..60).map(|pod| world.request(&format!("pod-{pod}"), &host, &subnet)).collect();
    let made = join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let vifs: Vec<_> = made.into_iter().map(Result::unwrap).collect();
    for vif in &vifs {
        world.wire(&vif.id, &host).await;
    }
    // As a process that has just started and read the marks.
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    fake.requests();
    let active =
        join_all(vifs.iter().zip(&requests).map(|(vif, request)| activated(&driver, &request.owner, vif)));
    let active = active.await;
    assert!(active.into_iter().all(|vif| vif.unwrap().active));
    let requests = fake.requests();
    assert!(requests.iter().all(|request| request.starts_with("GET ports?")), "{requests:?}");
    assert_eq!(requests.len(), 1, "they come together");
}

#[tokio::test]
async fn ports_for_which_pods_wait_are_made_by_few_calls() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    fake.requests();
    let requests: Vec<_> = (0..60).map(|pod| world.request(&format!("pod-{pod}"), &host, &subnet)).collect();
    let made = join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let made: BTreeSet<_> = made.into_iter().map(|vif| vif.unwrap().id).collect();
    assert_eq!((made.len(), world.ports(&subnet).await.len()), (60, 60));
    let calls = fake.requests();
    assert!(calls.len() <= 10 && calls.iter().all(|call| call == "POST ports"), "{calls:?}");
}

#[tokio::test]
async fn what_is_refused_to_one_pod_costs_the_others_nothing() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let mut gone = world.subnet("10.2.0.0/24").await;
    gone.network.id = "00000000-0000-4000-8000-0000000000ff".into();
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    fake.requests();
    let requests: Vec<_> = (0..20)
        .map(|pod| world.request(&format!("pod-{pod}"), &host, if pod == 7 { &gone } else { &subnet }))
        .collect();
    let made = join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let refused: Vec<_> = (0..).zip(&made).filter(|(_, vif)| vif.is_err()).map(|(pod, _)| pod).collect();
    assert_eq!((refused, world.ports(&subnet).await.len()), (vec![7], 19));
    let error = made[7].as_ref().unwrap_err();
    assert_eq!((error.reason(), error.ambiguous()), (Reason::NotFound, false));
    assert!(fake.requests().len() < 20, "only those who were in one call with it are asked for one by one");
}

#[tokio::test]
async fn pods_for_which_a_quota_has_no_room_are_not_asked_for_one_by_one() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    fake.state().quota = Some(3);
    fake.requests();
    let requests: Vec<_> = (0..60).map(|pod| world.request(&format!("pod-{pod}"), &host, &subnet)).collect();
    let made = join_all(requests.iter().map(|request| driver.request_vif(request))).await;
    let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!((made.len(), refused.len()), (3, 57));
    assert!(refused.into_iter().all(|error| error.unwrap_err().reason() == Reason::Quota));
    let calls = fake.requests().len();
    assert!(calls <= 30, "{calls} calls for 60 pods");
}

#[tokio::test]
async fn a_pod_that_gives_up_in_the_middle_of_a_call_makes_nobodys_port_twice() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    driver.vifs(None).await.unwrap();
    fake.requests();
    let requests: Vec<_> = (0..8).map(|pod| world.request(&format!("pod-{pod}"), &host, &subnet)).collect();
    let first = driver.request_vif(&requests[0]);
    let others = tokio::spawn(within({
        let (driver, requests) = (driver.clone(), requests.clone());
        async move { join_all(requests[1..].iter().map(|request| driver.request_vif(request))).await }
    }));
    let called = async {
        while fake.requests().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = called => {}
        _ = first => panic!("it gives up first"),
    }
    let made: BTreeSet<_> = others.await.unwrap().into_iter().map(|vif| vif.unwrap().id).collect();
    assert_eq!(made.len(), 7);
    let marked = driver.vifs(None).await.unwrap();
    let owners: BTreeSet<_> = marked.iter().map(|marked| marked.owner.clone().unwrap().name).collect();
    assert_eq!(owners.len(), marked.len(), "one each, and one at most of who gave up");
}

#[tokio::test]
async fn a_list_in_pages_is_read_whole() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    let request = world.request("any", &host, &subnet);
    let order = order(&stock, &request, 10);
    assert_eq!(stock.create_vifs(&order).await.vifs.len(), 10);
    fake.state().page = Some(3);
    assert_eq!(stock.list_vifs().await.unwrap().usable.len(), 10);
}

#[tokio::test]
async fn a_lot_of_ports_is_made_by_one_call_and_bindings_that_come_late_are_read_by_one_list() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    stock.list_vifs().await.unwrap();
    fake.state().binds_late = true;
    fake.requests();
    let request = world.request("any", &host, &subnet);
    let order = order(&stock, &request, 20);
    let made = stock.create_vifs(&order).await;
    assert!(made.failure.is_none() && made.vifs.len() == 20, "{:?}", made.failure);
    assert!(made.vifs.iter().all(|vif| vif.plugin == "ovs" && vif.has_traffic_filtering));
    let requests = fake.requests();
    assert_eq!(requests[0], "POST ports");
    // The first port is asked for alone.
    assert!(
        requests.len() <= 3 && requests[1..].iter().all(|request| request.starts_with("GET ports?")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn what_was_seen_of_a_port_for_one_pod_is_not_reported_to_the_next() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let driver = world.bound("east");
    let stock = driver.clone();
    let request = world.request("any", &host, &subnet);
    let order = order(&stock, &request, 2);
    let [port, other]: [Vif; 2] = stock.create_vifs(&order).await.vifs.try_into().unwrap();
    let pass = async || {
        // Time passes at once; what goes over the network takes as long as it does.
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::time::resume();
    };
    // A pod asks for the port, and leaves before it asks again: the look for another one showed that it is ACTIVE.
    assert!(matches!(
        driver.activate_vif(&world.owner("any"), &port).await.unwrap(),
        Activation::NotYet { .. }
    ));
    for vif in [&port, &other] {
        world.wire(&vif.id, &host).await;
    }
    pass().await;
    fake.requests();
    activated(&driver, &world.owner("any"), &other).await.unwrap();
    assert!(fake.requests()[0].contains(port.id.as_str()), "it was taken along");
    driver.vif_returned(&port.id);
    let (status, _) = world.ask(Method::PUT, &format!("_agent/down/{}", port.id), &Value::Null).await;
    assert_eq!(status, 204);
    pass().await;
    assert!(
        matches!(driver.activate_vif(&world.owner("any"), &port).await.unwrap(), Activation::NotYet { .. }),
        "it is DOWN by now"
    );
    assert_eq!(fake.requests().len(), 1, "the next pod's port is looked at");
}

#[tokio::test]
async fn the_group_of_a_project_is_asked_for_once_and_costs_a_pod_no_call() {
    let (fake, world) = fake().await;
    let (subnet, host) = (world.subnet("10.1.0.0/24").await, world.host("node").await);
    let stock = world.bound("east");
    let request = world.request("any", &host, &subnet);
    let order = order(&stock, &request, 2);
    let made = stock.create_vifs(&order).await.vifs;
    let listed = stock.list_vifs().await.unwrap().usable;
    assert!(listed.len() == 2 && listed.iter().all(|stocked| stocked.security_groups.is_empty()));
    fake.requests();
    for vif in &made {
        stock.set_security_groups(vif, &[]).await.unwrap();
    }
    let changes: Vec<_> = made.iter().map(|vif| format!("PUT ports/{}", vif.id)).collect();
    assert_eq!(fake.requests(), changes);
}
