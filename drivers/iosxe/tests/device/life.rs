//! A pod on a device from its beginning to its end, for every kind of interface and every habit of devices.

use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::app_hosting::ReservedResources;
use staffetta_driver::virtual_node::ContainerUsage;
use staffetta_iosxe_device::{
    Accepted, ArpLists, Effect, Empty, ErrorForm, Gone, Narrowed, Options, StopsTo, Style, Times,
};

use crate::world::{
    World, delete, deploy, pod, reads_on, reported, request, runs, until, web, with_variable,
};

/// From nothing to a pod that runs with an address, and back to nothing.
async fn lives(world: &World, spec: &Value) {
    let (driver, request) = (world.driver_by(spec), request(&pod("web", 1, &["app", "side"])));
    let owner = request.owner();
    assert_eq!(reported(&*driver, &owner).await, None);
    deploy(&*driver, &request).await;
    until("there is an address", async || {
        reported(&*driver, &owner).await.is_some_and(|pod| pod.ip.is_some())
    })
    .await;
    let pod = reported(&*driver, &owner).await.unwrap();
    assert!(runs(&pod) && pod.marked && pod.owner == owner, "{pod:?}");
    let names: Vec<_> = pod.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!(names, ["app", "side"]);
    let apps = world.device.apps();
    assert!(apps.len() == 2 && apps.iter().all(staffetta_iosxe_device::HostedApp::runs), "{apps:?}");
    assert!(apps.iter().any(|app| app.address.map(Into::into) == pod.ip), "{apps:?}");
    assert!(apps.iter().all(|app| app.label("cisco.vk/pod-name") == Some("web")));
    let before = world.device.ledger().entries().len();
    deploy(&*driver, &request).await;
    assert_eq!(world.device.ledger().entries().len(), before, "what is there is left as it is");
    delete(&*driver, &owner).await;
    assert_eq!(reported(&*driver, &owner).await, None);
    world.assert_clean();
    world.assert_done_once();
    delete(&*driver, &owner).await;
}

#[tokio::test]
async fn a_pod_lives_on_every_kind_of_interface() {
    let interfaces = [
        json!({ "type": "VirtualPortGroup", "virtualPortGroup": { "dhcp": true } }),
        json!({ "type": "VirtualPortGroup", "virtualPortGroup": { "dhcp": false, "interface": "0" } }),
        json!({ "type": "AppGigabitEthernet", "appGigabitEthernet": { "mode": "access", "dhcp": true } }),
        json!({ "type": "AppGigabitEthernet", "appGigabitEthernet":
            { "mode": "trunk", "vlanIf": { "dhcp": false, "vlan": 100, "guestInterface": 1 } } }),
        json!({ "type": "Management", "management": { "dhcp": false, "guestInterface": 0 } }),
    ];
    for interface in interfaces {
        let world = World::new(|_| ());
        let mut spec = world.spec();
        spec["podCIDR"] = "10.0.0.0/24".into();
        spec["xe"]["networking"]["interface"] = interface;
        lives(&world, &spec).await;
    }
}

#[tokio::test]
async fn a_pod_lives_on_devices_of_all_habits() {
    let habits: [fn(&mut Options); 7] = [
        |options| {
            options.style = Style { error: ErrorForm::Object, empty: Empty::NotFound, ..Style::default() }
        },
        |options| {
            options.style = Style { gone: Gone::DataMissing, accepted: Accepted::Result, ..Style::default() }
        },
        |options| options.style = Style { narrowed: Narrowed::Member, ..Style::default() },
        |options| (options.reports_addresses, options.arp_lists) = (false, ArpLists::Oper),
        |options| (options.reports_addresses, options.arp_lists) = (false, ArpLists::Entry),
        |options| options.stops_to = StopsTo::Stopped,
        |options| (options.auto_start, options.api_root) = (false, "/api/restconf".into()),
    ];
    for habit in habits {
        let world = World::new(habit);
        lives(&world, &world.spec()).await;
    }
}

#[tokio::test]
async fn a_driver_that_forgets_everything_after_each_call_does_nothing_twice() {
    let world = World::new(|_| ());
    let request = request(&pod("web", 1, &["app", "side"]));
    let mut driver = world.driver();
    crate::world::done("deploy", async || {
        let answer = driver.deploy_pod(&request).await;
        if !reads_on(&answer) {
            driver = world.driver();
        }
        answer
    })
    .await;
    assert!(runs(&reported(&*world.driver(), &request.owner()).await.unwrap()));
    crate::world::done("delete", async || {
        let answer = driver.delete_pod(&request.owner()).await;
        if !reads_on(&answer) {
            driver = world.driver();
        }
        answer
    })
    .await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn a_container_that_changes_is_made_anew_and_its_sibling_goes_on() {
    let world = World::new(|_| ());
    let driver = world.driver();
    let mut pod = pod("web", 1, &["app", "side"]);
    deploy(&*driver, &request(&pod)).await;
    pod["spec"]["containers"][0]["image"] = "flash:/other.tar".into();
    pod["metadata"]["labels"] = json!({ "new": "label" });
    let changed = request(&pod);
    crate::world::done("update", async || driver.update_pod(&changed).await).await;
    until("it runs again", async || reported(&*driver, &changed.owner()).await.is_some_and(|pod| runs(&pod)))
        .await;
    let packages: Vec<_> = world.device.apps().into_iter().filter_map(|app| app.package).collect();
    assert!(packages.contains(&"flash:/other.tar".to_owned()), "{packages:?}");
    let ledger = world.device.ledger();
    let mut installs: Vec<_> = ledger.installs().into_values().collect();
    installs.sort_unstable();
    assert_eq!(installs, [1, 2]);
    assert_eq!(ledger.entries().iter().filter(|entry| entry.effect == Effect::Unconfigured).count(), 1);
    delete(&*driver, &changed.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_app_that_ended_by_itself_is_started_again_if_its_pod_wants_that() {
    for (policy, again) in [("Always", true), ("Never", false)] {
        let world = World::new(|_| ());
        let driver = world.driver();
        let mut pod = pod("web", 1, &["app"]);
        pod["spec"]["restartPolicy"] = policy.into();
        let request = request(&pod);
        deploy(&*driver, &request).await;
        let name = world.device.apps()[0].name.clone();
        assert!(world.device.crash(&name));
        if again {
            let starts = || world.device.ledger().of(&name).filter(|one| **one == Effect::Started).count();
            until("it was started again", async || {
                driver.deploy_pod(&request).await.unwrap();
                starts() == 2
            })
            .await;
        } else {
            until("it is told", async || !runs(&reported(&*driver, &request.owner()).await.unwrap())).await;
            assert!(driver.deploy_pod(&request).await.unwrap().is_done(), "it may stay as it is");
        }
        assert_eq!(world.device.ledger().installs()[name.as_str()], 1, "it is not installed again");
        delete(&*driver, &request.owner()).await;
        world.assert_clean();
    }
}

#[tokio::test]
async fn the_environment_and_the_resources_of_a_container_reach_the_device() {
    let world = World::new(|_| ());
    let driver = world.driver();
    let mut pod = pod("web", 1, &["app"]);
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "2", "memory": "256Mi" } });
    let request = with_variable(request(&pod), "app", "MODE", "edge");
    deploy(&*driver, &request).await;
    let apps = world.device.apps();
    assert!(apps[0].run_opts.iter().any(|line| line.contains("MODE=edge")), "{apps:?}");
    let left = driver.get_device_resources().await.unwrap();
    let reserved = (left.cpu_millis - left.free_cpu_millis, left.memory_bytes - left.free_memory_bytes);
    assert_eq!(reserved, (2000, 256 << 20));
    assert_eq!(left.storage_bytes - left.free_storage_bytes, 1 << 30, "the default");
    assert_eq!(left.taken, ReservedResources::default(), "it is ours");
    // The device says 3 % of the CPU, and a quarter of the rest.
    let used = ContainerUsage {
        name: "app".into(),
        cpu_nanocores: Some(60_000_000),
        memory_bytes: Some(64 << 20),
        storage_bytes: Some(256 * 1024 * 1000),
    };
    let usage = driver.get_usage().await.unwrap();
    assert_eq!(usage.len(), 1, "{usage:?}");
    assert_eq!((&usage[0].owner, &usage[0].containers[..]), (&request.owner(), &[used][..]));
    assert!(usage[0].received_bytes.is_some() && usage[0].sent_bytes.is_some(), "{usage:?}");
    let info = driver.get_device_info().await.unwrap();
    assert_eq!((&*info.serial_number, &*info.software_version), ("9ESQK0SIM01", "17.15.1a"));
    delete(&*driver, &request.owner()).await;
    delete(&*driver, &web().owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn a_device_whose_steps_take_a_second_gets_each_step_once() {
    for auto_start in [true, false] {
        let mut world = World::new(|options| {
            options.times = Times::each(Duration::from_secs(1));
            options.auto_start = auto_start;
        });
        world.options.step_limit_ms = std::num::NonZeroU64::new(3000).unwrap();
        let driver = world.driver();
        let request = request(&pod("web", 1, &["app"]));
        deploy(&*driver, &request).await;
        delete(&*driver, &request.owner()).await;
        world.assert_done_once();
        world.assert_clean();
    }
}
