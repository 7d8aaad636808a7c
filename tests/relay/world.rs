//! The environment of one test: an API server, a controller, and a simulated network.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta::dry_run::{DryRun, dry_run};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_driver::{LoadBalancerDriver, PodVifDriver, ServicePublicIpDriver};
use staffetta_handler::Registry;
use staffetta_memory::{
    MemoryLoadBalancerDriver, MemoryNetwork, MemoryOptions, MemoryPublicIpDriver, MemoryServices,
    MemoryVifDriver, VifCall,
};

/// The time after which a step fails the test. It is no performance requirement.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) const VIF: &str = "openstack.org/kuryr-vif";
pub(crate) const SPEC: &str = "openstack.org/kuryr-lbaas-spec";
pub(crate) const STATE: &str = "openstack.org/kuryr-lbaas-state";

/// The controllers of a world follow one another, and no two run at a time.
const ALONE: &str = "[leader_election]\nenabled = false\n[admin]\nlisten = \"127.0.0.1:0\"\n";

/// An API server and a simulated world, which outlive the controllers that work in them.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    pub(crate) vifs: Arc<MemoryVifDriver>,
    pub(crate) load_balancers: Arc<MemoryLoadBalancerDriver>,
    pub(crate) public_ips: Arc<MemoryPublicIpDriver>,
    pub(crate) services: Arc<MemoryServices>,
    options: &'static str,
}

impl World {
    /// A world with default options: ports take 50 ms to become ACTIVE.
    pub(crate) async fn new() -> Self {
        Self::with("").await
    }

    /// A world in which the controller gets these options on top.
    pub(crate) async fn with(options: &'static str) -> Self {
        Self::wired(options, 50).await
    }

    /// A world whose VIFs do not become active while a test looks.
    pub(crate) async fn never_wired() -> Self {
        Self::wired("", 3_600_000).await
    }

    async fn wired(options: &'static str, activation_delay_ms: u64) -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let memory =
            MemoryOptions { activation_delay_ms, load_balancer_delay_ms: 0, ..MemoryOptions::default() };
        let network = Arc::new(MemoryNetwork::new(memory.clone()));
        let services = Arc::new(MemoryServices::new(memory));
        let cluster = || "kubernetes".into();
        Self {
            server,
            client,
            vifs: Arc::new(MemoryVifDriver::new(network, cluster())),
            load_balancers: Arc::new(MemoryLoadBalancerDriver::new(Arc::clone(&services), cluster())),
            public_ips: Arc::new(MemoryPublicIpDriver::new(Arc::clone(&services), cluster())),
            services,
            options,
        }
    }

    /// Starts a controller and waits until it is ready.
    pub(crate) async fn controller(&self) -> Controller {
        self.controller_with(self.registry()).await
    }

    /// Starts a controller with these handlers and drivers, and waits until it is ready.
    pub(crate) async fn controller_with(&self, registry: Registry) -> Controller {
        let mut controller = self.starting_controller_with(registry).await;
        tokio::time::timeout(PATIENCE, controller.ready())
            .await
            .expect("the controller is ready in time")
            .unwrap();
        controller
    }

    /// Starts a controller.
    pub(crate) async fn starting_controller(&self) -> Controller {
        self.starting_controller_with(self.registry()).await
    }

    async fn starting_controller_with(&self, registry: Registry) -> Controller {
        let configuration = self.configuration(&registry);
        Controller::start(registry, &configuration, self.client.clone()).await.unwrap()
    }

    /// The plan of a dry run.
    pub(crate) async fn dry_run(&self) -> DryRun {
        let registry = self.registry();
        let configuration = self.configuration(&registry);
        dry_run(registry, &configuration, self.client.clone(), PATIENCE).await.unwrap()
    }

    /// Everything that ships, on the drivers of this world.
    pub(crate) fn registry(&self) -> Registry {
        const HELD: &str = "Held by the test.";
        let mut registry = staffetta::assembly::registry();
        staffetta::assembly::world(&mut registry, self.vifs.network(), &self.services);
        let driver = Arc::clone(&self.vifs);
        registry.driver::<dyn PodVifDriver>("memory", HELD, move |_| Ok(Arc::clone(&driver) as _));
        let driver = Arc::clone(&self.load_balancers);
        registry.driver::<dyn LoadBalancerDriver>("memory", HELD, move |_| Ok(Arc::clone(&driver) as _));
        let driver = Arc::clone(&self.public_ips);
        registry.driver::<dyn ServicePublicIpDriver>("memory", HELD, move |_| Ok(Arc::clone(&driver) as _));
        registry
    }

    /// The options of this world.
    pub(crate) fn configuration(&self, registry: &Registry) -> Configuration {
        let schema = FileSchema::assemble(registry).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = format!("{}\n{ALONE}", self.options);
        std::fs::write(file.path(), text).unwrap();
        let cluster_id = ("STAFFETTA_KUBERNETES__CLUSTER_ID".into(), "kubernetes".into());
        Configuration::load(&schema, Some(file.path()), [cluster_id]).unwrap()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn web_services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// Creates a service with the usual port.
    pub(crate) async fn service(&self, name: &str, spec: Value) {
        let service = json!({ "metadata": { "name": name }, "spec": spec });
        self.web_services()
            .create(&PostParams::default(), &serde_json::from_value(service).unwrap())
            .await
            .unwrap();
    }

    /// Creates the slice of a service.
    pub(crate) async fn slice(&self, service: &str, addresses: &[&str]) {
        let endpoints: Vec<_> = addresses
            .iter()
            .map(|ip| json!({ "addresses": [ip], "conditions": { "ready": true } }))
            .collect();
        let slice = json!({ "metadata": { "name": format!("{service}-1"), "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "endpoints": endpoints, "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }] });
        self.slices().create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    }

    /// Replaces the addresses in the slice of a service.
    pub(crate) async fn set_endpoints(&self, service: &str, addresses: &[&str]) {
        let endpoints: Vec<_> = addresses
            .iter()
            .map(|ip| json!({ "addresses": [ip], "conditions": { "ready": true } }))
            .collect();
        let patch = Patch::Merge(json!({ "endpoints": endpoints }));
        self.slices().patch(&format!("{service}-1"), &PatchParams::default(), &patch).await.unwrap();
    }

    /// Merges a change into a service.
    pub(crate) async fn change_service(&self, name: &str, patch: Value) {
        self.web_services().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Creates a pod on a node; `metadata` and `spec` are merged over the usual.
    pub(crate) async fn pod(&self, name: &str, metadata: Value, spec: Value) -> Pod {
        let mut pod = json!({ "metadata": { "name": name },
            "spec": { "nodeName": "n1", "containers": [{ "name": "c", "image": "i" }] } });
        merge(&mut pod["metadata"], metadata);
        merge(&mut pod["spec"], spec);
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Merges a change into a pod.
    pub(crate) async fn change_pod(&self, name: &str, patch: Value) {
        self.pods().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Finishes a deletion as a kubelet does: with grace period 0.
    pub(crate) async fn end_pod(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// The value of an annotation of a pod, once it has one that `fits`.
    pub(crate) async fn vif_of(&self, name: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let mut found = Value::Null;
        self.until(&format!("the pod {name} has such a VIF"), async || {
            let pod = self.pods().get(name).await.unwrap();
            let text = pod.metadata.annotations.unwrap_or_default().get(VIF).cloned().unwrap_or_default();
            let state: Value = serde_json::from_str(&text).unwrap_or_default();
            found = state["versioned_object.data"]["default_vif"]["versioned_object.data"].clone();
            !found.is_null() && fits(&found)
        })
        .await;
        found
    }

    /// Waits until the pod is gone.
    pub(crate) async fn until_pod_is_gone(&self, name: &str) {
        self.until(&format!("the pod {name} is gone"), async || {
            self.pods().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    /// The number of ports.
    pub(crate) fn ports(&self) -> usize {
        self.vifs.network().ports().len()
    }

    /// The number of VIF requests.
    pub(crate) fn requests_of_vifs(&self) -> usize {
        self.vifs.calls().iter().filter(|call| matches!(call, VifCall::Request(_))).count()
    }

    /// The controller's requests for single objects of a resource: reads and writes.
    pub(crate) fn reads_and_writes(&self, resource: &str) -> (usize, usize) {
        let requests = self.server.requests();
        let of = |verb: &str| {
            requests.iter().filter(|request| request.resource == resource && request.verb == verb).count()
        };
        (of("get"), of("patch") + of("update"))
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

/// Returns `true` if the VIF is active.
pub(crate) fn active(vif: &Value) -> bool {
    vif["active"] == json!(true)
}

fn merge(target: &mut Value, over: Value) {
    if let (Some(target), Value::Object(over)) = (target.as_object_mut(), over) {
        target.extend(over);
    }
}
