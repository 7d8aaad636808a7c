//! Injected faults have the same results in the process and over HTTP.

use std::error::Error;
use std::time::{Duration, Instant};

use staffetta_driver::{DriverError, Reason, VifRequest};
use staffetta_memory::http::{Fault, Method};

use crate::world::{Drivers, PATIENCE, Place, any_address, balancer, instant, owner};

/// Longer than any test.
const HOUR: Duration = Duration::from_secs(3600);

laws! {
    a_call_that_fails_did_nothing_and_its_error_arrives_whole,
    a_lost_answer_is_ambiguous_and_its_mark_finds_what_was_made,
    a_call_that_hangs_did_nothing_and_one_that_hangs_afterwards_did_all,
    a_delayed_call_is_done_late_and_a_delayed_answer_at_once,
    a_fault_hits_one_call_of_its_method,
}

fn outage() -> DriverError {
    DriverError::new(Reason::Unavailable, "ask the switch")
        .detail("it is rebooting")
        .after(Duration::from_secs(5))
        .because(std::io::Error::other("broken pipe"))
}

async fn a_call_that_fails_did_nothing_and_its_error_arrives_whole(place: Place) {
    let drivers = place.drivers(instant());
    let request = drivers.vif_request("a").await;
    drivers.inject(Method::RequestVif, Fault::Fail(outage())).await;
    let error = drivers.vifs.request_vif(&request).await.unwrap_err();
    assert!(error.to_string().starts_with(&outage().to_string()), "{error}");
    assert_eq!((error.reason(), error.ambiguous()), (Reason::Unavailable, false));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(5)));
    assert_eq!(error.source().unwrap().to_string(), "broken pipe");
    assert_eq!(drivers.vifs.vifs(None).await.unwrap(), []);
}

async fn a_lost_answer_is_ambiguous_and_its_mark_finds_what_was_made(place: Place) {
    let drivers = place.drivers(instant());
    let request = drivers.vif_request("a").await;
    drivers.inject(Method::RequestVif, Fault::DoneThenFail(outage())).await;
    assert!(drivers.vifs.request_vif(&request).await.unwrap_err().ambiguous());
    let found = drivers.vifs.vifs(Some(&owner("a"))).await.unwrap().remove(0).resource;
    drivers.vifs.release_vif(&owner("a"), &found).await.unwrap();

    drivers.inject(Method::EnsureLoadBalancer, Fault::DoneThenFail(outage())).await;
    let spec = balancer("10.0.0.1");
    assert!(drivers.balancers.ensure_load_balancer(&owner("a"), &spec).await.unwrap_err().ambiguous());
    let found = drivers.balancers.load_balancers(Some(&owner("a"))).await.unwrap().remove(0).resource;
    assert_eq!(drivers.balancers.ensure_load_balancer(&owner("a"), &spec).await.unwrap(), found);

    drivers.inject(Method::AcquirePublicIp, Fault::DoneThenFail(outage())).await;
    assert!(drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap_err().ambiguous());
    let found = drivers.public_ips.public_ips(Some(&owner("a"))).await.unwrap().remove(0).resource;
    assert_eq!(drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap(), found);
}

async fn a_call_that_hangs_did_nothing_and_one_that_hangs_afterwards_did_all(place: Place) {
    let drivers = place.drivers(instant());
    let request = drivers.vif_request("a").await;
    drivers.inject(Method::RequestVif, Fault::Hang).await;
    second_of_two(&drivers, &request).await;
    assert_eq!(drivers.vifs.vifs(None).await.unwrap().len(), 1);

    drivers.inject(Method::RequestVif, Fault::DoneThenHang).await;
    until_listed(&drivers, &request, 2).await;
}

async fn a_delayed_call_is_done_late_and_a_delayed_answer_at_once(place: Place) {
    let drivers = place.drivers(instant());
    let request = drivers.vif_request("a").await;
    let begun = Instant::now();
    drivers.inject(Method::RequestVif, Fault::Delay(Duration::from_millis(20))).await;
    drivers.vifs.request_vif(&request).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(20));

    drivers.inject(Method::RequestVif, Fault::Delay(HOUR)).await;
    second_of_two(&drivers, &request).await;
    assert_eq!(drivers.vifs.vifs(None).await.unwrap().len(), 2);

    drivers.inject(Method::RequestVif, Fault::DoneThenDelay(HOUR)).await;
    until_listed(&drivers, &request, 3).await;
}

/// Makes two calls of which the first that arrives meets a fault and does not end.
async fn second_of_two(drivers: &Drivers, request: &VifRequest) {
    tokio::select! {
        answer = drivers.vifs.request_vif(request) => drop(answer.unwrap()),
        answer = drivers.vifs.request_vif(request) => drop(answer.unwrap()),
    }
}

/// Makes a call that does its work and does not end, until so many VIFs are listed.
async fn until_listed(drivers: &Drivers, request: &VifRequest, number: usize) {
    let listed = async {
        while drivers.vifs.vifs(None).await.unwrap().len() < number {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        answer = drivers.vifs.request_vif(request) => panic!("it answered: {answer:?}"),
        listed = tokio::time::timeout(PATIENCE, listed) => listed.expect("the work is done"),
    }
}

async fn a_fault_hits_one_call_of_its_method(place: Place) {
    let drivers = place.drivers(instant());
    let vif = drivers.vifs.request_vif(&drivers.vif_request("a").await).await.unwrap();
    drivers.inject(Method::ReleaseVif, Fault::Fail(outage())).await;
    drivers.inject(Method::ListVifs, Fault::Fail(outage())).await;
    assert!(drivers.vifs.vifs(None).await.is_err());
    assert!(drivers.vifs.release_vif(&owner("a"), &vif).await.is_err());
    assert_eq!(drivers.vifs.vifs(None).await.unwrap().len(), 1);
    drivers.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    assert_eq!(drivers.vifs.vifs(None).await.unwrap(), []);
}
