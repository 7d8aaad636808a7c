//! Tests of packages at a URL that the device cannot install directly.

use super::device::{COPY, Urls};
use super::*;

fn from_url(number: u8) -> PodRequest {
    pod_with(number, &json!([{ "name": "app", "image": "https://repo.example/a.tar" }]), "Always")
}

/// Repeats the deployment until a copy of the package is requested.
async fn until_copying(driver: &IosXeDriver, request: &PodRequest) {
    while driver.state.lock().copies.under_way().is_none() {
        let progress = driver.deploy_pod(request).await.unwrap();
        tokio::time::sleep(progress.poll_after().unwrap()).await;
    }
}

/// Repeats the deployment until the configuration is changed to a copy on the flash.
async fn until_diverted(device: &Device, driver: &IosXeDriver, request: &PodRequest) {
    while !device.accepted().contains(&format!("divert {}", id(1))) {
        let progress = driver.deploy_pod(request).await.unwrap();
        tokio::time::sleep(progress.poll_after().unwrap()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_device_cannot_install_from_a_url_is_copied_to_its_flash_and_leaves_nothing_there() {
    for (urls, before) in [
        (Urls::Refused, &["configure"][..]),
        (Urls::Silent, &["configure", "install"]),
        (Urls::Hang, &["configure", "install", "uninstall"]),
    ] {
        let device = Arc::new(Device::default());
        let driver = driver(&device);
        device.inner().urls = urls;
        let request = from_url(1);
        deploy(&driver, &request).await;
        let up = ["divert", "copy", "install", "activate", "start"];
        assert_eq!(device.accepted(), steps(&[before, &up[..]].concat(), 1), "{urls:?}");
        assert_eq!(device.inner().files.len(), 1);
        assert!(driver.deploy_pod(&request).await.unwrap().is_done());
        delete(&driver, &request).await;
        let down = ["stop", "deactivate", "uninstall", "delete", "remove"];
        assert_eq!(device.accepted(), steps(&down, 1), "{urls:?}");
        assert!(device.inner().files.is_empty() && device.inner().config.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_device_that_installs_from_a_url_is_asked_for_no_copy() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &from_url(1)).await;
    delete(&driver, &from_url(1)).await;
    let all = ["configure", "install", "activate", "start", "stop", "deactivate", "uninstall", "remove"];
    assert_eq!(device.accepted(), steps(&all, 1));
}

#[tokio::test(start_paused = true)]
async fn a_copy_holds_up_neither_the_other_pods_nor_whoever_asks_how_they_are() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().urls = Urls::Refused;
    let (slow, begun) = (from_url(1), Instant::now());
    let progress = loop {
        let progress = driver.deploy_pod(&slow).await.unwrap();
        match &progress {
            PodProgress::Working { state, .. } if state.contains("copying to the flash") => break progress,
            _ => tokio::time::sleep(progress.poll_after().unwrap()).await,
        }
    };
    assert!(!progress.is_done());
    deploy(&driver, &pod(2)).await;
    assert_eq!(driver.list_pods().await.unwrap().len(), 2);
    assert!(begun.elapsed() < COPY / 2, "{:?}", begun.elapsed());
    deploy(&driver, &slow).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_ends_while_a_package_is_copied_is_followed_by_one_that_copies_it_again() {
    let device = Arc::new(Device::default());
    device.inner().urls = Urls::Refused;
    let (first, request) = (driver(&device), from_url(1));
    until_diverted(&device, &first, &request).await;
    first.deploy_pod(&request).await.unwrap();
    drop(first);
    device.inner().files.insert(crate::app::copy_of(&id(1)));
    let second = driver(&device);
    deploy(&second, &request).await;
    assert_eq!(device.accepted(), steps(&["delete", "copy", "install", "activate", "start"], 1));
    drop(second);
    delete(&driver(&device), &request).await;
    assert!(device.inner().files.is_empty() && device.inner().config.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_while_its_package_is_copied_waits_for_the_copy_and_deletes_it() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().urls = Urls::Refused;
    let request = from_url(1);
    until_copying(&driver, &request).await;
    delete(&driver, &request).await;
    assert_eq!(device.accepted(), steps(&["configure", "divert", "copy", "delete", "remove"], 1));
    assert!(device.inner().files.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_a_process_which_ended_left_under_way_is_deleted_when_it_is_there() {
    let device = Arc::new(Device::default());
    device.inner().urls = Urls::Refused;
    let (first, request) = (driver(&device), from_url(1));
    until_copying(&first, &request).await;
    tokio::time::sleep(COPY / 2).await;
    drop(first);
    delete(&driver(&device), &request).await;
    tokio::time::sleep(COPY).await;
    assert_eq!(device.accepted(), steps(&["configure", "divert", "copy", "delete", "remove"], 1));
    assert!(device.inner().files.is_empty() && device.inner().config.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_never_came_keeps_no_pod_longer_than_a_copy_may_take() {
    let device = Arc::new(Device::default());
    device.inner().urls = Urls::Refused;
    let (first, request) = (driver(&device), from_url(1));
    until_diverted(&device, &first, &request).await;
    drop(first);
    let begun = Instant::now();
    delete(&driver(&device), &request).await;
    assert!(device.inner().config.is_empty());
    let (reported, limit) = (begun.elapsed(), Duration::from_secs(600));
    assert!(reported >= limit && reported < limit * 2, "{reported:?}");
}

#[tokio::test(start_paused = true)]
async fn a_copy_is_deleted_although_the_device_has_forgotten_its_application() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().urls = Urls::Refused;
    let request = from_url(1);
    deploy(&driver, &request).await;
    (device.inner().config, device.inner().oper) = Default::default();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    delete(&driver, &request).await;
    assert!(device.inner().files.is_empty() && driver.state.lock().records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_the_device_does_not_delete_keeps_no_pod_for_ever() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().urls = Urls::Refused;
    let request = from_url(1);
    deploy(&driver, &request).await;
    device.inner().keeps_files = true;
    let begun = Instant::now();
    delete(&driver, &request).await;
    assert!(device.inner().config.is_empty() && device.inner().files.len() == 1);
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_package_that_cannot_be_copied_is_reported_and_tried_again_after_a_pause() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().urls = Urls::Refused;
    device.inner().refuses_copies = true;
    let (reason, message, _) = failing(&driver, &from_url(1)).await;
    assert_eq!(reason, "ErrImagePull");
    assert!(message.contains("No space left"), "{message}");
    device.inner().refuses_copies = false;
    deploy(&driver, &from_url(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_got_lost_is_made_again_after_installs_from_it_failed() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    device.inner().urls = Urls::Refused;
    deploy(&driver, &from_url(1)).await;
    device.accepted();
    (device.inner().oper, device.inner().files) = Default::default();
    tokio::time::sleep(Duration::from_secs(1)).await;
    deploy(&driver, &from_url(1)).await;
    assert_eq!(device.accepted(), steps(&["copy", "install", "activate", "start"], 1));
}
