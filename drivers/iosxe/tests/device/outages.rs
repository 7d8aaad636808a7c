//! A device that cannot be reached, for a moment or for long, and one that is restarted.

use std::time::Duration;

use staffetta_driver::Reason;
use staffetta_iosxe_device::{Install, Kept, Reachability};

use crate::world::{World, delete, deploy, reported, runs, until, web};

#[tokio::test]
async fn a_device_that_cannot_be_reached_is_unavailable_and_its_pods_are_not_gone() {
    let mut world = World::new(|_| ());
    (world.options.request_timeout_ms, world.options.connect_timeout_ms) =
        (200.try_into().unwrap(), 200.try_into().unwrap());
    let (driver, request) = (world.driver(), web());
    deploy(&*driver, &request).await;
    for reachability in [Reachability::Refuses, Reachability::Hangs, Reachability::Resets] {
        world.device.reach(reachability);
        until("the connections have ended", async || driver.list_pods().await.is_err()).await;
        assert_eq!(driver.list_pods().await.unwrap_err().reason(), Reason::Unavailable);
        let error = driver.get_pod_status(&request.owner()).await.unwrap_err();
        assert!(error.transient() && error.reason() == Reason::Unavailable, "{error}");
        let before = world.device.ledger().entries().len();
        assert!(
            driver.deploy_pod(&request).await.is_err() && driver.delete_pod(&request.owner()).await.is_err()
        );
        assert_eq!(world.device.ledger().entries().len(), before);
        world.device.reach(Reachability::Up);
        until("it answers again", async || driver.list_pods().await.is_ok()).await;
        assert!(runs(&reported(&*driver, &request.owner()).await.unwrap()));
    }
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn an_outage_in_the_middle_of_an_install_costs_nothing_but_time() {
    let mut world = World::new(|_| ());
    world.options.connect_timeout_ms = 200.try_into().unwrap();
    world.device.plan_installs("", 1, Install::Takes(Duration::from_millis(300)));
    let (driver, request) = (world.driver(), web());
    until("the install has begun", async || {
        let _ = driver.deploy_pod(&request).await;
        !world.device.ledger().installs().is_empty()
    })
    .await;
    world.device.reach(Reachability::Refuses);
    until("it is gone", async || driver.deploy_pod(&request).await.is_err()).await;
    world.device.reach(Reachability::Up);
    deploy(&*driver, &request).await;
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
    world.assert_done_once();
}

#[tokio::test]
async fn apps_that_a_device_forgot_in_a_reboot_are_made_again() {
    for kept in [Kept::Apps, Kept::Configuration, Kept::Nothing] {
        let world = World::new(|_| ());
        let (driver, request) = (world.driver(), web());
        deploy(&*driver, &request).await;
        world.device.reboot(kept, Duration::from_secs(1));
        until("it is down", async || driver.list_pods().await.is_err()).await;
        until("it is back", async || driver.list_pods().await.is_ok()).await;
        deploy(&*driver, &request).await;
        assert!(runs(&reported(&*driver, &request.owner()).await.unwrap()));
        delete(&*driver, &request.owner()).await;
        world.assert_clean();
        let expected = if kept == Kept::Apps { 1 } else { 2 };
        assert_eq!(
            world.device.ledger().installs().into_values().collect::<Vec<_>>(),
            [expected],
            "{kept:?}"
        );
    }
}

#[tokio::test]
async fn a_pod_that_is_deleted_while_it_is_installed_leaves_nothing() {
    let world = World::new(|_| ());
    world.device.plan_installs("", 1, Install::Takes(Duration::from_millis(300)));
    let (driver, request) = (world.driver(), web());
    until("the install has begun", async || {
        let _ = driver.deploy_pod(&request).await;
        !world.device.ledger().installs().is_empty()
    })
    .await;
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
    world.assert_done_once();
}
