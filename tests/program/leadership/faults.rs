//! A lease that cannot be read or written.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::{Controller, Role};
use staffetta_apiserver::{Fault, Requests};
use staffetta_handler::causes;

use super::world::{AT_ONCE, LONG, PATIENT, SHORT, World};
use crate::process::{PATIENCE, eventually};

#[tokio::test]
async fn missing_permissions_on_the_lease_are_reported_and_retried_until_granted() {
    let world = World::embedded().await;
    let proxy = world.proxy().await;
    proxy.faults().inject(Requests::any().resource("leases"), usize::MAX, Fault::status(403));
    let mut runner = world.runner_behind(proxy, PATIENT, "").await;
    runner.process.says("the lease cannot be read").await;
    eventually("it is unready and says why", async || {
        let (code, reasons) = runner.process.get("/readyz").await;
        code == 503 && reasons.contains("leadership: the lease cannot be read: ")
    })
    .await;
    assert_eq!(runner.process.get("/livez").await.0, 200);
    runner.proxy.faults().clear();
    runner.leads().await;
    runner.process.ready().await;
    assert!(runner.process.terminate().await.success());
}

const INCOMPLETE: &str = "[kubernetes]\nenabled_handlers = [\"vif\"]\npod_subnets_driver = \"default\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";

#[tokio::test]
async fn a_leader_whose_handlers_cannot_be_created_names_all_options_that_they_lack() {
    let world = World::embedded().await;
    let mut leader = world.runner_as(world.proxy().await, INCOMPLETE).await;
    leader
        .process
        .says("`neutron_defaults.project` is missing; `neutron_defaults.pod_subnet` is missing")
        .await;
    assert_eq!(leader.process.ends().await.code(), Some(1));
}

#[tokio::test]
async fn a_standby_whose_handlers_cannot_be_created_is_never_ready_and_exits_with_the_reason() {
    const REASON: &str = "the handler `vif` cannot be created: `neutron_defaults.project` is missing";
    let world = World::embedded().await;
    let mut leader = world.runner(LONG, AT_ONCE).await;
    leader.leads().await;

    let mut standby = world.runner_as(world.proxy().await, INCOMPLETE).await;
    standby.process.says("this process is a standby").await;
    standby.process.says(REASON).await;
    assert_eq!(standby.process.ends().await.code(), Some(1));
    assert!(standby.writes().is_empty());

    let registry = staffetta::assembly::registry();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), INCOMPLETE).unwrap();
    let schema = FileSchema::assemble(&registry).unwrap();
    let configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
    let mut controller = Controller::start(registry, &configuration, world.client()).await.unwrap();
    let ready = tokio::time::timeout(PATIENCE, controller.ready())
        .await
        .expect("who has ended is waited for no more");
    let error = causes(&ready.unwrap_err());
    assert!(error.starts_with(REASON), "{error}");
    assert!(matches!(controller.leadership().role, Role::Ended(_)));

    world.pod("web").await;
    world.until_plugged("web", true).await;
    assert!(leader.process.terminate().await.success());
}

#[tokio::test]
async fn each_new_reason_why_the_lease_is_not_available_is_reported() {
    let world = World::embedded().await;
    let proxy = world.proxy().await;
    let reads = || Requests::any().resource("leases").verb("get");
    proxy.faults().inject(reads(), 1, Fault::status(403));
    proxy.faults().inject(reads(), usize::MAX, Fault::status(500));
    let runner = world.runner_behind(proxy, PATIENT, "").await;
    eventually("it tells of the second reason", async || {
        let (_, reasons) = runner.process.get("/readyz").await;
        reasons.contains("leadership: the lease cannot be read: ") && reasons.contains("500")
    })
    .await;
}

#[tokio::test]
async fn a_leader_keeps_its_term_when_some_renewals_fail() {
    let world = World::embedded().await;
    let mut runner = world.runner(PATIENT, AT_ONCE).await;
    runner.leads().await;
    let renewals = || Requests::any().resource("leases").verb("patch");
    for fault in [Fault::status(500), Fault::CutAfter, Fault::status(409), Fault::Garbage] {
        runner.proxy.faults().inject(renewals(), 1, fault);
        eventually("the renewal has failed", async || runner.proxy.faults().pending() == 0).await;
        let renewed = world.lease().await.renew_time;
        eventually("it is made good", async || world.lease().await.renew_time > renewed).await;
    }
    world.leases().delete("staffetta", &DeleteParams::default()).await.unwrap();
    eventually("the lease is made anew", async || {
        world.leases().get_opt("staffetta").await.unwrap().is_some()
    })
    .await;
    world.pod("web").await;
    world.until_plugged("web", true).await;
    assert!(runner.process.terminate().await.success());
}

#[tokio::test]
async fn a_leader_whose_lease_is_taken_becomes_a_standby_and_later_the_leader_again() {
    let world = World::embedded().await;
    let mut runner = world.runner(PATIENT, AT_ONCE).await;
    runner.leads().await;
    world.pod("before").await;
    world.until_plugged("before", true).await;
    assert_eq!(runner.losses().await, 0);
    let first = world.lease().await.holder_identity.unwrap();

    let is_held_by = async |holder: &str| {
        let patch = Patch::Merge(json!({ "spec": { "holderIdentity": holder } }));
        world.leases().patch("staffetta", &PatchParams::default(), &patch).await.unwrap();
    };
    is_held_by("a thief").await;
    let line = runner.is_deposed().await;
    assert!(line.contains("the lease was taken by a thief"), "{line}");
    runner.stands_by().await;
    assert_eq!((runner.process.get("/livez").await.0, runner.losses().await), (200, 1));
    let written = runner.writes().len();
    let looks = || runner.proxy.requests().iter().filter(|request| request.resource == "leases").count();
    world.pod("after").await;
    let before = looks();
    eventually("it looks at the lease twice more", async || looks() >= before + 2).await;
    assert_eq!(world.lease().await.holder_identity.as_deref(), Some("a thief"));
    assert_eq!(runner.writes().len(), written, "who stands by writes nothing");

    is_held_by("").await;
    let lines = runner.process.says("this process is the leader").await;
    assert!(
        lines.iter().all(|line| !line.contains("is no longer the leader")),
        "it was said once: {lines:#?}"
    );
    world.until_plugged("after", true).await;
    runner.process.ready().await;
    let second = world.lease().await.holder_identity.unwrap();
    assert_eq!(second, format!("{first}-2"), "each term has a name of its own");
    assert!(runner.process.terminate().await.success());
    assert_eq!(world.lease().await.holder_identity.as_deref().unwrap_or_default(), "");
}

#[tokio::test]
async fn a_leader_without_its_server_exits_cleanly_before_it_loses_the_lease() {
    let world = World::embedded().await;
    let mut runner = world.runner(PATIENT, AT_ONCE).await;
    runner.leads().await;
    runner.process.ready().await;
    runner.proxy.faults().begin_outage();
    assert!(runner.process.terminate().await.success(), "it leads still");
}

#[tokio::test]
async fn a_leader_without_its_server_exits_cleanly_after_it_has_lost_the_lease() {
    let world = World::embedded().await;
    let mut runner = world.runner(SHORT, AT_ONCE).await;
    runner.leads().await;
    runner.process.ready().await;
    runner.proxy.faults().begin_outage();
    runner.is_deposed().await;
    assert!(runner.process.terminate().await.success(), "it leads no more");
}
