//! One request fails, whichever it is and however it does: in the end there is one app that was installed once, and after that
//! nothing.

use std::time::Duration;

use futures_util::future::join_all;
use staffetta_driver::app_hosting::AppHostingDriver;
use staffetta_driver::virtual_node::{PodProgress, PodRequest};
use staffetta_iosxe::IosXeOptions;
use staffetta_iosxe_device::{Device, Fault, Install, Options, Requests, Site, Times};

use crate::world::{
    CLUSTER, World, delete, deploy, done, driver, pod, reported, request, runs, spec, until, web,
};

/// The number of runs, in each of which one request fails. One life has fewer requests.
const REQUESTS: usize = 40;

/// The life of a pod on a device of its own, in which one request fails. Returns whether that request came.
async fn life(device: Device, fault: Fault, skip: usize) -> bool {
    // A step that has no effect within its limit is tried again.
    let second = 1000.try_into().unwrap();
    let options = IosXeOptions { slow_install_ms: second, step_limit_ms: second, ..IosXeOptions::default() };
    let driver = driver(options, CLUSTER, &spec(&device));
    let request = request(&pod("web", 1, &["app"]));
    device.inject(Requests::any().after(skip), 1, fault.clone());
    deploy(&*driver, &request).await;
    delete(&*driver, &request.owner()).await;
    let ledger = device.ledger();
    assert!(
        ledger.existing().is_empty() && device.apps().is_empty(),
        "{fault:?} {skip}: {:#?}",
        ledger.entries()
    );
    let installs: Vec<_> = ledger.installs().into_values().collect();
    assert_eq!(installs, [1], "{fault:?} {skip}: {:#?}", ledger.entries());
    device.pending_faults() == 0
}

/// Runs a life for each of its requests, all at the same time.
async fn lives(fault: Fault) {
    let site = Site::start().unwrap();
    let times = Times::each(Duration::from_millis(5));
    let lives = (0..REQUESTS).map(|skip| {
        let options = Options { name: format!("edge-{skip}"), times, ..Options::default() };
        life(site.device(options).unwrap(), fault.clone(), skip)
    });
    let met = join_all(lives).await.into_iter().filter(|met| *met).count();
    assert!((10..REQUESTS).contains(&met), "{met} lives met {fault:?}");
}

/// Deploys until the device fails, and answers what it says of it.
async fn failing(driver: &dyn AppHostingDriver, request: &PodRequest) -> String {
    let mut reported = String::new();
    done("deploy", async || {
        let progress = driver.deploy_pod(request).await?;
        if let PodProgress::Failing { message, .. } = &progress {
            reported.clone_from(message);
            return Ok(PodProgress::Done);
        }
        Ok(progress)
    })
    .await;
    reported
}

#[tokio::test]
async fn an_answer_that_got_lost_after_it_took_effect_makes_nothing_twice() {
    lives(Fault::CutAfter).await;
}

#[tokio::test]
async fn a_request_that_got_lost_is_made_up_for() {
    lives(Fault::Cut).await;
}

#[tokio::test]
async fn an_answer_that_is_no_json_is_no_answer() {
    lives(Fault::Garbage).await;
}

#[tokio::test]
async fn a_device_that_is_busy_is_asked_again() {
    for (code, tag) in
        [(409, "lock-denied"), (409, "in-use"), (503, "resource-denied"), (500, "operation-failed")]
    {
        lives(Fault::Refuse { code, tag: tag.into() }).await;
    }
}

#[tokio::test]
async fn a_page_of_a_proxy_is_no_answer() {
    lives(Fault::Answer { code: 502, body: "<html>Bad Gateway</html>".into() }).await;
}

#[tokio::test]
async fn an_install_that_fails_with_a_reason_tells_it() {
    let world = World::new(|_| ());
    world.device.plan_installs("", 1, Install::Fails("the package is not signed".into()));
    let (driver, request) = (world.driver(), web());
    let mut reasons = Vec::new();
    done("deploy", async || {
        let progress = driver.deploy_pod(&request).await?;
        if let PodProgress::Failing { message, .. } = &progress {
            reasons.push(message.clone());
            return Ok(PodProgress::Done);
        }
        Ok(progress)
    })
    .await;
    assert!(reasons[0].contains("the package is not signed"), "{reasons:?}");
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_install_that_fails_without_a_word_is_reported_and_tried_again_later() {
    let mut world = World::new(|_| ());
    world.options.slow_install_ms = 300.try_into().unwrap();
    world.device.plan_installs("", 1, Install::FailsInSilence);
    let (driver, request) = (world.driver(), web());
    let mut failing = false;
    done("deploy", async || {
        let progress = driver.deploy_pod(&request).await?;
        failing |= matches!(progress, PodProgress::Failing { .. });
        Ok(if failing { PodProgress::Done } else { progress })
    })
    .await;
    // Another process does not know that it has to wait.
    deploy(&*world.driver(), &request).await;
    assert!(runs(&reported(&*driver, &request.owner()).await.unwrap()));
    assert_eq!(world.device.ledger().installs().into_values().collect::<Vec<_>>(), [2]);
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_app_that_the_device_broke_is_reported_with_the_reason_and_removed() {
    let world = World::new(|_| ());
    world.device.plan_installs("", 1, Install::Breaks("the disk is full".into()));
    let (driver, request) = (world.driver(), web());
    let reported = failing(&*driver, &request).await;
    assert!(reported.contains("the disk is full"), "{reported}");
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_activation_for_which_the_device_has_no_room_is_reported_with_its_reason() {
    let world = World::new(|options| {
        (options.resources.cpu_units, options.auto_start) = (1, false);
    });
    let (driver, request) = (world.driver(), web());
    let reported = failing(&*driver, &request).await;
    assert!(reported.contains("not enough CPU"), "{reported}");
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_app_that_the_device_does_not_show_while_it_starts_is_not_left_behind() {
    let world = World::new(|_| ());
    let (driver, request) = (world.driver(), web());
    deploy(&*driver, &request).await;
    world.device.host_apps(false);
    assert!(!driver.get_device_resources().await.unwrap().enabled);
    until("the app is hidden", async || !runs(&reported(&*driver, &request.owner()).await.unwrap())).await;
    let progress = driver.delete_pod(&request.owner()).await.unwrap();
    let waits = matches!(&progress, PodProgress::Failing { reason, .. } if reason == "AppHostingDisabled");
    assert!(waits, "{progress:?}");
    world.device.host_apps(true);
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}
