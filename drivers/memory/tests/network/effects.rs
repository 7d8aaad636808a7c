//! The effects that are logged of the calls.

use staffetta_driver::Reason;
use staffetta_memory::http::{EffectKind, Fault, Method, ResourceKind};

use crate::world::{HTTP, ListenerCalls, Remote, any_address, balancer, http, instant, member, owner};

#[tokio::test]
async fn each_effect_has_one_entry_that_says_what_for_whom_and_by_which_request() {
    let remote = Remote::start(instant());
    let drivers = remote.drivers("east");
    let vif = drivers.vifs.request_vif(&drivers.vif_request("a").await).await.unwrap();
    drivers.vifs.release_vif(&owner("b"), &vif).await.unwrap();
    drivers.vifs.vifs(None).await.unwrap();
    drivers.vifs.activate_vif(&owner("a"), &vif).await.unwrap();
    drivers.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    drivers.vifs.release_vif(&owner("a"), &vif).await.unwrap();
    let ledger = remote.client.effects().await.unwrap();
    let entries: Vec<_> = ledger.entries().iter().collect();
    let [made, released] = entries[..] else { panic!("two calls took effect: {ledger:#?}") };
    assert_eq!((made.effect, released.effect), (EffectKind::Created, EffectKind::Released));
    for entry in [made, released] {
        assert_eq!((entry.kind, entry.id.as_str()), (ResourceKind::Port, vif.id.as_str()));
        assert_eq!(entry.owner.as_ref(), Some(&owner("a")));
    }
    assert_ne!(made.request_id, released.request_id);
}

#[tokio::test]
async fn the_error_of_a_call_names_the_request_that_the_ledger_names() {
    let remote = Remote::start(instant());
    let drivers = remote.drivers("east");
    let request = drivers.vif_request("a").await;
    let outage = staffetta_driver::DriverError::new(Reason::Unavailable, "make a port");
    drivers.inject(Method::RequestVif, Fault::DoneThenFail(outage)).await;
    let error = drivers.vifs.request_vif(&request).await.unwrap_err().to_string();
    let ledger = remote.client.effects().await.unwrap();
    let id = ledger.entries()[0].request_id.clone().unwrap();
    assert!(error.ends_with(&format!("(it may have taken effect) (request {id})")), "{error}");
}

#[tokio::test]
async fn the_life_of_a_service_stands_there_in_order() {
    let remote = Remote::start(instant());
    let drivers = remote.drivers("east");
    let balancers = &drivers.balancers;
    let made = balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    balancers.ensure_load_balancer(&owner("a"), &balancer("10.0.0.1")).await.unwrap();
    let listener = balancers.ensure_listener(&made, &http()).await.unwrap();
    balancers.ensure_listener(&made, &http()).await.unwrap();
    for _ in 0..2 {
        balancers.set_members(&made, HTTP, &[member("10.1.0.1")]).await.unwrap();
    }
    let address = drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap();
    drivers.public_ips.acquire(&owner("a"), &any_address()).await.unwrap();
    drivers.public_ips.associate(&address, &made.port).await.unwrap();
    drivers.public_ips.associate(&address, &made.port).await.unwrap();
    drivers.public_ips.disassociate(&address, &made.port).await.unwrap();
    drivers.public_ips.release(&owner("a"), &address).await.unwrap();
    balancers.release_listener(&made, &listener).await.unwrap();
    balancers.release_load_balancer(&owner("a"), &made.id).await.unwrap();
    let ledger = remote.client.effects().await.unwrap();
    let effects: Vec<_> = ledger.entries().iter().map(|entry| (entry.effect, entry.kind)).collect();
    let expected = [
        (EffectKind::Created, ResourceKind::LoadBalancer),
        (EffectKind::Changed, ResourceKind::LoadBalancer),
        (EffectKind::Changed, ResourceKind::LoadBalancer),
        (EffectKind::Created, ResourceKind::PublicIp),
        (EffectKind::Changed, ResourceKind::PublicIp),
        (EffectKind::Changed, ResourceKind::PublicIp),
        (EffectKind::Released, ResourceKind::PublicIp),
        (EffectKind::Changed, ResourceKind::LoadBalancer),
        (EffectKind::Released, ResourceKind::LoadBalancer),
    ];
    assert_eq!(effects, expected);
    assert!(ledger.entries().iter().all(|entry| entry.owner == Some(owner("a"))));
}

#[tokio::test]
async fn what_exists_is_shown_with_its_owners() {
    let remote = Remote::start(instant());
    let drivers = remote.drivers("east");
    let request = drivers.vif_request("a").await;
    let vif = drivers.vifs.request_vif(&request).await.unwrap();
    let port = remote.client.ports().await.unwrap().remove(0);
    assert_eq!((port.vif, port.owner, port.cluster), (vif, Some(owner("a")), Some("east".into())));
    assert_eq!((port.node_name, port.project), (request.node_name, request.project));
    assert_eq!(port.security_groups, request.security_groups);
    let made = drivers.balancers.ensure_load_balancer(&owner("b"), &balancer("10.0.0.1")).await.unwrap();
    let shown = remote.client.load_balancers().await.unwrap().remove(0);
    assert_eq!((shown.owner, shown.resource), (Some(owner("b")), made));
    let taken = drivers.public_ips.acquire(&owner("b"), &any_address()).await.unwrap();
    let shown = remote.client.public_ips().await.unwrap().remove(0);
    assert_eq!((shown.owner, shown.resource), (Some(owner("b")), taken));
}
