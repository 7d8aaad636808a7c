//! Tests of calls that overlap, of requests that hang, and of devices that go on by themselves.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_step_that_is_not_answered_fails_for_its_app_and_holds_up_no_other_pod() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    deploy(&driver, &pod(1)).await;
    device.inner().hangs = Some("stop");
    let begun = Instant::now();
    let owner = pod(1).owner();
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        deploy(&driver, &pod(2)).await;
        driver.list_pods().await.unwrap();
        begun.elapsed()
    };
    let (stopped, others) = tokio::join!(driver.delete_pod(&owner), others);
    assert!(others < Duration::from_secs(10), "{others:?}");
    let stopped = stopped.unwrap();
    let PodProgress::Failing { reason, message, .. } = &stopped else { panic!("{stopped:?}") };
    assert_eq!(reason, "KillContainerError");
    assert_eq!(message, "app: stopping; the device did not answer within 30 s");
    device.inner().hangs = None;
    delete(&driver, &pod(1)).await;
    assert!(!device.inner().config.contains_key(&id(1)));
}

#[tokio::test(start_paused = true)]
async fn a_container_is_configured_when_the_one_before_it_is_installed() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    let containers = json!([
        { "name": "z", "image": "flash:/a.tar" }, { "name": "a", "image": "flash:/b.tar" },
    ]);
    let pod = pod_with(1, &containers, "Always");
    for _ in 0..1000 {
        let progress = driver.deploy_pod(&pod).await.unwrap();
        let apps = device.inner().oper.clone();
        if device.inner().config.len() == 2 {
            let states: Vec<_> = apps.values().map(|oper| oper.state.as_str()).collect();
            assert_eq!(states, ["DEPLOYED"]);
            return;
        }
        tokio::time::sleep(progress.poll_after().unwrap()).await;
    }
    panic!("the second container is never configured");
}

#[tokio::test(start_paused = true)]
async fn a_container_that_cannot_be_installed_holds_up_no_other_one() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    let containers = json!([
        { "name": "z", "image": "flash:/a.tar" }, { "name": "a", "image": "flash:/b.tar" },
    ]);
    device.inner().fails_installs = Some("no such package");
    failing(&driver, &pod_with(1, &containers, "Always")).await;
    for _ in 0..4 {
        driver.deploy_pod(&pod_with(1, &containers, "Always")).await.unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(device.inner().config.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_device_that_starts_apps_by_itself_gets_no_needless_step() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    driver.state.lock().starts_apps = None;
    device.inner().starts_apps_after = Some(Duration::from_secs(3));
    for number in 1..=2 {
        deploy(&driver, &pod(number)).await;
        assert_eq!(device.accepted(), steps(&["configure", "install"], number));
    }
    assert_eq!(driver.state.lock().starts_apps, Some(true));
}

#[tokio::test(start_paused = true)]
async fn a_device_that_starts_no_app_by_itself_is_waited_for_once() {
    let device = Arc::new(Device::default());
    let driver = driver(&device);
    driver.state.lock().starts_apps = None;
    for (number, waits) in [(1, true), (2, false)] {
        let begun = Instant::now();
        deploy(&driver, &pod(number)).await;
        assert_eq!(device.accepted(), steps(&["configure", "install", "activate", "start"], number));
        let limit = Duration::from_secs(30);
        assert_eq!(begun.elapsed() > limit, waits);
        assert!(begun.elapsed() < limit * 2);
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_come_at_the_same_time_have_addresses_of_their_own() {
    let device = Arc::new(Device::default());
    let driver = driver_of(&device, "east", &with_addresses("10.0.0.0/29"));
    let pods: Vec<_> = (1..=4).map(pod).collect();
    tokio::join!(
        deploy(&driver, &pods[0]),
        deploy(&driver, &pods[1]),
        deploy(&driver, &pods[2]),
        deploy(&driver, &pods[3]),
    );
    let mut addresses: Vec<_> = driver.list_pods().await.unwrap().iter().map(|pod| pod.ip).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!((addresses.len(), device.inner().parallel), (4, 1));
}
