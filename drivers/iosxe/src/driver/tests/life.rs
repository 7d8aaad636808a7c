//! Tests of deploying, changing and deleting pods.

use super::*;

const UP: [&str; 4] = ["configure", "install", "activate", "start"];
const DOWN: [&str; 4] = ["stop", "deactivate", "uninstall", "remove"];

#[tokio::test(start_paused = true)]
async fn a_pod_comes_and_goes_with_each_step_once_and_leaves_nothing() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), steps(&UP, 1));
    let hosted = status(&driver, 1).await.unwrap();
    assert_eq!((hosted.owner, hosted.marked), (pod(1).owner(), true));
    assert_eq!(hosted.containers[0].state, HostedContainerState::Running);
    assert_eq!(hosted.containers[0].id, format!("cisco://{}", id(1)));
    assert!(driver.deploy_pod(&pod(1)).await.unwrap().is_done());
    delete(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), steps(&DOWN, 1));
    assert!(device.inner().config.is_empty() && device.inner().oper.is_empty());
    assert!(status(&driver, 1).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_step_adds_no_more_than_half_a_second_to_the_time_of_the_device() {
    let device = Arc::new(Device::default());
    let begun = Instant::now();
    deploy(&driver(&device), &pod(1)).await;
    let changes = 3;
    assert!(
        begun.elapsed()
            <= (device::DELAY + Duration::from_millis(500)) * changes + Duration::from_millis(500)
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_is_replaced_after_every_step_does_the_same() {
    let device = Arc::new(Device::default());
    let mut driver = driver_of(&device, "east", &json!({}));
    for (words, down) in [(UP, false), (DOWN, true)] {
        let mut steps_before = 0;
        for _ in 0..200 {
            // A new one reads several times before it takes something for absent.
            let steps_taken = device.inner().accepted.len();
            if steps_taken != std::mem::replace(&mut steps_before, steps_taken) {
                driver = driver_of(&device, "east", &json!({}));
            }
            let progress = if down {
                driver.delete_pod(&pod(1).owner()).await.unwrap()
            } else {
                driver.deploy_pod(&pod(1)).await.unwrap()
            };
            match progress {
                PodProgress::Done => break,
                _ => tokio::time::sleep(device::DELAY).await,
            }
        }
        assert_eq!(device.accepted(), steps(&words, 1));
    }
    assert!(device.inner().config.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_at_the_same_time_are_installed_one_after_another() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    let pods: Vec<_> = (1..=5).map(pod).collect();
    tokio::join!(
        deploy(&driver, &pods[0]),
        deploy(&driver, &pods[1]),
        deploy(&driver, &pods[2]),
        deploy(&driver, &pods[3]),
        deploy(&driver, &pods[4]),
    );
    let listed = driver.list_pods().await.unwrap().len();
    assert_eq!((device.inner().parallel, listed), (1, 5));
}

#[tokio::test(start_paused = true)]
async fn the_containers_of_a_pod_are_applications_in_its_order() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    let containers = json!([
        { "name": "z", "image": "flash:/a.tar" }, { "name": "a", "image": "flash:/b.tar" },
    ]);
    let pod = pod_with(1, &containers, "Always");
    deploy(&driver, &pod).await;
    let hosted = driver.get_pod_status(&pod.owner()).await.unwrap().unwrap();
    let names: Vec<_> = hosted.containers.iter().map(|container| container.name.as_str()).collect();
    assert_eq!((names, device.inner().parallel), (vec!["z", "a"], 1));
}

#[tokio::test(start_paused = true)]
async fn each_pod_has_an_address_of_its_own_and_one_that_was_given_back_rests() {
    let device = Arc::new(Device::default());
    let driver = driver_of(&device, "east", &with_addresses("10.0.0.0/30"));
    deploy(&driver, &pod(1)).await;
    let ip = status(&driver, 1).await.unwrap().ip;
    assert_eq!(ip, Some("10.0.0.2".parse().unwrap()));
    let full = driver.deploy_pod(&pod(2)).await.unwrap_err();
    assert_eq!((full.reason(), full.retry_after()), (Reason::NoAddress, None));
    delete(&driver, &pod(1)).await;
    let cooling = driver.deploy_pod(&pod(2)).await.unwrap_err();
    tokio::time::sleep(cooling.retry_after().unwrap()).await;
    deploy(&driver, &pod(2)).await;
    assert_eq!(status(&driver, 2).await.unwrap().ip, ip);
}

#[tokio::test(start_paused = true)]
async fn the_containers_of_a_pod_have_an_address_each_and_that_of_the_first_is_the_pods() {
    let device = Arc::new(Device::default());
    let driver = driver_of(&device, "east", &with_addresses("10.0.0.0/29"));
    let containers =
        json!([{ "name": "b", "image": "flash:/a.tar" }, { "name": "a", "image": "flash:/b.tar" }]);
    let pod = pod_with(1, &containers, "Always");
    deploy(&driver, &pod).await;
    let given = |app: &Value| {
        app["application-network-resource"]["virtualportgroup-guest-ip-address-1"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let mut addresses: Vec<_> = device.inner().config.values().map(given).collect();
    addresses.sort();
    assert_eq!(addresses, ["10.0.0.2", "10.0.0.3"]);
    let hosted = driver.get_pod_status(&pod.owner()).await.unwrap().unwrap();
    assert_eq!(hosted.ip, Some("10.0.0.2".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_somebody_else_has_is_not_handed_out() {
    let configured = |more: Value| {
        let mut app = json!({ "application-name": "foreign" });
        app.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (Some(app), json!([]))
    };
    let network = |leaf: &str| json!({ "application-network-resource": { leaf: "10.0.0.2" } });
    for (config, interfaces) in [
        configured(network("virtualportgroup-guest-ip-address-1")),
        configured(network("virtualportgroup-guest-ip-address-3")),
        configured(
            json!({ "appintf-mgmt-vlans": { "appintf-mgmt-vlan": [{ "mgmt-vlan-param": { "guest-ip": "10.0.0.2" } }] } }),
        ),
        (None, json!([{ "ipv4-address": "0.0.0.0" }, { "ipv4-address": "10.0.0.2" }])),
    ] {
        let device = Arc::new(Device::default());
        let driver = driver_of(&device, "east", &with_addresses("10.0.0.0/29"));
        let mut oper = Oper::in_state("RUNNING");
        oper.interfaces = interfaces;
        device.inner().oper.insert("foreign".into(), oper);
        driver.list_pods().await.unwrap();
        // It got its address a moment ago.
        let what = format!("{config:?}");
        device.inner().config.extend(config.map(|app| ("foreign".to_owned(), app)));
        deploy(&driver, &pod(1)).await;
        let ip = status(&driver, 1).await.unwrap().ip;
        assert_eq!(ip, Some("10.0.0.3".parse().unwrap()), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_arp_table_shows_is_not_handed_out_unless_an_app_of_ours_had_it() {
    let device = Arc::new(Device::default());
    let driver = driver_of(&device, "east", &with_addresses("10.0.0.0/29"));
    let show = |mode: &str, address: &str, mac: &str| {
        let entry = json!({ "address": address, "hardware": mac, "mode": mode });
        let table = json!({ "arp-vrf": [{ "vrf": "Default", "arp-entry": [entry] }] });
        device.inner().arp = Some(json!({ "Cisco-IOS-XE-arp-oper:arp-data": table }));
    };
    let deployed = async |number| {
        deploy(&driver, &pod(number)).await;
        status(&driver, number).await.unwrap().ip.unwrap().to_string()
    };
    show("ios-arp-mode-dynamic", "10.0.0.2", "0200.0000.0001");
    assert_eq!(deployed(1).await, "10.0.0.3");
    let interfaces = json!([{ "mac-address": "52:54:dd:dc:f1:7c", "ipv4-address": "10.0.0.3" }]);
    device.inner().oper.get_mut(&id(1)).unwrap().interfaces = interfaces;
    tokio::time::sleep(Duration::from_secs(1)).await;
    driver.list_pods().await.unwrap();
    delete(&driver, &pod(1)).await;
    show("ios-arp-mode-dynamic", "10.0.0.3", "5254.dddc.f17c");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((&*deployed(2).await, &*deployed(3).await), ("10.0.0.2", "10.0.0.3"));
    show("ios-arp-mode-incomplete", "10.0.0.4", "0000.0000.0000");
    assert_eq!(deployed(4).await, "10.0.0.4", "nobody answered");
}

#[tokio::test(start_paused = true)]
async fn another_image_makes_the_application_anew_and_another_label_does_nothing() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    device.accepted();
    let mut labelled = pod(1);
    Arc::make_mut(&mut labelled.pod).metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    assert!(driver.update_pod(&labelled).await.unwrap().is_done());
    let changed = pod_with(1, &json!([{ "name": "app", "image": "flash:/b.tar" }]), "Always");
    assert!(!driver.update_pod(&changed).await.unwrap().is_done());
    deploy(&driver, &changed).await;
    assert_eq!(device.accepted(), [steps(&DOWN, 1), steps(&UP, 1)].concat());
}

#[tokio::test(start_paused = true)]
async fn what_ended_is_started_again_only_where_the_policy_says_so() {
    for (policy, expected) in [("Always", vec!["start"]), ("OnFailure", vec![]), ("Never", vec![])] {
        let device = Arc::new(Device::default());
        let driver = driver(&device);
        let pod = pod_with(1, &json!([{ "name": "app", "image": "flash:/a.tar" }]), policy);
        deploy(&driver, &pod).await;
        device.accepted();
        // Longer than the limit of the last start.
        tokio::time::sleep(Duration::from_secs(60)).await;
        device.inner().oper.insert(id(1), Oper::in_state("STOPPED"));
        deploy(&driver, &pod).await;
        assert_eq!(device.accepted(), steps(&expected, 1), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn answers_that_did_not_change_make_the_same_list_and_an_address_comes_from_the_table() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    let interfaces = json!([{ "mac-address": "52:54:dd:dc:f1:7c", "ipv4-address": "0.0.0.0" }]);
    device.inner().oper.get_mut(&id(1)).unwrap().interfaces = interfaces;
    tokio::time::sleep(STEP_MAX_AGE).await;
    let before = driver.list_pods().await.unwrap();
    assert_eq!(before[0].ip, None);
    let table = json!({ "Cisco-IOS-XE-arp-oper:arp-data": { "arp-vrf": [{ "vrf": "Default", "arp-entry": [
        { "address": "192.0.2.7", "interface": "VirtualPortGroup0", "hardware": "5254.dddc.f17c" },
    ] }] } });
    device.inner().arp = Some(table);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let known = driver.list_pods().await.unwrap();
    assert_eq!(known[0].ip, Some("192.0.2.7".parse().unwrap()));
    let requests = device.inner().requests;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let again = driver.list_pods().await.unwrap();
    assert_eq!(known, again);
    assert_eq!(device.inner().requests - requests, 1, "one look answers for all pods");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_is_started_once_is_not_started_again_when_the_device_has_lost_it() {
    for (policy, again) in [("Never", false), ("OnFailure", true)] {
        let device = Arc::new(Device::default());
        let driver = driver(&device);
        let mut request = pod_with(1, &json!([{ "name": "app", "image": "flash:/a.tar" }]), policy);
        deploy(&driver, &request).await;
        let id = status(&driver, 1).await.unwrap().containers[0].id.clone();
        let status = json!({ "containerStatuses": [{
            "name": "app", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": id, "state": { "running": {} },
        }] });
        Arc::make_mut(&mut request.pod).status = serde_json::from_value(status).unwrap();
        device.accepted();
        device.inner().oper.clear();
        tokio::time::sleep(Duration::from_secs(1)).await;
        deploy(&driver, &request).await;
        let expected = if again { &["install", "activate", "start"][..] } else { &["remove"] };
        assert_eq!(device.accepted(), steps(expected, 1), "{policy}");
    }
}
