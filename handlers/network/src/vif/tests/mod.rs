mod api;
mod deletion;
mod failures;
mod laws;
mod presence;
mod recovery;

use std::time::Duration;

use serde_json::{Value, json};
use staffetta_driver::memory::{
    MemoryNetwork, MemoryOptions, MemoryPodProject, MemoryPodSecurityGroups, MemoryPodSubnets,
    MemoryVifDriver, VifCall,
};
use staffetta_driver::{NoopPool, VifClass, VifId};
use staffetta_handler::{Identity, deliver};

use self::api::{Answer, Api};
use super::*;

const UID: &str = "uid-web";

/// The handler, the simulated network, and an API server with one pod.
struct World {
    api: Arc<Api>,
    network: Arc<MemoryNetwork>,
    vifs: Arc<MemoryVifDriver>,
    handler: VifHandler,
}

/// A pod that was given a node.
fn scheduled() -> Value {
    json!({
        "metadata": {
            "namespace": "default", "name": "web", "uid": UID, "resourceVersion": "1",
            "annotations": { "example.com/theirs": "stays" }, "finalizers": ["example.com/theirs"],
        },
        "spec": { "containers": [], "nodeName": "node-1" },
        "status": { "phase": "Pending", "hostIP": "192.0.2.1" },
    })
}

fn world() -> World {
    World::new(scheduled(), MemoryOptions::default())
}

impl World {
    fn new(pod: Value, options: MemoryOptions) -> Self {
        let network = Arc::new(MemoryNetwork::new(options));
        let vifs = Arc::new(MemoryVifDriver::new(Arc::clone(&network), "east".into()));
        let api = Api::new(pod);
        let handler = handler(&api, &network, &vifs);
        Self { api, network, vifs, handler }
    }

    /// The controller is killed and started again.
    fn restart(&mut self) {
        self.handler = handler(&self.api, &self.network, &self.vifs);
    }

    async fn feed(&self, event: Event<Pod>) -> Result<(), VifError> {
        if self.handler.wants(&event) { deliver(&self.handler, &event).await } else { Ok(()) }
    }

    /// The pod's present state is delivered.
    async fn event(&self) -> Result<(), VifError> {
        self.feed(Event::Modified(Arc::new(self.api.pod()))).await
    }

    /// The pod is gone, and the watch tells its last state.
    async fn deleted(&self) -> Result<(), VifError> {
        self.feed(Event::Deleted(Tombstone::Last(Arc::new(self.api.pod())))).await
    }

    /// The pod is gone, and nobody watched.
    async fn missed(&self) -> Result<(), VifError> {
        let identity = Identity::of::<Pod>(Some("default".into()), "web".into(), UID.into());
        self.feed(Event::Deleted(Tombstone::Missed(Arc::new(identity)))).await
    }

    /// Brings the pod to an active VIF.
    async fn settle(&self) {
        self.event().await.unwrap();
        tokio::time::advance(self.activation_delay()).await;
        self.event().await.unwrap();
    }

    fn activation_delay(&self) -> Duration {
        Duration::from_millis(self.network.options().activation_delay_ms)
    }

    /// The deletion of the pod is asked for.
    fn delete(&self, grace: i64) {
        self.api.change(|pod| {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
        });
    }

    fn phase(&self, phase: &str) {
        self.api.change(|pod| pod["status"]["phase"] = json!(phase));
    }

    fn annotate(&self, text: impl Into<String>) {
        let text = text.into();
        self.api.change(|pod| pod["metadata"]["annotations"][KURYR_VIF] = json!(text));
    }

    /// What the pod shows of its VIFs.
    fn shown(&self) -> Option<PodState> {
        annotation(&self.api.pod()).map(|text| PodState::read(text).unwrap())
    }

    fn finalizers(&self) -> Vec<String> {
        self.api.pod().metadata.finalizers.unwrap_or_default()
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

fn handler(api: &Arc<Api>, network: &Arc<MemoryNetwork>, vifs: &Arc<MemoryVifDriver>) -> VifHandler {
    let pool = NoopPool::new(Arc::clone(vifs) as Arc<dyn staffetta_driver::PodVifDriver>);
    let drivers = VifDrivers {
        project: Arc::new(MemoryPodProject(Arc::clone(network))),
        subnets: Arc::new(MemoryPodSubnets(Arc::clone(network))),
        security_groups: Arc::new(MemoryPodSecurityGroups(Arc::clone(network))),
        pool: Arc::new(pool),
    };
    VifHandler::new(api.client(), drivers)
}
