//! Annotations that somebody removed or spoilt are written again, and no VIF of a pod that may use it is released.

use staffetta_handler::GarbageCollector;

use super::networks::asking;
use super::*;
use crate::annotation::RESTORED;
use crate::vif::networks::NETWORKS;

impl World {
    /// Makes the pod run with the address of its default VIF.
    fn run(&self) {
        let address = self.shown().unwrap().default_vif.ips().next().unwrap().to_string();
        self.api.change(|pod| pod["status"] = json!({ "phase": "Running", "podIP": address }));
    }

    fn remove(&self, key: &str) {
        self.api.change(|pod| drop(pod["metadata"]["annotations"].as_object_mut().unwrap().remove(key)));
    }

    /// Restarts the controller, which reads the marks.
    async fn recover(&mut self) {
        self.restart();
        self.handler.recover().await.unwrap();
    }
}

/// Creates a pod that runs with the additional networks of `text`.
async fn running(text: &str) -> World {
    let world = asking(text);
    world.activate().await;
    world.run();
    world.event().await.unwrap();
    world
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_with_additional_networks_keeps_its_vifs_and_gets_its_annotation_back() {
    for spoilt in [None, Some("nonsense")] {
        let mut world = running("blue").await;
        let (text, ports) = (world.text(), world.ports());
        for restart in [false, true] {
            if restart {
                world.recover().await;
            }
            match spoilt {
                None => world.remove(KURYR_VIF),
                Some(text) => world.annotate(text),
            }
            world.event().await.unwrap();
            assert_eq!((world.ports(), world.releases(), world.text()), (ports.clone(), 0, text.clone()));
            assert_eq!(world.recorded.reasons(), [RESTORED]);
            world.event().await.unwrap();
            assert_eq!((world.ports(), world.recorded.reasons()), (ports.clone(), vec![]));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn interfaces_of_one_subnet_are_restored_from_memory_and_after_a_restart_reported_and_kept() {
    let mut world = running("blue, default/blue@net7").await;
    let (text, ports) = (world.text(), world.ports());
    world.remove(KURYR_VIF);
    world.event().await.unwrap();
    assert_eq!(world.text(), text);
    world.recover().await;
    world.remove(KURYR_VIF);
    let error = world.event().await.unwrap_err();
    assert_eq!((error.reason(), error.transient()), ("VifAnnotationLost", false));
    assert_eq!((world.ports(), world.releases()), (ports, 0));
    world.phase("Succeeded");
    world.event().await.unwrap();
    world.assert_released();
}

#[tokio::test(start_paused = true)]
async fn the_vifs_of_additional_networks_are_kept_although_their_request_was_removed_too() {
    let mut world = running("blue").await;
    let ports = world.ports();
    world.remove(NETWORKS);
    world.remove(KURYR_VIF);
    world.recover().await;
    for _ in 0..3 {
        world.event().await.unwrap();
        world.handler.owners().await.unwrap();
        for trigger in world.handler.leaks.triggers() {
            world.handler.on_trigger(&trigger).await.unwrap();
        }
    }
    assert_eq!((world.ports(), world.releases()), (ports, 0));
    assert_eq!(world.shown().unwrap().vifs().count(), 1);
    world.terminate(0).await.unwrap();
    // The deletion, and the garbage collection after it.
    world.missed().await.unwrap();
    world.missed().await.unwrap();
    assert_eq!(world.ports(), [], "they go when the pod has ended");
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_without_annotation_and_finalizer_keeps_its_vif_also_when_it_is_deleted_at_that_moment()
{
    for restart in [false, true] {
        let mut world = active().await;
        world.event().await.unwrap();
        world.run();
        let ports = world.ports();
        world.remove(KURYR_VIF);
        world.api.change(|pod| pod["metadata"]["finalizers"] = json!([THEIRS]));
        if restart {
            world.recover().await;
        }
        // The deletion is requested between the event and the write.
        world.api.answer(Answer::Refuse(422, vec!["metadata.finalizers"]));
        world.event().await.unwrap();
        world.delete(30);
        world.event().await.unwrap();
        assert_eq!((world.ports(), world.releases()), (ports, 0));
        world.deleted().await.unwrap();
        assert_eq!(world.ports(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn the_vif_of_a_running_pod_whose_annotation_names_a_foreign_one_survives_a_restart() {
    for status in
        [json!({ "phase": "Running" }), json!({ "phase": "Running", "podIP": "10.10.0.2" }), json!({})]
    {
        let mut world = active().await;
        world.event().await.unwrap();
        let (ports, vif) = (world.ports(), world.shown().unwrap().default_vif);
        world.annotate(&PodState::new(Vif { id: "of-another".into(), ..vif }).write());
        world.api.change(|pod| pod["status"] = status);
        world.recover().await;
        for _ in 0..3 {
            assert_eq!(world.event().await.unwrap_err().reason(), "VifForeign");
        }
        assert_eq!((world.ports(), world.releases()), (ports, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_has_not_started_gets_its_own_vif_back_in_place_of_a_foreign_one() {
    for restart in [false, true] {
        let mut world = active().await;
        world.event().await.unwrap();
        let (ports, vif) = (world.ports(), world.shown().unwrap().default_vif);
        world.annotate(&PodState::new(Vif { id: "of-another".into(), ..vif.clone() }).write());
        if restart {
            world.recover().await;
        }
        for _ in 0..3 {
            world.event().await.unwrap();
        }
        assert_eq!((world.shown().unwrap().default_vif.id, world.ports()), (vif.id, ports));
    }
}
