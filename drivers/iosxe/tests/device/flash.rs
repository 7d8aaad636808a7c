//! Packages at URLs, and devices that do not install from there.

use std::time::Duration;

use staffetta_driver::virtual_node::PodRequest;
use staffetta_iosxe_device::{Accepted, Effect, Fault, Install, Kept, Options, Requests, Style};

use crate::world::{World, delete, deploy, done, pod, reads_on, reported, request, runs, until};

const PACKAGE: &str = "https://repo.example/hello.tar";

fn from_url() -> PodRequest {
    let mut pod = pod("web", 1, &["app"]);
    pod["spec"]["containers"][0]["image"] = PACKAGE.into();
    request(&pod)
}

/// A device that has to be given packages on its flash.
fn world(accepted: Accepted) -> World {
    world_with(|options| options.style = Style { accepted, ..Style::default() })
}

fn world_with(change: impl FnOnce(&mut Options)) -> World {
    World::new(|options| {
        options.installs_urls = false;
        options.packages = Some([PACKAGE.to_owned()].into());
        change(options);
    })
}

/// The number of copies of a package to the device.
fn copies(world: &World) -> usize {
    let copied = |effect: &Effect| matches!(effect, Effect::FileCopied(from) if from == PACKAGE);
    world.device.ledger().entries().iter().filter(|entry| copied(&entry.effect)).count()
}

#[tokio::test]
async fn what_the_device_does_not_install_from_a_url_comes_over_its_flash_and_leaves_nothing_there() {
    for accepted in [Accepted::NoContent, Accepted::Result] {
        let (world, request) = (world(accepted), from_url());
        let driver = world.driver();
        deploy(&*driver, &request).await;
        assert!(runs(&reported(&*driver, &request.owner()).await.unwrap()));
        let name = world.device.apps()[0].name.clone();
        assert_eq!(world.device.files(), [format!("flash:/staffetta_{name}.tar")]);
        assert_eq!((world.device.apps()[0].package.clone(), copies(&world)), (world.device.files().pop(), 1));
        delete(&*driver, &request.owner()).await;
        world.assert_clean();
    }
}

#[tokio::test]
async fn an_install_from_a_url_of_which_nothing_comes_is_made_up_for_over_the_flash() {
    let mut world = World::new(|_| ());
    world.options.download_limit_ms = 300.try_into().unwrap();
    world.device.plan_installs("", 1, Install::FailsInSilence);
    let (driver, request) = (world.driver(), from_url());
    deploy(&*driver, &request).await;
    assert_eq!(copies(&world), 1);
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn an_install_from_a_url_that_fails_with_a_reason_is_not_tried_over_the_flash() {
    let world = World::new(|_| ());
    world.device.plan_installs("", 1, Install::Fails("the package is not signed".into()));
    let (driver, request) = (world.driver(), from_url());
    deploy(&*driver, &request).await;
    assert_eq!((copies(&world), world.device.ledger().installs().into_values().next()), (0, Some(2)));
    delete(&*driver, &request.owner()).await;
    world.assert_clean();
}

#[tokio::test]
async fn drivers_that_forget_everything_after_each_step_bring_a_copy_and_delete_it() {
    let (world, request) = (world(Accepted::NoContent), from_url());
    // A driver that is forgotten while it copies begins again: each gets the time of a copy.
    let mut driver = world.driver();
    done("deploy", async || {
        let _ = driver.deploy_pod(&request).await?;
        tokio::time::sleep(Duration::from_millis(30)).await;
        let answer = driver.deploy_pod(&request).await;
        if !reads_on(&answer) {
            driver = world.driver();
        }
        answer
    })
    .await;
    done("delete", async || {
        let answer = driver.delete_pod(&request.owner()).await;
        if !reads_on(&answer) {
            driver = world.driver();
        }
        answer
    })
    .await;
    world.assert_clean();
}

#[tokio::test]
async fn a_copy_survives_a_reboot_and_is_deleted_with_its_pod() {
    for kept in [Kept::Apps, Kept::Configuration, Kept::Nothing] {
        let (world, request) = (world(Accepted::NoContent), from_url());
        let driver = world.driver();
        deploy(&*driver, &request).await;
        world.device.reboot(kept, Duration::from_millis(200));
        deploy(&*driver, &request).await;
        delete(&*driver, &request.owner()).await;
        world.assert_clean();
    }
}

#[tokio::test]
async fn a_copy_that_fails_or_whose_answer_gets_lost_is_made_again() {
    for fault in [Fault::Refuse { code: 500, tag: "operation-failed".into() }, Fault::Cut, Fault::CutAfter] {
        let (world, request) = (world(Accepted::NoContent), from_url());
        let driver = world.driver();
        world.device.inject(Requests::any().operation("copy"), 1, fault.clone());
        deploy(&*driver, &request).await;
        assert_eq!(world.device.pending_faults(), 0, "{fault:?}");
        delete(&*driver, &request.owner()).await;
        world.assert_clean();
    }
}

#[tokio::test]
async fn a_copy_for_whose_end_nobody_waits_is_deleted_when_it_is_there() {
    const COPY: Duration = Duration::from_millis(500);
    for answer_lost in [false, true] {
        let (world, request) = (world_with(|options| options.times.copy = COPY), from_url());
        if answer_lost {
            world.device.inject(Requests::any().operation("copy"), 1, Fault::CutAfter);
        }
        let first = world.driver();
        until("the device copies", async || {
            let _ = first.deploy_pod(&request).await.unwrap();
            copies(&world) == 1
        })
        .await;
        let driver = if answer_lost {
            first
        } else {
            drop(first);
            world.driver()
        };
        delete(&*driver, &request.owner()).await;
        tokio::time::sleep(COPY).await;
        world.assert_clean();
    }
}
