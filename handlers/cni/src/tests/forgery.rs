//! A node binds what the controller has accepted, whatever a tenant writes to its pods.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use staffetta_driver::{Vif, VifBindingDriver, VifClass};
use staffetta_network::os_vif::{KURYR_VIF, PodState};
use staffetta_network::proof::{ProofKey, VIF_PROOF};

use super::world::{Kernel, code, from, request, vif};
use crate::acceptance::Acceptance;
use crate::daemon::CniDaemon;
use crate::records::Records;

fn key(folder: &Path, byte: u8) -> ProofKey {
    fs::write(folder.join("key"), [byte; 32]).unwrap();
    ProofKey::read(&folder.join("key")).unwrap()
}

/// A daemon that binds bridges and macvlans by its drivers, and may bind bridges alone.
fn daemon(kernel: &Arc<Kernel>, folder: &Path, key: Option<ProofKey>) -> Arc<CniDaemon> {
    let driver = |class: &str| (class.to_owned(), Arc::<Kernel>::clone(kernel) as Arc<dyn VifBindingDriver>);
    let bindings = ["VIFBridge", "VIFMacvlanNested"].map(driver);
    let records = Records::open(&folder.join("records")).unwrap();
    let acceptance = Acceptance { classes: Some(["VIFBridge".to_owned()].into()), key };
    let daemon = CniDaemon::new(records, bindings.into(), Duration::from_secs(60)).accepting(acceptance);
    daemon.set_ready();
    Arc::new(daemon)
}

/// Shows a pod with everything that a tenant can write.
fn show(daemon: &CniDaemon, uid: &str, vif: Vif, proof: Option<&str>) {
    daemon.pods.put(&from(json!({ "metadata": { "namespace": "default", "name": uid, "uid": uid,
        "labels": { "staffetta.dev/vif": "true" }, "finalizers": ["staffetta.dev/vif", "staffetta.dev/x"],
        "annotations": { KURYR_VIF: PodState::new(vif).write(), VIF_PROOF: proof.unwrap_or_default(), "staffetta.dev/cluster": "east" } } })));
}

#[tokio::test(start_paused = true)]
async fn nothing_that_a_tenant_can_write_is_bound_instead_of_what_the_controller_has_accepted() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let (ours, others) = (key(folder.path(), 1), key(folder.path(), 2));
    let daemon = daemon(&kernel, folder.path(), Some(ours.clone()));
    let prove = |key: &ProofKey, uid: &str, vif: &Vif| key.prove(uid, &PodState::new(vif.clone()));
    let proof = prove(&ours, "u1", &vif(1));
    let macvlan = Vif { class: VifClass::MacvlanNested { vif_name: "eth0".to_owned() }, ..vif(1) };
    let bridge = VifClass::Bridge { vif_name: "tap".to_owned(), bridge_name: "br-other".to_owned() };
    let mut network = vif(1);
    network.network.id = "other".into();
    for (forged, proof) in [
        (vif(1), None),
        (vif(1), Some("f".repeat(64))),
        (vif(1), Some(prove(&others, "u1", &vif(1)))),
        (vif(1), Some(prove(&ours, "u2", &vif(1)))),
        (vif(2), Some(proof.clone())),
        (macvlan.clone(), Some(proof.clone())),
        (Vif { class: bridge, ..vif(1) }, Some(proof.clone())),
        (Vif { address: vif(2).address, ..vif(1) }, Some(proof.clone())),
        (Vif { subnets: vif(2).subnets, ..vif(1) }, Some(proof.clone())),
        (network, Some(proof.clone())),
        (macvlan.clone(), Some(prove(&ours, "u1", &macvlan))),
    ] {
        show(&daemon, "u1", forged.clone(), proof.as_deref());
        assert_eq!(code(daemon.add(&request("u1", "u1", "c1")).await), 11, "{forged:?} {proof:?}");
        assert!(kernel.ports().is_empty());
    }
    show(&daemon, "u1", Vif { active: false, ..vif(1) }, Some(&proof));
    show(&daemon, "u1", vif(1), Some(&proof));
    daemon.add(&request("u1", "u1", "c1")).await.unwrap();
    assert_eq!(kernel.ports(), ["port-001-0000"]);
}

#[tokio::test(start_paused = true)]
async fn a_restored_annotation_of_an_earlier_vif_is_not_bound_and_the_present_one_still_is() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let key = key(folder.path(), 1);
    let daemon = daemon(&kernel, folder.path(), Some(key.clone()));
    let proof = |number| key.prove("u1", &PodState::new(vif(number)));
    for number in [1, 2, 1] {
        show(&daemon, "u1", vif(number), Some(&proof(number)));
    }
    let error = daemon.add(&request("u1", "u1", "c1")).await.unwrap_err();
    assert!(error.details.ends_with("is that of a VIF that the pod had before"), "{error:?}");
    assert!(kernel.ports().is_empty());
    show(&daemon, "u1", vif(2), Some(&proof(2)));
    daemon.add(&request("u1", "u1", "c1")).await.unwrap();
    assert_eq!(kernel.ports(), ["port-002-0000"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_key_the_finalizer_and_the_class_decide() {
    let (kernel, folder) = (Kernel::new(), tempfile::tempdir().unwrap());
    let daemon = daemon(&kernel, folder.path(), None);
    let macvlan = Vif { class: VifClass::MacvlanNested { vif_name: "eth0".to_owned() }, ..vif(1) };
    show(&daemon, "u1", macvlan, None);
    let error = daemon.add(&request("u1", "u1", "c1")).await.unwrap_err();
    assert_eq!(
        error.details,
        "this node binds no VIF of the class `VIFMacvlanNested` (`cni_daemon.vif_classes`)"
    );
    show(&daemon, "u1", vif(1), None);
    daemon.add(&request("u1", "u1", "c1")).await.unwrap();
}
