//! A server, the proxy in front of it, a controller behind the proxy, and a simulated network that outlives them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{ApiServer, Fault, Faults, Options, Proxy, Requests};
use staffetta_driver::PodVifDriver;
use staffetta_memory::{MemoryNetwork, MemoryOptions, MemoryServices, MemoryVifDriver};

/// The time after which a step fails the test. It is no performance requirement.
const PATIENCE: Duration = Duration::from_secs(90);

/// The default time limit of an attempt of a handler.
const HANDLER_TIMEOUT: Duration = Duration::from_secs(3);

/// The annotation of a pod's VIF.
const VIF: &str = "openstack.org/kuryr-vif";

/// A controller and its API server, with a proxy between them that injects faults.
pub(crate) struct World {
    pub(crate) upstream: Upstream,
    pub(crate) proxy: Proxy,
    pub(crate) vifs: Arc<MemoryVifDriver>,
    pub(crate) services: Arc<MemoryServices>,
    /// Bypasses the proxy.
    pub(crate) direct: Client,
    folder: tempfile::TempDir,
}

/// The handlers and replicas of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Pods, alone.
    Pods,
    /// Services too.
    Services,
    /// Both, by whoever of several is elected: the election is the one that ships.
    Elected,
}

/// The server behind the proxy.
pub(crate) enum Upstream {
    Embedded(ApiServer),
    Real(RealServer),
}

impl Upstream {
    pub(crate) fn kubeconfig(&self) -> Kubeconfig {
        match self {
            Self::Embedded(server) => Kubeconfig::from_yaml(&server.kubeconfig()).unwrap(),
            Self::Real(server) => Kubeconfig::read_from(server.kubeconfig()).unwrap(),
        }
    }

    pub(crate) async fn client(&self) -> Client {
        let mut config =
            Config::from_custom_kubeconfig(self.kubeconfig(), &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Client::try_from(config).unwrap()
    }
}

impl World {
    /// A world around the embedded server.
    pub(crate) async fn embedded() -> Self {
        Self::new(Upstream::Embedded(ApiServer::start(Options::default()).await.unwrap())).await
    }

    /// A world around a real server of its own, started with these flags.
    pub(crate) async fn real(flags: &[&str]) -> Self {
        Self::new(Upstream::Real(RealServer::start(flags).await)).await
    }

    async fn new(upstream: Upstream) -> Self {
        // An error means that somebody installed one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let proxy = Proxy::start(upstream.kubeconfig()).await.unwrap();
        let memory = MemoryOptions { activation_delay_ms: 20, cool_down_ms: 100, ..MemoryOptions::default() };
        let network = Arc::new(MemoryNetwork::new(memory.clone()));
        let vifs = Arc::new(MemoryVifDriver::new(network, "kubernetes".into()));
        let direct = upstream.client().await;
        let services = Arc::new(MemoryServices::new(memory));
        Self { upstream, proxy, vifs, services, direct, folder: tempfile::tempdir().unwrap() }
    }

    /// Starts a controller of pods that reaches the server through the proxy, and waits until it is ready.
    pub(crate) async fn ready_controller(&self) -> Controller {
        self.ready(Task::Pods).await
    }

    /// Starts a controller and waits until it is ready.
    pub(crate) async fn ready(&self, task: Task) -> Controller {
        self.ready_with(task, HANDLER_TIMEOUT).await
    }

    /// The same; an attempt of its handlers may take so long.
    pub(crate) async fn ready_with(&self, task: Task, handler_timeout: Duration) -> Controller {
        let mut controller = self.controller(task, handler_timeout).await;
        tokio::time::timeout(PATIENCE, controller.ready())
            .await
            .expect("the controller is ready in time")
            .unwrap();
        controller
    }

    async fn controller(&self, task: Task, handler_timeout: Duration) -> Controller {
        let mut registry = staffetta::assembly::registry();
        staffetta::assembly::world(&mut registry, self.vifs.network(), &self.services);
        let vifs = Arc::clone(&self.vifs);
        registry
            .driver::<dyn PodVifDriver>("memory", "Held by the test.", move |_| Ok(Arc::clone(&vifs) as _));
        let schema = FileSchema::assemble(&registry).unwrap();
        let file = self.file("staffetta.toml", &format!("{}{OPTIONS}", task.options()));
        let timeout = format!("{}s", handler_timeout.as_secs());
        let variables = [
            ("STAFFETTA_RELAY__HANDLER_TIMEOUT".into(), timeout.into()),
            ("STAFFETTA_KUBERNETES__CLUSTER_ID".into(), "kubernetes".into()),
        ];
        let configuration = Configuration::load(&schema, Some(&file), variables).unwrap();
        let kubeconfig = self.file("kubeconfig", &self.proxy.kubeconfig());
        let client = staffetta::connect::client(Some(&kubeconfig), None).await.unwrap();
        Controller::start(registry, &configuration, client).await.unwrap()
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn faults(&self) -> Faults {
        self.proxy.faults()
    }

    /// Puts another server behind the proxy. Answers the one that was there.
    pub(crate) async fn replace_server(&mut self, upstream: Upstream) -> Upstream {
        self.direct = upstream.client().await;
        self.proxy.set_upstream(upstream.kubeconfig()).await.unwrap();
        std::mem::replace(&mut self.upstream, upstream)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.direct.clone(), "default")
    }

    /// Makes sure that pods can be created.
    pub(crate) async fn namespace(&self) {
        let api: Api<Namespace> = Api::all(self.direct.clone());
        self.until("the namespace is there", async || api.get("default").await.is_ok()).await;
    }

    /// Creates a pod on a node, past the proxy.
    pub(crate) async fn pod(&self, name: &str) -> Pod {
        let pod = json!({ "metadata": { "name": name },
            "spec": { "nodeName": "n1", "automountServiceAccountToken": false,
                "containers": [{ "name": "c", "image": "i" }] } });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Finishes a deletion as a kubelet does: with grace period 0, bypassing the proxy.
    pub(crate) async fn end_pod(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.unwrap();
    }

    /// Returns `true` if the pod has an active VIF.
    pub(crate) async fn is_plugged(&self, name: &str) -> bool {
        let pod = self.pods().get(name).await.unwrap();
        let text = pod.metadata.annotations.unwrap_or_default().remove(VIF).unwrap_or_default();
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        state["versioned_object.data"]["default_vif"]["versioned_object.data"]["active"] == json!(true)
    }

    /// Waits until each of these pods has an active VIF, and nobody else has a port.
    pub(crate) async fn until_idle(&self, names: &[&str]) {
        self.until(&format!("each of {names:?} has an active VIF and nobody else has"), async || {
            for name in names {
                if !self.is_plugged(name).await {
                    return false;
                }
            }
            self.vifs.network().ports().len() == names.len()
        })
        .await;
    }

    /// Waits until the pod is gone.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(&format!("the pod {name} is gone"), async || {
            self.pods().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    /// Nobody gets to the server through the proxy any more. A real one is stopped, and nobody gets to it at all.
    pub(crate) async fn begin_outage(&self) {
        match &self.upstream {
            Upstream::Embedded(_) => {
                self.faults().inject(Requests::any(), usize::MAX, Fault::Cut);
                self.faults().cut_watches();
            }
            Upstream::Real(server) => server.stop_apiserver().await,
        }
    }

    /// The server is there again, with its data.
    pub(crate) async fn end_outage(&self) {
        match &self.upstream {
            Upstream::Embedded(_) => self.faults().clear(),
            Upstream::Real(server) => {
                server.resume().await;
                self.namespace().await;
            }
        }
    }

    /// The number of matching requests at the proxy, failed ones included.
    pub(crate) fn asked(&self, verb: &str, resource: &str) -> usize {
        let requests = self.proxy.requests();
        requests.iter().filter(|request| request.verb == verb && request.resource == resource).count()
    }

    /// Asks again until `condition` holds.
    pub(crate) async fn until(&self, what: &str, mut condition: impl AsyncFnMut() -> bool) {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while !condition().await {
            assert!(tokio::time::Instant::now() < deadline, "not in time: {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Task {
    fn options(self) -> String {
        let handlers = if self == Self::Pods { "\"vif\"" } else { "\"vif\", \"lb\", \"lbaasspec\"" };
        format!(
            "[leader_election]\nenabled = {}\n[kubernetes]\nenabled_handlers = [{handlers}]\n",
            self == Self::Elected
        )
    }
}

/// Requests of the controller for pods.
pub(crate) fn pods(verb: &str) -> Requests {
    Requests::any().verb(verb).resource("pods")
}

const OPTIONS: &str = r#"watch_timeout = "1s"

[relay]
retry_interval = "20ms"
retry_max_interval = "500ms"
failed_resync = "1s"
failed_resync_max = "2s"

[admin]
listen = "127.0.0.1:0"
"#;
