//! A controller in a separate namespace, on any API server.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod, Service, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_apiserver::{ApiServer, Fault, Options, Requests};
use staffetta_driver::PodVifDriver;
use staffetta_memory::{MemoryNetwork, MemoryOptions, MemoryServices, MemoryVifDriver, VifCall};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The time limit of one step.
const PATIENCE: Duration = Duration::from_secs(60);

/// The embedded API server.
pub(crate) struct Embedded {
    server: ApiServer,
    folder: tempfile::TempDir,
}

impl Embedded {
    pub(crate) async fn start() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        Self { server, folder }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Refuses to take Events.
    pub(crate) fn refuse_events(&self, code: u16) {
        let events = Requests::any().verb("create").resource("events");
        self.server.faults().inject(events, usize::from(u16::MAX), Fault::status(code));
    }

    /// The number of requests that wrote Events.
    pub(crate) fn requests_for_events(&self) -> usize {
        let requests = self.server.requests();
        requests.iter().filter(|request| request.resource == "events" && request.is_write()).count()
    }
}

pub(crate) struct World {
    client: Client,
    pub(crate) namespace: String,
    pub(crate) vifs: Arc<MemoryVifDriver>,
    controller: Controller,
}

impl World {
    /// Starts a controller with additional options and waits until it is ready.
    pub(crate) async fn start(kubeconfig: &Path, options: &str) -> Self {
        static WORLDS: AtomicU32 = AtomicU32::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("events-{}-{number}", std::process::id());
        let client = staffetta::connect::client(Some(kubeconfig), None).await.unwrap();
        let memory =
            MemoryOptions { activation_delay_ms: 50, load_balancer_delay_ms: 0, ..MemoryOptions::default() };
        let network = Arc::new(MemoryNetwork::new(memory.clone()));
        let services = Arc::new(MemoryServices::new(memory));
        let vifs = Arc::new(MemoryVifDriver::new(network, "kubernetes".into()));
        let mut registry = staffetta::assembly::registry();
        staffetta::assembly::world(&mut registry, vifs.network(), &services);
        let driver = Arc::clone(&vifs);
        registry
            .driver::<dyn PodVifDriver>("memory", "Held by the test.", move |_| Ok(Arc::clone(&driver) as _));
        let schema = FileSchema::assemble(&registry).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{options}\n[admin]\nlisten = \"127.0.0.1:0\"\n")).unwrap();
        let cluster_id = ("STAFFETTA_KUBERNETES__CLUSTER_ID".into(), "kubernetes".into());
        let configuration = Configuration::load(&schema, Some(file.path()), [cluster_id]).unwrap();
        let controller = Controller::start(registry, &configuration, client.clone()).await.unwrap();
        let mut world = Self { client, namespace, vifs, controller };
        world.prepare().await;
        world
    }

    async fn prepare(&mut self) {
        let namespace = json!({ "metadata": { "name": self.namespace } });
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        namespaces.create(&PostParams::default(), &from(namespace)).await.unwrap();
        // A cluster deletes pods whose node does not exist, after 40 s.
        let node = json!({ "metadata": { "name": self.namespace } });
        Api::<Node>::all(self.client.clone()).create(&PostParams::default(), &from(node)).await.unwrap();
        let accounts: Api<ServiceAccount> = self.api();
        self.until("the namespace has its service account", async || {
            accounts.get_opt("default").await.unwrap().is_some()
        })
        .await;
        tokio::time::timeout(PATIENCE, self.controller.ready()).await.expect("it is ready in time").unwrap();
    }

    /// Stops the controller and deletes the namespace.
    pub(crate) async fn stop(self) {
        let Self { client, namespace, controller, .. } = self;
        for pod in
            Api::<Pod>::namespaced(client.clone(), &namespace).list(&ListParams::default()).await.unwrap()
        {
            end(&client, &namespace, &pod.name_any()).await;
        }
        Api::<Service>::namespaced(client.clone(), &namespace)
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
        let deadline = tokio::time::Instant::now() + PATIENCE;
        let pods = Api::<Pod>::namespaced(client.clone(), &namespace);
        let services = Api::<Service>::namespaced(client.clone(), &namespace);
        while !pods.list(&ListParams::default()).await.unwrap().items.is_empty()
            || !services.list(&ListParams::default()).await.unwrap().items.is_empty()
        {
            assert!(tokio::time::Instant::now() < deadline, "not in time: all is given back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        controller.stop().await.unwrap();
        Api::<Node>::all(client.clone()).delete(&namespace, &DeleteParams::default()).await.unwrap();
        Api::<Namespace>::all(client).delete(&namespace, &DeleteParams::default()).await.unwrap();
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a pod on a node.
    pub(crate) async fn pod(&self, name: &str) -> Pod {
        let pod = json!({ "metadata": { "name": name },
            "spec": { "nodeName": self.namespace, "containers": [{ "name": "c", "image": "i" }] } });
        self.api::<Pod>().create(&PostParams::default(), &from(pod)).await.unwrap()
    }

    pub(crate) async fn service(&self, service: Value) {
        self.api::<Service>().create(&PostParams::default(), &from(service)).await.unwrap();
    }

    /// Changes a label of a pod.
    pub(crate) async fn touch(&self, name: &str, number: u32) {
        let patch = json!({ "metadata": { "labels": { "touched": number.to_string() } } });
        self.change(name, patch).await;
    }

    /// Applies a merge patch to a pod.
    pub(crate) async fn change(&self, name: &str, patch: Value) {
        let kind = ApiResource::erase::<Pod>(&());
        let pods = Api::<DynamicObject>::namespaced_with(self.client.clone(), &self.namespace, &kind);
        pods.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Deletes a pod with grace period 0, as a kubelet does.
    pub(crate) async fn end_pod(&self, name: &str) {
        end(&self.client, &self.namespace, name).await;
    }

    /// Waits until the pod has a VIF that `fits`.
    pub(crate) async fn vif_of(&self, name: &str, fits: impl Fn(&Value) -> bool) {
        self.until(&format!("the pod {name} has such a VIF"), async || {
            let pod = self.api::<Pod>().get(name).await.unwrap();
            let state = state(pod.annotations().get("openstack.org/kuryr-vif"));
            fits(&state["versioned_object.data"]["default_vif"]["versioned_object.data"])
        })
        .await;
    }

    /// Waits until the service has its load balancer.
    pub(crate) async fn until_balanced(&self, name: &str) {
        self.until(&format!("the service {name} has its load balancer"), async || {
            let service = self.api::<Service>().get(name).await.unwrap();
            service.annotations().contains_key("openstack.org/kuryr-lbaas-state")
        })
        .await;
    }

    /// The number of VIF requests.
    pub(crate) fn requests_of_vifs(&self) -> usize {
        self.vifs.calls().iter().filter(|call| matches!(call, VifCall::Request(_))).count()
    }

    /// The Events that the controller has written.
    pub(crate) async fn events(&self) -> Vec<Event> {
        let events = self.api::<Event>().list(&ListParams::default()).await.unwrap().items;
        let ours = |event: &Event| event.reporting_controller.as_deref() == Some("staffetta.dev/controller");
        events.into_iter().filter(ours).collect()
    }

    /// Waits for the Event with this reason on the object of this name.
    pub(crate) async fn event_of(&self, name: &str, reason: &str) -> Event {
        let mut found = None;
        self.until(&format!("an Event says {reason} of {name}"), async || {
            let fits = |event: &Event| {
                let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
                regarding == Some(name) && event.reason.as_deref() == Some(reason)
            };
            found = self.events().await.into_iter().find(fits);
            found.is_some()
        })
        .await;
        found.unwrap()
    }

    /// The number of Events by outcome, from the controller's metrics.
    pub(crate) async fn counts(&self) -> HashMap<String, u64> {
        let mut stream = TcpStream::connect(self.controller.admin()).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        let lines =
            page.lines().filter_map(|line| line.strip_prefix("staffetta_kubernetes_events_total{outcome=\""));
        let count = |line: &str| {
            let (outcome, count) = line.split_once("\"} ").unwrap();
            (outcome.to_owned(), count.parse().unwrap())
        };
        lines.map(count).collect()
    }

    /// Waits until `condition` holds.
    pub(crate) async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !condition().await {
            assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Returns `true` if the VIF is active.
pub(crate) fn active(vif: &Value) -> bool {
    vif["active"] == json!(true)
}

fn state(annotation: Option<&String>) -> Value {
    annotation.map(|text| serde_json::from_str(text).unwrap()).unwrap_or_default()
}

fn from<K: serde::de::DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

async fn end(client: &Client, namespace: &str, name: &str) {
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    pods.delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
}
