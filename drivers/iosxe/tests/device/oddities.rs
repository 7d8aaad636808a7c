//! States that nobody knows, numbers out of range, and names of the greatest length.

use serde_json::{Value, json};
use staffetta_driver::app_hosting::{DeviceResources, HostedContainerState, HostedPod};
use staffetta_driver::virtual_node::ContainerUsage;
use staffetta_iosxe_device::{Fault, Requests};

use crate::world::{World, delete, deploy, pod, reported, request, runs, until, web};

#[tokio::test]
async fn a_state_that_nobody_knows_is_waited_out() {
    let mut world = World::new(|_| ());
    world.options.step_limit_ms = 30_000.try_into().unwrap();
    let (driver, request) = (world.driver(), web());
    deploy(&*driver, &request).await;
    let name = world.device.apps()[0].name.clone();
    world.device.show_state(&name, Some("HIBERNATING"));
    until("it is told", async || {
        let pod = reported(&*driver, &request.owner()).await.unwrap();
        matches!(&pod.containers[0].state, HostedContainerState::Waiting { message, .. } if message.contains("HIBERNATING"))
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

/// The reported resources, container usage and pod.
type Reported = (DeviceResources, ContainerUsage, HostedPod);
type Holds = fn(&Reported) -> bool;

#[tokio::test]
async fn numbers_out_of_range_are_no_reason_to_fall() {
    let world = World::new(|_| ());
    let (driver, request) = (world.driver(), web());
    deploy(&*driver, &request).await;
    let data = "/Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data";
    let places: [(&str, Value, Holds); 6] = [
        ("app-resources/0/memory/0/quota", json!(-5), |(has, ..)| {
            has.memory_bytes == 0 && has.cpu_millis > 0
        }),
        ("app-resources/0/cpu/0/quota-unit", json!("99999999999999999999999"), |(has, ..)| {
            has.cpu_millis == 0 && has.memory_bytes > 0
        }),
        ("app/0/utilization/memory-util/memory-used", json!("many"), |(_, used, _)| {
            used.memory_bytes.is_none() && used.cpu_nanocores.is_some()
        }),
        ("app/0/details/resource-reservation/cpu", json!(1.5), |(_, used, _)| {
            used.cpu_nanocores.is_none() && used.memory_bytes.is_some()
        }),
        // The address table knows it.
        ("app/0/network-interfaces/network-interface/0/ipv4-address", json!("999.1.1.1"), |(.., pod)| {
            pod.ip.is_some()
        }),
        ("app/0/network-interfaces", json!(null), |(.., pod)| pod.ip.is_none()),
    ];
    for (place, value, holds) in places {
        let fault = Fault::Replace { pointer: format!("{data}/{place}"), value };
        world.device.inject(Requests::any().path("app-hosting-oper-data"), 100, fault);
        // One that knows nothing of the answers before.
        let other = world.driver();
        let usage = other.get_usage().await.unwrap().remove(0).containers.remove(0);
        let resources = other.get_device_resources().await.unwrap();
        let reported = (resources, usage, reported(&*other, &request.owner()).await.unwrap());
        assert!(runs(&reported.2) && holds(&reported), "{place}: {reported:?}");
        world.device.clear_faults();
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
    let reported = reported(&*world.driver(), &request.owner()).await.unwrap();
    assert!(runs(&reported) && reported.owner.uid == request.owner().uid);
    assert_eq!(reported.containers[0].name, container);
    delete(&*world.driver(), &request.owner()).await;
    world.assert_clean();
    world.assert_done_once();
}
