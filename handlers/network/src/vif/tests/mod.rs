mod deletion;
mod failures;
mod forgery;
mod late;
mod laws;
mod networks;
mod oddities;
mod pools;
mod presence;
mod proofs;
mod recovery;
mod restored;
mod uses;

use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::{Vif, VifClass, VifId, VifRequest};
use staffetta_handler::{Failure, Identity, TriggerHandler, deliver};
use staffetta_memory::{MemoryNetwork, MemoryOptions, MemoryVifDriver, VifCall};
use staffetta_pool::NoopVifPool;

use super::*;
use crate::os_vif::{KURYR_VIF, PodState};
use crate::testing::api_server::{Answer, ApiServer, THEIRS};
use crate::testing::recorder::RecordedEvents;

const UID: &str = "uid-web";

/// The handler, the simulated network, and an API server with one pod.
struct World {
    api: Arc<ApiServer<Pod>>,
    network: Arc<MemoryNetwork>,
    vifs: Arc<MemoryVifDriver>,
    handler: VifHandler,
    recorded: RecordedEvents,
}

fn world() -> World {
    World::new(MemoryOptions::default())
}

/// Creates a pod whose VIF is active.
async fn active() -> World {
    let world = world();
    world.activate().await;
    world
}

impl World {
    /// Creates a world with a scheduled pod.
    fn new(options: MemoryOptions) -> Self {
        let network = Arc::new(MemoryNetwork::new(options));
        let vifs = Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
        let spec = json!({ "containers": [], "nodeName": "node-1" });
        let api = ApiServer::new(&spec, &json!({ "phase": "Pending", "hostIP": "192.0.2.1" }));
        let recorded = RecordedEvents::default();
        let handler = handler(&api, &network, &vifs, &recorded);
        Self { api, network, vifs, handler, recorded }
    }

    /// Restarts the controller.
    fn restart(&mut self) {
        let additional = self.handler.drivers.additional.clone();
        self.handler = handler(&self.api, &self.network, &self.vifs, &self.recorded);
        self.handler.drivers.additional = additional;
    }

    async fn feed(&self, event: Event<Pod>) -> Result<(), VifError> {
        if self.handler.wants(&event).is_taken() {
            deliver(&self.handler, &event).await.map(drop)
        } else {
            Ok(())
        }
    }

    /// Delivers the present state of the pod.
    async fn event(&self) -> Result<(), VifError> {
        self.feed(Event::Modified(self.api.object())).await
    }

    /// Delivers the deletion of the pod with its last state.
    async fn deleted(&self) -> Result<(), VifError> {
        self.feed(Event::Deleted(Tombstone::Last(self.api.object()))).await
    }

    /// Delivers a missed deletion of the pod.
    async fn missed(&self) -> Result<(), VifError> {
        let identity = Identity::of::<Pod>(Some("default".into()), "web".into(), UID.into());
        self.feed(Event::Deleted(Tombstone::Missed(Arc::new(identity)))).await
    }

    /// Brings the pod to an active VIF.
    async fn activate(&self) {
        self.event().await.unwrap();
        tokio::time::advance(self.activation_delay()).await;
        self.event().await.unwrap();
    }

    fn activation_delay(&self) -> Duration {
        Duration::from_millis(self.network.options().activation_delay_ms)
    }

    /// Requests the deletion of the pod, with a grace period in seconds.
    fn delete(&self, grace: i64) {
        self.api.change(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        });
    }

    /// Requests the deletion of the pod and delivers the event.
    async fn terminate(&self, grace: i64) -> Result<(), VifError> {
        self.delete(grace);
        self.event().await
    }

    fn phase(&self, phase: &str) {
        self.api.change(|pod| pod["status"]["phase"] = json!(phase));
    }

    fn annotate(&self, text: &str) {
        self.api.annotate(KURYR_VIF, text);
    }

    /// Returns the value of the pod's annotation.
    fn text(&self) -> Option<String> {
        self.api.annotation(KURYR_VIF)
    }

    /// Returns the published VIFs.
    fn shown(&self) -> Option<PodState> {
        self.text().map(|text| PodState::read(&text).unwrap())
    }

    fn finalizers(&self) -> Vec<String> {
        self.api.finalizers()
    }

    /// Returns the bodies of all patches including refused ones; all are patches of the pod's
    /// metadata.
    fn patches(&self) -> Vec<Value> {
        let body = |(what, body)| {
            assert_eq!(what, "metadata");
            body
        };
        self.api.patches().into_iter().map(body).collect()
    }

    /// Asserts that the VIF is released and the handler's finalizer is removed.
    fn assert_released(&self) {
        assert_eq!((self.ports(), self.finalizers()), (vec![], vec![THEIRS.to_owned()]));
    }

    /// Asserts that neither the driver nor the API server was called.
    fn assert_unasked(&self) {
        assert_eq!((self.vifs.calls(), self.patches()), (vec![], vec![]));
    }

    fn requests(&self) -> usize {
        self.vifs.calls().iter().filter(|call| matches!(call, VifCall::Request(_))).count()
    }

    fn releases(&self) -> usize {
        self.vifs.calls().iter().filter(|call| matches!(call, VifCall::Release(..))).count()
    }

    fn lists(&self) -> usize {
        self.vifs.calls().iter().filter(|call| matches!(call, VifCall::List(_))).count()
    }

    fn ports(&self) -> Vec<VifId> {
        self.network.ports().into_iter().map(|port| port.vif.id).collect()
    }
}

fn handler(
    api: &Arc<ApiServer<Pod>>,
    network: &Arc<MemoryNetwork>,
    vifs: &Arc<MemoryVifDriver>,
    recorded: &RecordedEvents,
) -> VifHandler {
    let pool = NoopVifPool::new(Arc::clone(vifs) as Arc<dyn staffetta_driver::PodVifDriver>);
    let drivers = VifDrivers {
        project: Arc::clone(network) as _,
        subnets: Arc::clone(network) as _,
        security_groups: Arc::clone(network) as _,
        pool: Arc::new(pool),
        additional: None,
    };
    VifHandler::new(api.client(), drivers, Arc::default(), recorded.recorder())
}
