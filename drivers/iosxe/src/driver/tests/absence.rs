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
