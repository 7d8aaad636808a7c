//! The guarantees of the public address driver.

use std::time::Duration;

use staffetta_driver::{Allocation, Owned, PublicIpRequest, Reason};
use staffetta_memory::MemoryOptions;

use crate::world::{Place, any_address, balancer, instant, owner};

laws! {
    an_address_belongs_to_one_owner_and_leads_where_it_should,
    an_empty_pool_says_when_an_address_will_have_rested,
    an_address_that_the_user_named_must_exist,
}

async fn an_address_belongs_to_one_owner_and_leads_where_it_should(place: Place) {
    let drivers = place.drivers(instant());
    let made = drivers.balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    let taken = drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap();
    assert_eq!((taken.allocation, &taken.port), (Allocation::Pool, &None));
    assert_eq!(drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap(), taken);
    let nowhere = drivers.public_ips.associate(&taken, &"elsewhere".into()).await.unwrap_err();
    assert_eq!(nowhere.reason(), Reason::NotFound);
    drivers.public_ips.associate(&taken, &made.port).await.unwrap();
    let marked = drivers.public_ips.public_ips(Some(&owner("a"))).await.unwrap();
    let leading = staffetta_driver::PublicIp { port: Some(made.port.clone()), ..taken.clone() };
    assert_eq!(marked, [Owned { owner: Some(owner("a")), resource: leading }]);
    drivers.public_ips.disassociate(&taken, &made.port).await.unwrap();
    drivers.public_ips.release(&owner("b"), &taken).await.unwrap();
    let marked = drivers.public_ips.public_ips(None).await.unwrap();
    assert_eq!(marked, [Owned { owner: Some(owner("a")), resource: taken.clone() }]);
    drivers.public_ips.release(&owner("a"), &taken).await.unwrap();
    assert_eq!(drivers.public_ips.public_ips(None).await.unwrap(), []);
}

async fn an_empty_pool_says_when_an_address_will_have_rested(place: Place) {
    let hour = Duration::from_secs(3600);
    let public_ips = "203.0.113.0/30".parse().unwrap();
    let drivers = place.drivers(MemoryOptions { public_ips, cool_down_ms: 3_600_000, ..instant() });
    let taken = drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap();
    let empty = drivers.public_ips.acquire(&owner("b"), &any_address()).await.unwrap_err();
    assert_eq!((empty.reason(), empty.retry_after()), (Reason::NoAddress, None));
    drivers.public_ips.release(&owner("a"), &taken).await.unwrap();
    let rested =
        drivers.public_ips.acquire(&owner("b"), &any_address()).await.unwrap_err().retry_after().unwrap();
    assert!(hour / 2 < rested && rested <= hour, "{rested:?}");
}

async fn an_address_that_the_user_named_must_exist(place: Place) {
    let drivers = place.drivers(instant());
    let named = PublicIpRequest { named: Some([192, 0, 2, 1].into()), ..any_address() };
    let missing = drivers.public_ips.acquire(&owner("a"), &named).await.unwrap_err();
    assert_eq!((missing.reason(), missing.transient()), (Reason::NotFound, false));
    assert!(missing.to_string().contains("there is no 192.0.2.1"), "{missing}");
}
