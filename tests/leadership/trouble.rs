//! A lease that cannot be read or written.

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use staffetta_apiserver::{Fault, Requests};

use crate::process::eventually;
use crate::world::{PATIENT, World};

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
async fn a_leader_whose_renewals_fail_now_and_then_goes_on() {
    let world = World::embedded().await;
    let mut runner = world.runner(PATIENT, "activation_delay_ms = 0\n").await;
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
async fn a_leader_whose_lease_is_taken_ends() {
    let world = World::embedded().await;
    let mut runner = world.runner(PATIENT, "").await;
    runner.leads().await;
    let thief = Patch::Merge(json!({ "spec": { "holderIdentity": "a thief" } }));
    world.leases().patch("staffetta", &PatchParams::default(), &thief).await.unwrap();
    let lines = runner.process.says("this process does not lead any more").await;
    assert!(lines.last().unwrap().contains("the lease was taken by a thief"), "{lines:#?}");
    assert_eq!(runner.process.ends().await.code(), Some(1));
    assert_eq!(world.lease().await.holder_identity.as_deref(), Some("a thief"));
}
