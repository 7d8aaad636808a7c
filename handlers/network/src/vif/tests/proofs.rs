//! The marks that the handler writes beside the VIFs: its installation, and the proof for the daemon of the node.

use staffetta_handler::GarbageCollector;

use super::*;
use crate::proof::VIF_PROOF;
use staffetta_handler::CLUSTER_ANNOTATION;

/// A key, and a world whose handler proves by it, as the installation `east`, which selects all pods.
fn proving() -> (ProofKey, World) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [7; 32]).unwrap();
    let key = ProofKey::read(file.path()).unwrap();
    let mut world = world();
    world.prove(&key);
    (key, world)
}

impl World {
    /// Restarts the controller as one that proves by `key`.
    fn prove(&mut self, key: &ProofKey) {
        let handler = handler(&self.api, &self.network, &self.vifs, &self.recorded).proven_by(key.clone());
        self.handler = handler.managed_by(Installation::new("east", |_| true));
    }

    /// Lets the port of the pod become active.
    async fn becomes_active(&self) {
        tokio::time::advance(self.activation_delay()).await;
        self.event().await.unwrap();
    }

    /// Returns `true` if the pod shows a proof of the VIFs that it shows.
    fn is_proven(&self, key: &ProofKey) -> bool {
        let proof = self.api.annotation(VIF_PROOF).unwrap_or_default();
        self.shown().is_some_and(|state| key.proves(UID, &state, &proof))
    }
}

#[tokio::test(start_paused = true)]
async fn a_vif_is_proven_by_the_write_that_publishes_it_and_stays_so_when_it_is_active() {
    let (key, world) = proving();
    world.event().await.unwrap();
    assert!(world.is_proven(&key));
    assert_eq!(world.api.annotation(CLUSTER_ANNOTATION).as_deref(), Some("east"));
    world.becomes_active().await;
    world.event().await.unwrap();
    assert!(world.is_proven(&key) && world.shown().unwrap().default_vif.active);
    assert_eq!(world.patches().len(), 2);
    world.phase("Succeeded");
    world.event().await.unwrap();
    assert_eq!((world.api.annotation(VIF_PROOF), world.api.annotation(CLUSTER_ANNOTATION)), (None, None));
    world.assert_released();
}

#[tokio::test(start_paused = true)]
async fn a_vif_that_was_accepted_before_is_proven_at_the_start_although_its_port_is_not_active() {
    let mut world = world();
    world.event().await.unwrap();
    let (key, _) = proving();
    world.prove(&key);
    world.event().await.unwrap();
    assert!(world.is_proven(&key) && !world.shown().unwrap().default_vif.active);
    // Whoever removes or replaces the proof gets it back.
    world.api.annotate(VIF_PROOF, "0");
    world.event().await.unwrap();
    assert!(world.is_proven(&key));
    world.becomes_active().await;
    assert_eq!(world.patches().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn no_forged_vif_is_ever_proven() {
    let (key, world) = proving();
    world.activate().await;
    let own = world.shown().unwrap().default_vif;
    let macvlan = VifClass::MacvlanNested { vif_name: "eth0".to_owned() };
    let vlan = VifClass::VlanNested { vif_name: "eth0".to_owned(), vlan_id: 7 };
    let mut address = own.clone();
    address.address = "fa:16:3e:99:99:99".parse().unwrap();
    let forged = [macvlan, vlan].map(|class| Vif { class, ..own.clone() });
    world.phase("Running");
    for forged in forged.into_iter().chain([address]) {
        world.annotate(&PodState::new(Vif { active: true, ..forged }).write());
        world.event().await.unwrap_err();
        assert!(!world.is_proven(&key));
    }
    world.annotate(&PodState::new(own).write());
    world.event().await.unwrap();
    assert!(world.is_proven(&key));
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_installation_is_left_alone_and_what_was_requested_before_is_released() {
    let (key, mut world) = proving();
    world.api.answer(Answer::Overtaken);
    world.event().await.unwrap_err();
    assert_eq!(world.ports().len(), 1);
    // The other one was faster.
    world.api.annotate(CLUSTER_ANNOTATION, "west");
    world.event().await.unwrap();
    assert_eq!((world.ports().len(), world.patches().len(), world.text()), (0, 1, None));
    world.prove(&key);
    world.event().await.unwrap();
    assert_eq!((world.patches().len(), world.requests()), (1, 1));
    world.terminate(0).await.unwrap();
    world.deleted().await.unwrap();
    assert_eq!((world.patches().len(), world.requests()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_that_shows_another_installation_and_no_vif_keeps_its_port() {
    let (key, mut world) = proving();
    world.event().await.unwrap();
    world.becomes_active().await;
    world.api.change(|pod| {
        pod["metadata"]["annotations"] = json!({ CLUSTER_ANNOTATION: "west" });
        pod["status"] = json!({ "phase": "Running", "podIP": "10.10.0.2" });
    });
    world.prove(&key);
    world.handler.recover().await.unwrap();
    world.event().await.unwrap();
    assert_eq!(world.ports().len(), 1);
    world.deleted().await.unwrap();
    assert!(world.ports().is_empty());
}
