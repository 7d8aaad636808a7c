//! An API server, replicas of the controller, and simulated bases that report to them in turn.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::config::Kubeconfig;
use kube::{Client, Config};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options, Proxy};
use staffetta_koupleless_base::{BaseCommand, SimulatedBase, SimulatedBaseOptions};
use tempfile::TempDir;

use crate::process::{Process, eventually};

/// Bases are asked often, and a machine that is busy with other tests does not lose them at once.
const VNODE: &str = "poll_interval_ms = 200\nhealth_interval_ms = 200\nunreachable_after_ms = 3000\ndead_after_ms = 6000\n\
                     lease_duration_s = 8\nlease_renew_s = 2\n";

pub(crate) struct World {
    pub(crate) server: ApiServer,
    pub(crate) client: Client,
    /// The address at which each replica listens for bases.
    listeners: Vec<SocketAddr>,
}

/// A replica: a process of the program, and the proxy through which it reaches the API server.
pub(crate) struct Replica {
    pub(crate) process: Process,
    pub(crate) proxy: Proxy,
    _folder: TempDir,
}

impl Replica {
    /// Returns the identity of the replica, with which it holds leases.
    pub(crate) async fn identity(&self) -> String {
        let (_, state) = self.process.get("/debug/state").await;
        let state: Value = serde_json::from_str(&state).unwrap();
        state["identity"].as_str().unwrap().to_owned()
    }

    /// Waits until the metric says whether the tunnel over MQTT is connected.
    pub(crate) async fn mqtt_is_connected(&self, connected: bool) {
        let sample = format!("staffetta_tunnel_connected{{tunnel=\"mqtt\"}} {}\n", u8::from(connected));
        let shows = async || self.process.get("/metrics").await.1.contains(&sample);
        eventually(&format!("the metric is {connected}"), shows).await;
    }

    /// Waits until `staffetta explain` shows a request to a base for a pod, and returns it.
    pub(crate) async fn request_for(&self, pod: &str, method: &str) -> Value {
        let mut found = None;
        eventually(&format!("the requests for the pod {pod} are kept"), async || {
            let (_, state) =
                self.process.get(&format!("/debug/state?kind=Pod&namespace=default&name={pod}")).await;
            let state: Value = serde_json::from_str(&state).unwrap();
            let mut requests = state["objects"]
                .as_array()
                .unwrap()
                .iter()
                .filter_map(|object| object["requests"].as_array());
            found = requests.find_map(|all| all.iter().find(|request| request["method"] == method).cloned());
            found.is_some()
        })
        .await;
        found.unwrap()
    }
}

impl World {
    /// An API server, and addresses for as many replicas. Their IP address belongs to this world: on 127.0.0.1, a server of another process
    /// could get the port before the replica.
    pub(crate) async fn new(replicas: usize) -> Self {
        static NUMBER: AtomicU16 = AtomicU16::new(0);
        let [_, _, _, process] = std::process::id().to_be_bytes();
        let [high, low] = NUMBER.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let ip = Ipv4Addr::new(127, 128 + process / 2, high, low);
        let server = ApiServer::start(Options::default()).await.unwrap();
        let client = Client::try_from(Config::new(server.url().parse().unwrap())).unwrap();
        let free: Vec<_> = (0..replicas).map(|_| TcpListener::bind((ip, 0)).unwrap()).collect();
        let listeners = free.iter().map(|listener| listener.local_addr().unwrap()).collect();
        Self { server, client, listeners }
    }

    /// Starts a replica and waits until it is ready.
    pub(crate) async fn replica(&self, number: usize) -> Replica {
        self.replica_with(number, "").await
    }

    /// Starts a replica with other or further options of `[vnode]`, and waits until it is ready.
    pub(crate) async fn replica_with(&self, number: usize, options: &str) -> Replica {
        let kubeconfig = Kubeconfig::from_yaml(&self.server.kubeconfig()).unwrap();
        let proxy = Proxy::start(kubeconfig).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let listen = self.listeners[number];
        let kept = |line: &&str| line.split(' ').next().is_some_and(|name| !options.contains(name));
        let vnode: Vec<_> = VNODE.lines().filter(kept).collect();
        let vnode = vnode.join("\n");
        let configuration = format!(
            "[kubernetes]\nenabled_handlers = [\"vnode\", \"peer_deployment\"]\n[leader_election]\nnamespace = \"default\"\n\
             [vnode]\n{vnode}\n{options}[vnode_http]\nlisten = \"{listen}\"\nbase_networks = [\"127.0.0.0/8\"]\n"
        );
        let program = Path::new(env!("CARGO_BIN_EXE_staffetta"));
        let process = Process::start(program, folder.path(), &configuration, &proxy.kubeconfig()).await;
        process.ready().await;
        Replica { process, proxy, _folder: folder }
    }

    /// Returns the address at which a replica listens for bases.
    pub(crate) fn listener(&self, replica: usize) -> SocketAddr {
        self.listeners[replica]
    }

    /// Starts a base with an address of its own.
    pub(crate) async fn base(&self, number: u16) -> SimulatedBase {
        self.base_with(SimulatedBaseOptions::numbered(number, 1)).await
    }

    /// Starts a base with these options, and frequent heartbeats, each to the next replica.
    pub(crate) async fn base_with(&self, options: SimulatedBaseOptions) -> SimulatedBase {
        let mut listeners = self.listeners.clone();
        // Their first reports reach different ones, as through a Service.
        let first = usize::from(options.ip.octets()[3]) % listeners.len();
        listeners.rotate_left(first);
        Self::base_reporting(options, &listeners).await
    }

    /// Starts a base with these options, and frequent heartbeats to one replica only.
    pub(crate) async fn base_of(&self, options: SimulatedBaseOptions, replica: usize) -> SimulatedBase {
        Self::base_reporting(options, &[self.listeners[replica]]).await
    }

    async fn base_reporting(options: SimulatedBaseOptions, listeners: &[SocketAddr]) -> SimulatedBase {
        let (heartbeat, first_heartbeat) = (Duration::from_millis(300), Duration::ZERO);
        let options = SimulatedBaseOptions { heartbeat, first_heartbeat, ..options };
        SimulatedBase::http(options, listeners).await.unwrap()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), "kube-node-lease")
    }

    /// Returns the holder of a node's lease; empty if nobody holds it.
    pub(crate) async fn holder(&self, node: &str) -> String {
        let lease = self.leases().get_opt(node).await.unwrap();
        lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
    }

    /// Creates a pod with one module, `cart` in this version, on a node.
    pub(crate) async fn pod(&self, name: &str, node: &str, version: &str) -> Pod {
        self.pod_with(name, node, &json!([module("cart", version, "https://example.com/cart.jar")])).await
    }

    pub(crate) async fn pod_with(&self, name: &str, node: &str, containers: &Value) -> Pod {
        let labels = json!({ "virtual-kubelet.koupleless.io/component": "module" });
        let pod = json!({ "metadata": { "name": name, "labels": labels },
            "spec": { "nodeName": node, "containers": containers, "tolerations": [{ "operator": "Exists" }] } });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    pub(crate) async fn change_image(&self, pod: &str, image: &str) {
        let patch =
            Patch::Strategic(json!({ "spec": { "containers": [{ "name": "cart", "image": image }] } }));
        self.pods().patch(pod, &PatchParams::default(), &patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, pod: &str) {
        self.pods().delete(pod, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until all containers of a pod run, and returns it.
    pub(crate) async fn running(&self, name: &str) -> Pod {
        let mut found = None;
        eventually(&format!("the pod {name} runs"), async || {
            found = self.pods().get_opt(name).await.unwrap();
            found.as_ref().is_some_and(is_ready)
        })
        .await;
        found.unwrap()
    }

    /// Waits until a pod is gone.
    pub(crate) async fn gone(&self, name: &str) {
        let gone = async || self.pods().get_opt(name).await.unwrap().is_none();
        eventually(&format!("the pod {name} is gone"), gone).await;
    }

    /// Waits until a node has this status of `Ready`, and returns it.
    pub(crate) async fn node(&self, name: &str, ready: &str) -> Node {
        let mut found = None;
        eventually(&format!("the node {name} has Ready={ready}"), async || {
            found = self.nodes().get_opt(name).await.unwrap();
            found.as_ref().and_then(condition).is_some_and(|status| status == ready)
        })
        .await;
        found.unwrap()
    }

    /// Waits until a node and its lease are gone.
    pub(crate) async fn node_gone(&self, name: &str) {
        eventually(&format!("the node {name} and its lease are gone"), async || {
            self.nodes().get_opt(name).await.unwrap().is_none()
                && self.leases().get_opt(name).await.unwrap().is_none()
        })
        .await;
    }

    /// Returns the messages of the Events with this reason.
    pub(crate) async fn events(&self, reason: &str) -> Vec<String> {
        let events = Api::<Event>::all(self.client.clone()).list(&ListParams::default()).await.unwrap();
        let of_reason = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        of_reason.filter_map(|event| event.message).collect()
    }
}

/// Returns a container that is a module.
pub(crate) fn module(name: &str, version: &str, image: &str) -> Value {
    json!({ "name": name, "image": image, "env": [{ "name": "BIZ_VERSION", "value": version }] })
}

/// Returns what a base was asked to do with its modules, in order: `+` loads, `-` unloads, `=` activates.
pub(crate) fn asked(base: &SimulatedBase) -> Vec<String> {
    let sign = |command| match command {
        BaseCommand::InstallBiz => '+',
        BaseCommand::SwitchBiz => '=',
        _ => '-',
    };
    let operations = base.operations();
    operations.iter().map(|operation| format!("{}{}", sign(operation.command), operation.module)).collect()
}

/// Returns the modules of a base that run.
pub(crate) fn active(base: &SimulatedBase) -> Vec<String> {
    let modules = base.modules().into_iter().filter(|module| module.state == "ACTIVATED");
    modules.map(|module| format!("{}:{}", module.name, module.version)).collect()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.container_statuses.unwrap_or_default();
    status.phase.as_deref() == Some("Running") && containers.iter().all(|container| container.ready)
}

fn condition(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    Some(conditions.iter().find(|condition| condition.type_ == "Ready")?.status.clone())
}
