//! The environment of one test: an API server, in-memory devices, and a controller that represents the devices as nodes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta::dry_run::{DryRun, dry_run};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::app_hosting::AppHostingDrivers;
use staffetta_handler::Registry;
use staffetta_memory::MemoryDevices;
use staffetta_virtual_node::{Dependencies, Policy, VirtualNodeMetricsRegistry, VirtualNodes};

use crate::machines::Machines;

/// The time limit of a test step. It does not measure speed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Controllers of a world follow one another; what fails is tried again soon.
const OPTIONS: &str = "[leader_election]\nenabled = false\n[admin]\nlisten = \"127.0.0.1:0\"\n[relay]\nretry_interval = \"20ms\"\n\
                       retry_max_interval = \"50ms\"\nmax_concurrency = 2\n[shutdown]\ndrain = 1\n";

pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) machines: Machines,
    /// The devices of the driver `HELD`, which outlive controllers.
    pub(crate) devices: MemoryDevices,
    /// Further options of the configuration.
    pub(crate) options: String,
    /// The time for which something must have no owner before it is removed.
    pub(crate) orphan_grace: Duration,
}

impl World {
    pub(crate) async fn new() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let options = "[kubernetes]\nenabled_handlers = [\"machines\"]\n".to_owned();
        let orphan_grace = Duration::from_millis(300);
        let devices = MemoryDevices::new(Duration::from_millis(20));
        Self { server, client, machines: Machines::default(), devices, options, orphan_grace }
    }

    /// Starts a controller and waits until it is ready.
    pub(crate) async fn controller(&self) -> Controller {
        let registry = self.registry();
        let configuration = self.configuration(&registry);
        let mut controller = Controller::start(registry, &configuration, self.client.clone()).await.unwrap();
        tokio::time::timeout(PATIENCE, controller.ready())
            .await
            .expect("the controller is ready in time")
            .unwrap();
        controller
    }

    /// Runs the dry run of a controller.
    pub(crate) async fn dry_run(&self) -> DryRun {
        let registry = self.registry();
        let configuration = self.configuration(&registry);
        dry_run(registry, &configuration, self.client.clone(), PATIENCE).await.unwrap()
    }

    fn configuration(&self, registry: &Registry) -> Configuration {
        let schema = FileSchema::assemble(registry).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{}{OPTIONS}", self.options)).unwrap();
        let is_named = self.options.contains("cluster_id");
        let cluster_id = ("STAFFETTA_KUBERNETES__CLUSTER_ID".into(), "kubernetes".into());
        let variables = (!is_named).then_some(cluster_id);
        Configuration::load(&schema, Some(file.path()), variables).unwrap()
    }

    fn registry(&self) -> Registry {
        let mut registry = staffetta::assembly::registry();
        let devices = self.devices.clone();
        registry.driver::<dyn AppHostingDrivers>("HELD", "Held by the test.", move |setup| {
            Ok(Arc::new(devices.of_cluster(setup.cluster_id()?.into())))
        });
        let (machines, orphan_grace) = (self.machines.clone(), self.orphan_grace);
        registry.handler("machines", "Machines of the test.", move |setup| {
            let policy = Policy {
                poll_interval: Duration::from_millis(30),
                health_interval: Duration::from_millis(200),
                unreachable_after: Duration::from_millis(100),
                max_retry_interval: Duration::from_millis(100),
                orphan_grace,
                lease_interval: Duration::from_millis(200),
                ..Policy::default()
            };
            let source = Arc::new(machines.clone());
            let dependencies = Dependencies {
                handler: "machines",
                cluster: setup.cluster_id()?,
                client: setup.client(),
                source,
                recorder: setup.recorder.clone(),
                policy,
                kubelets: None,
                predecessor: None,
                metrics: VirtualNodeMetricsRegistry::default(),
            };
            Ok(VirtualNodes::new(dependencies).registration().erase())
        });
        registry
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    /// Creates a pod on the node `r1`; `spec` is merged over the usual.
    pub(crate) async fn pod(&self, name: &str, spec: Value) -> Pod {
        let mut pod = json!({ "metadata": { "name": name },
            "spec": { "nodeName": "r1", "containers": [{ "name": "app", "image": "flash:/a.tar" }] } });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Asks for the deletion of a pod.
    pub(crate) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Merges a change into a pod.
    pub(crate) async fn change_pod(&self, name: &str, patch: Value) {
        self.pods().patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    }

    /// The pod, as soon as it is in that phase.
    pub(crate) async fn pod_in(&self, name: &str, phase: &str) -> Pod {
        let mut found = None;
        self.until(&format!("the pod {name} is {phase}"), async || {
            let pod = self.pods().get_opt(name).await.unwrap();
            let is = pod.as_ref().and_then(|pod| pod.status.as_ref()?.phase.clone());
            found = pod;
            is.as_deref() == Some(phase)
        })
        .await;
        found.unwrap()
    }

    /// Waits until the pod is gone.
    pub(crate) async fn until_pod_is_gone(&self, name: &str) {
        self.until(&format!("the pod {name} is gone"), async || {
            self.pods().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    /// The node, as soon as its condition `Ready` is so.
    pub(crate) async fn node_ready(&self, name: &str, status: &str) -> Node {
        let mut found = None;
        self.until(&format!("the node {name} has Ready={status}"), async || {
            found = self.nodes().get_opt(name).await.unwrap();
            found.as_ref().and_then(|node| condition(node, "Ready")).is_some_and(|(is, _, _)| is == status)
        })
        .await;
        found.unwrap()
    }

    pub(crate) async fn lease(&self, name: &str) -> Option<Lease> {
        Api::namespaced(self.client.clone(), "kube-node-lease").get_opt(name).await.unwrap()
    }

    /// The Events of that reason, as texts.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let events: Api<Event> = Api::all(self.client.clone());
        let events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
        let reported = events.filter(|event| event.reason.as_deref() == Some(reason));
        reported.map(|event| event.message.unwrap_or_default()).collect()
    }

    /// Waits for an Event of that reason.
    pub(crate) async fn until_reported(&self, reason: &str) -> String {
        let mut reported = Vec::new();
        self.until(&format!("somebody is told {reason}"), async || {
            reported = self.events(reason).await;
            !reported.is_empty()
        })
        .await;
        reported.remove(0)
    }

    /// Asks again until `condition` holds.
    pub(crate) async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !condition().await {
            assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The status, reason and message of a node's condition.
pub(crate) fn condition(node: &Node, kind: &str) -> Option<(String, String, String)> {
    let condition =
        node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    Some((condition.status.clone(), text(&condition.reason), text(&condition.message)))
}
