//! An API server and the processes that compete for the leadership.

use std::path::Path;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{ApiServer, Options, Proxy, RequestRecord};
use tempfile::TempDir;

use crate::process::{Process, eventually, leave_lease};

const VIF: &str = "openstack.org/kuryr-vif";

/// Another one takes over after 10 s: what keeps a busy machine from a renewal is shorter.
pub(crate) const SHORT: &str =
    "lease_duration = \"10s\"\nrenew_deadline = \"8s\"\nretry_period = \"400ms\"\n";
/// Asks as often, and outlives a machine that is busy with something else.
pub(crate) const PATIENT: &str =
    "lease_duration = \"30s\"\nrenew_deadline = \"20s\"\nretry_period = \"400ms\"\n";
/// Another one takes over after longer than any test waits.
pub(crate) const LONG: &str = "lease_duration = \"1h\"\nrenew_deadline = \"30m\"\nretry_period = \"1s\"\n";

/// Options of `[memory]`: a VIF is active as soon as it is made.
pub(crate) const AT_ONCE: &str = "activation_delay_ms = 0\n";

/// An API server without a controller, whose lease nobody holds.
pub(crate) struct World {
    client: Client,
    kubeconfig: Kubeconfig,
    _server: Server,
}

enum Server {
    Embedded { _server: ApiServer },
    Real { _server: Box<RealServer> },
}

/// A process of the program, and the proxy through which it reaches the API server.
pub(crate) struct Runner {
    pub(crate) process: Process,
    pub(crate) proxy: Proxy,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn embedded() -> Self {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&server.kubeconfig()).unwrap();
        Self::new(kubeconfig, Server::Embedded { _server: server }).await
    }

    /// None where no tests on a real server are wanted.
    pub(crate) async fn real() -> Self {
        let server = RealServer::start(&[]).await;
        let kubeconfig = Kubeconfig::read_from(server.kubeconfig()).unwrap();
        Self::new(kubeconfig, Server::Real { _server: Box::new(server) }).await
    }

    async fn new(kubeconfig: Kubeconfig, server: Server) -> Self {
        let client = client(kubeconfig.clone()).await;
        leave_lease(client.clone()).await;
        Self { client, kubeconfig, _server: server }
    }

    /// A client of the server, past any proxy.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Starts a process with nothing but the handler `vif`. `election` are options of `[leader_election]`, `memory` of
    /// `[memory]`.
    pub(crate) async fn runner(&self, election: &str, memory: &str) -> Runner {
        let proxy = Proxy::start(self.kubeconfig.clone()).await.unwrap();
        self.runner_behind(proxy, election, memory).await
    }

    /// Starts one behind this proxy.
    pub(crate) async fn runner_behind(&self, proxy: Proxy, election: &str, memory: &str) -> Runner {
        let configuration = format!(
            "[kubernetes]\nenabled_handlers = [\"vif\"]\n[leader_election]\n{election}[memory]\n{memory}"
        );
        self.runner_as(proxy, &configuration).await
    }

    /// Starts one with this configuration.
    pub(crate) async fn runner_as(&self, proxy: Proxy, configuration: &str) -> Runner {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_staffetta"));
        let process = Process::start(program, folder.path(), configuration, &proxy.kubeconfig()).await;
        Runner { process, proxy, _folder: folder }
    }

    /// A proxy before this server.
    pub(crate) async fn proxy(&self) -> Proxy {
        Proxy::start(self.kubeconfig.clone()).await.unwrap()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The lease.
    pub(crate) async fn lease(&self) -> LeaseSpec {
        self.leases().get("staffetta").await.unwrap().spec.unwrap()
    }

    /// Creates a pod on a node.
    pub(crate) async fn pod(&self, name: &str) {
        let container = json!({ "name": "c", "image": "i" });
        let pod = json!({ "metadata": { "name": name },
            "spec": { "nodeName": "n1", "automountServiceAccountToken": false, "containers": [container] } });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    /// The VIF that the pod shows.
    pub(crate) async fn vif(&self, name: &str) -> Value {
        let annotations = self.pods().get(name).await.unwrap().metadata.annotations.unwrap_or_default();
        let text = annotations.get(VIF).cloned().unwrap_or_default();
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        state["versioned_object.data"]["default_vif"]["versioned_object.data"].clone()
    }

    /// Waits until the pod shows an active VIF, or one at all.
    pub(crate) async fn until_plugged(&self, name: &str, active: bool) {
        let plugged = async || {
            let vif = self.vif(name).await;
            !vif.is_null() && (vif["active"] == true || !active)
        };
        eventually(&format!("the pod {name} has its VIF"), plugged).await;
    }
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    // An error means that another test of this process installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = KubeConfigOptions::default();
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl Runner {
    pub(crate) async fn leads(&mut self) {
        self.process.says("this process is the leader").await;
    }

    pub(crate) async fn stands_by(&mut self) {
        self.process.says("this process is a standby").await;
        self.process.ready().await;
    }

    /// It has led, and says once why it does so no more.
    pub(crate) async fn is_deposed(&mut self) -> String {
        self.process.says("this process is no longer the leader").await.pop().unwrap()
    }

    /// The number of lost leases, from its metrics.
    pub(crate) async fn losses(&self) -> u32 {
        let (_, page) = self.process.get("/metrics").await;
        let series = "staffetta_leadership_losses_total{name=\"staffetta\"} ";
        page.lines().find_map(|line| line.strip_prefix(series)).unwrap().parse().unwrap()
    }

    /// Its write requests.
    pub(crate) fn writes(&self) -> Vec<RequestRecord> {
        self.proxy.requests().into_iter().filter(RequestRecord::is_write).collect()
    }
}
