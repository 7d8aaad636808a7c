//! Tests of applications that the responses of the device lack for a time, or for ever.

use super::*;

/// Responses without applications, for which the device may have its reasons: a 404 or 204, and empty containers.
const UNSERVED: [&str; 4] =
    ["", "{}", r#"{"m:app-hosting-oper-data":{}}"#, r#"{"m:app-hosting-oper-data":{"app":[]}}"#];

/// A list of applications without any.
const EMPTY: &str = r#"{"m:app-hosting-oper-data":{"app":[],"app-globals":{"iox-enabled":true}}}"#;

/// Reads the device and deploys the pod as often as the handler does, for so many seconds.
async fn look_on(driver: &IosXeDriver, request: &PodRequest, seconds: u64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(seconds) {
        driver.list_pods().await.unwrap();
        driver.deploy_pod(request).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_that_lacks_an_app_changes_neither_its_pod_nor_the_device() {
    for (body, seconds) in UNSERVED.map(|body| (body, 32)).into_iter().chain([(EMPTY, 10)]) {
        let device = Arc::new(Device::default());
        let driver = driver(&device);
        deploy(&driver, &pod(1)).await;
        device.accepted();
        let before = driver.list_pods().await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        device.inner().hides = Some(body);
        assert_eq!(driver.list_pods().await.unwrap(), before, "after one read: {body}");
        look_on(&driver, &pod(1), seconds).await;
        device.inner().hides = None;
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(driver.deploy_pod(&pod(1)).await.unwrap().is_done(), "{body}");
        assert_eq!((driver.list_pods().await.unwrap(), device.accepted()), (before, vec![]), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_is_not_gone_while_the_device_does_not_list_its_apps() {
    for body in UNSERVED {
        for restarted in [false, true] {
            let device = Arc::new(Device::default());
            let mut driver = driver(&device);
            deploy(&driver, &pod(1)).await;
            device.accepted();
            if restarted {
                driver = super::driver(&device);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            device.inner().hides = Some(body);
            for minute in 0..60 {
                let progress = driver.delete_pod(&pod(1).owner()).await.unwrap();
                let is_reported = matches!(&progress, PodProgress::Failing { reason, .. } if reason == "AppHostingDisabled");
                assert!(!progress.is_done() && (is_reported || minute == 0), "{body} {progress:?}");
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
            assert_eq!(device.accepted(), [""; 0], "{body}");
            device.inner().hides = None;
            delete(&driver, &pod(1)).await;
            assert!(device.inner().config.is_empty() && device.inner().oper.is_empty(), "{body}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_app_is_lost_when_several_lists_lack_it_and_is_then_installed_once() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    deploy(&driver, &pod(2)).await;
    device.accepted();
    tokio::time::sleep(Duration::from_secs(1)).await;
    device.inner().oper.remove(&id(1));
    look_on(&driver, &pod(1), 14).await;
    assert_eq!(device.accepted(), [""; 0]);
    assert_eq!(status(&driver, 1).await.unwrap().containers[0].state, HostedContainerState::Running);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let state = &status(&driver, 1).await.unwrap().containers[0].state;
    assert!(matches!(state, HostedContainerState::Waiting { .. }), "{state:?}");
    deploy(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), steps(&["install", "activate", "start"], 1));
}

#[tokio::test(start_paused = true)]
async fn an_app_that_is_configured_no_more_and_hidden_still_belongs_to_its_pod() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    device.accepted();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let config = std::mem::take(&mut device.inner().config);
    device.inner().hides = Some("");
    assert!(!driver.delete_pod(&pod(1).owner()).await.unwrap().is_done());
    assert_eq!(status(&driver, 1).await.unwrap().containers[0].state, HostedContainerState::Running);
    (device.inner().config, device.inner().hides) = (config, None);
    delete(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), steps(&["stop", "deactivate", "uninstall", "remove"], 1));
}

/// Responses to a read of the configuration that lack every application: a 404 or 204, and empty containers.
const UNCONFIGURED: [&str; 4] =
    ["", "{}", r#"{"m:app-hosting-cfg-data":{}}"#, r#"{"m:app-hosting-cfg-data":{"apps":{}}}"#];

/// Returns the request for a pod whose status shows what the driver lists.
fn shown(number: u8, hosted: &HostedPod) -> PodRequest {
    let mut request = pod(number);
    let pod = Arc::make_mut(&mut request.pod);
    let container = &hosted.containers[0];
    let status = json!({
        "phase": "Running", "podIP": hosted.ip, "podIPs": hosted.ip.map(|ip| vec![json!({ "ip": ip })]),
        "containerStatuses": [{
            "name": container.name, "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": container.id, "state": { "running": {} },
        }],
    });
    pod.status = serde_json::from_value(status).unwrap();
    request
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_lacks_an_app_changes_neither_its_pod_nor_the_device() {
    for body in UNCONFIGURED {
        let device = Arc::new(Device::default());
        let driver = driver_of(&device, "east", &with_addresses("10.0.0.0/29"));
        deploy(&driver, &pod(1)).await;
        tokio::time::sleep(Duration::from_secs(120)).await;
        let before = driver.list_pods().await.unwrap();
        device.accepted();
        tokio::time::sleep(Duration::from_secs(61)).await;
        device.inner().hides_configuration = Some(body);
        assert_eq!(driver.list_pods().await.unwrap(), before, "after one read: {body}");
        look_on(&driver, &pod(1), 12).await;
        device.inner().hides_configuration = None;
        deploy(&driver, &pod(2)).await;
        assert_eq!(device.accepted(), steps(&["configure", "install", "activate", "start"], 2), "{body}");
        assert_ne!(status(&driver, 2).await.unwrap().ip, before[0].ip, "{body}");
        assert_eq!(status(&driver, 1).await.unwrap(), before[0], "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_app_whose_configuration_several_reads_lack_is_configured_again_and_not_installed() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    device.accepted();
    device.inner().config.clear();
    tokio::time::sleep(Duration::from_secs(61)).await;
    deploy(&driver, &pod(1)).await;
    assert_eq!(device.accepted(), steps(&["configure"], 1));
}

#[tokio::test(start_paused = true)]
async fn a_new_process_takes_the_status_of_a_pod_for_what_it_has_seen() {
    for (states, configuration) in
        UNSERVED.map(|body| (Some(body), None)).into_iter().chain(UNCONFIGURED.map(|body| (None, Some(body))))
    {
        let device = Arc::new(Device::default());
        let first = driver(&device);
        deploy(&first, &pod(1)).await;
        let before = status(&first, 1).await.unwrap();
        device.accepted();
        let request = shown(1, &before);
        for goes in [false, true] {
            let driver = driver(&device);
            driver.expect_pods(&[Arc::clone(&request.pod)]);
            (device.inner().hides, device.inner().hides_configuration) = (states, configuration);
            let listed = driver.list_pods().await.unwrap();
            assert_eq!(listed.len(), 1, "{states:?} {configuration:?}");
            assert_eq!(listed[0].containers, before.containers, "{states:?} {configuration:?}");
            if goes {
                assert!(!driver.delete_pod(&request.owner()).await.unwrap().is_done());
            } else {
                look_on(&driver, &request, 12).await;
            }
            assert_eq!(device.accepted(), [""; 0], "{states:?} {configuration:?}");
            (device.inner().hides, device.inner().hides_configuration) = (None, None);
            if goes {
                delete(&driver, &request).await;
                assert!(device.inner().config.is_empty() && device.inner().oper.is_empty());
            } else {
                deploy(&driver, &request).await;
                assert_eq!(device.accepted(), [""; 0], "{states:?} {configuration:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_process_removes_no_configuration_because_one_list_lacks_the_app() {
    let device = Arc::new(Device::default());
    deploy(&driver(&device), &pod(1)).await;
    device.accepted();
    let driver = driver(&device);
    // No status shows the app: the process before ended before it could write one.
    device.inner().hides = Some(EMPTY);
    assert!(!driver.delete_pod(&pod(1).owner()).await.unwrap().is_done());
    assert!(!driver.deploy_pod(&pod(1)).await.unwrap().is_done());
    assert_eq!(device.accepted(), [""; 0]);
    device.inner().hides = None;
    delete(&driver, &pod(1)).await;
    assert!(device.inner().config.is_empty() && device.inner().oper.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_address_that_the_status_of_a_pod_shows_goes_to_no_other_pod() {
    let device = Arc::new(Device::default());
    let first = driver_of(&device, "east", &with_addresses("10.0.0.0/29"));
    deploy(&first, &pod(1)).await;
    let before = status(&first, 1).await.unwrap();
    let request = shown(1, &before);
    // The device has lost the pod and its configuration, and its neighbour comes first.
    device.inner().config.clear();
    device.inner().oper.clear();
    let second = driver_of(&device, "east", &with_addresses("10.0.0.0/29"));
    second.expect_pods(&[Arc::clone(&request.pod), Arc::clone(&pod(2).pod)]);
    deploy(&second, &pod(2)).await;
    deploy(&second, &request).await;
    assert_ne!(status(&second, 2).await.unwrap().ip, before.ip);
    assert_eq!(status(&second, 1).await.unwrap().ip, before.ip, "its own address is free for it");
}
