//! A lease that cannot be read or written.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta::leadership::Role;
use staffetta_apiserver::{Fault, Requests};
use staffetta_handler::causes;

use crate::process::eventually;
use crate::world::{AT_ONCE, LONG, PATIENT, SHORT, World};

#[tokio::test]
async fn without_rights_to_the_lease_it_says_so_and_goes_on_when_it_has_them() {
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

#[tokio::test]
async fn who_could_not_lead_is_never_ready_and_ends_with_the_reason_and_the_leader_goes_on() {
    const INCOMPLETE: &str = "[kubernetes]\nenabled_handlers = [\"vif\"]\npod_subnets_driver = \"default\"\n[admin]\nlisten = \"127.0.0.1:0\"\n";
    const REASON: &str = "the handler `vif` cannot be made: `neutron_defaults.pod_subnet` is missing";
    let world = World::embedded().await;
    let mut leader = world.runner(LONG, AT_ONCE).await;
    leader.leads().await;

    let mut standby = world.runner_as(world.proxy().await, INCOMPLETE).await;
    standby.process.says("standing by").await;
    standby.process.says(REASON).await;
    assert_eq!(standby.process.ends().await.code(), Some(1));
    assert!(standby.writes().is_empty());

    let registry = staffetta::assembly::registry();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), INCOMPLETE).unwrap();
    let schema = FileSchema::assemble(&registry).unwrap();
    let configuration = Configuration::load(&schema, Some(file.path()), []).unwrap();
    let controller = Controller::start(registry, &configuration, world.client()).await.unwrap();
    let admin = controller.admin();
    tokio::select! {
        biased;
        () = controller.ready() => panic!("it is ready at {admin}"),
        () = eventually("it ends", async || matches!(controller.leadership().role, Role::Ended(_))) => {}
    }
    let ended = controller.ended().await.map_err(|error| causes(&error));
    assert_eq!(ended, Err(REASON.to_owned()));

    world.pod("web").await;
    world.until_plugged("web", true).await;
    assert!(leader.process.terminate().await.success());
}

#[tokio::test]
async fn without_the_lease_each_new_reason_is_told() {
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
async fn a_leader_whose_renewals_fail_now_and_then_goes_on() {
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
async fn a_leader_whose_lease_is_taken_stands_by_for_the_thief_and_leads_again_after_it() {
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
    world.pod("after").await;
    assert_eq!(world.lease().await.holder_identity.as_deref(), Some("a thief"));
    assert_eq!(runner.writes().len(), written, "who stands by writes nothing");

    is_held_by("").await;
    let lines = runner.process.says("this process leads").await;
    assert!(
        lines.iter().all(|line| !line.contains("does not lead any more")),
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
async fn told_to_end_without_its_server_a_leader_ends_well_before_and_after_the_loss() {
    let world = World::embedded().await;
    let mut runner = world.runner(PATIENT, AT_ONCE).await;
    runner.leads().await;
    runner.process.ready().await;
    runner.proxy.faults().begin_outage();
    assert!(runner.process.terminate().await.success(), "it leads still");

    let mut runner = world.runner(SHORT, AT_ONCE).await;
    runner.leads().await;
    runner.process.ready().await;
    runner.proxy.faults().begin_outage();
    runner.is_deposed().await;
    assert!(runner.process.terminate().await.success(), "it leads no more");
}
