//! States that nobody knows, numbers out of range, and names of the greatest length.

use serde_json::json;
use staffetta_driver::app_hosting::HostedState;
use staffetta_iosxe_device::{Fault, Requests};

use crate::world::{World, delete, deploy, pod, request, runs, told, until, web};

#[tokio::test]
async fn a_state_that_nobody_knows_is_waited_out() {
    let world = World::new(|_| ());
    let (driver, request) = (world.driver(), web());
    deploy(&*driver, &request).await;
    let name = world.device.apps()[0].name.clone();
    world.device.show_state(&name, Some("HIBERNATING"));
    until("it is told", async || {
        let pod = told(&*driver, &request.owner()).await.unwrap();
        matches!(&pod.containers[0].state, HostedState::Waiting { message, .. } if message.contains("HIBERNATING"))
    })
    .await;
    let before = world.device.ledger().entries().len();
    for _ in 0..5 {
        assert!(!driver.deploy_pod(&request).await.unwrap().is_done());
        assert!(!driver.delete_pod(&request.owner()).await.unwrap().is_done());
    }
    assert_eq!(world.device.ledger().entries().len(), before, "nothing is done on a guess");
    world.device.show_state(&name, None);
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn numbers_out_of_range_are_no_reason_to_fall() {
    let world = World::new(|_| ());
    let (driver, request) = (world.driver(), web());
    deploy(&*driver, &request).await;
    let data = "/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";
    for (place, value) in [
        ("app-resources/0/memory/0/quota", json!(-5)),
        ("app-resources/0/cpu/0/quota-unit", json!("99999999999999999999999")),
        ("app/0/utilization/memory-util/memory-used", json!("many")),
        ("app/0/network-interfaces/network-interface/0/ipv4-address", json!("999.1.1.1")),
        ("app/0/details/resource-reservation/memory", json!(1.5)),
    ] {
        let fault = Fault::Replace { pointer: format!("{data}/{place}"), value };
        world.device.inject(Requests::any().path("app-hosting-oper-data"), 3, fault);
        let _ = driver.get_device_resources().await;
        let _ = driver.get_usage().await;
        let _ = driver.list_pods().await;
        world.device.clear_faults();
        assert!(runs(&told(&*driver, &request.owner()).await.unwrap()), "{place}");
    }
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn names_of_the_greatest_length_fit() {
    let world = World::new(|_| ());
    let driver = world.driver();
    let container = "c".repeat(63);
    let mut pod = pod(&"p".repeat(253), 1, &[&container]);
    pod["metadata"]["namespace"] = "n".repeat(63).into();
    let request = request(&pod);
    deploy(&*driver, &request).await;
    let told = told(&*world.driver(), &request.owner()).await.unwrap();
    assert!(runs(&told) && told.owner.uid == request.owner().uid);
    assert_eq!(told.containers[0].name, container);
    delete(&*world.driver(), &request.owner()).await;
    world.assert_clean();
    world.assert_done_once();
}
