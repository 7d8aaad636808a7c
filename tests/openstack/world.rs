//! A project of a real OpenStack, an API server, and a controller that creates ports and load balancers for the objects of the
//! server.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_apiserver::testing::RealServer;
use staffetta_apiserver::{ApiServer, Options, RequestRecord};
use staffetta_handler::Registry;
use staffetta_real_openstack::{Gate, Login, Port, RealOpenStack, Subnet, Tenant};

/// The time limit of a test step. It does not measure speed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The delay before the agent of the node `n1` reports a port.
pub(crate) const BINDING_DELAY: Duration = Duration::from_millis(100);

/// The annotation of a pod's VIFs.
pub(crate) const VIF: &str = "openstack.org/kuryr-vif";

/// The services, cluster and controllers of a test.
pub(crate) struct World {
    pub(crate) stack: Arc<RealOpenStack>,
    pub(crate) tenant: Arc<Tenant>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) subnet: Subnet,
    pub(crate) group: String,
    /// A node whose agent works by itself.
    pub(crate) node: String,
    server: Server,
    pub(crate) client: Client,
    folder: tempfile::TempDir,
}

/// The API server.
enum Server {
    Embedded(ApiServer),
    Real(RealServer),
}

impl World {
    /// A world around the embedded API server. None, and it is said why, where there is no OpenStack.
    pub(crate) async fn start() -> Self {
        Self::around(RealOpenStack::shared().await).await
    }

    /// The same, whose services may be stopped.
    pub(crate) async fn alone() -> Self {
        Self::around(RealOpenStack::alone().await).await
    }

    async fn around(stack: RealOpenStack) -> Self {
        let server = Server::Embedded(ApiServer::start(Options::default()).await.unwrap());
        Self::new(stack, server).await
    }

    /// A world around a real API server.
    pub(crate) async fn on_a_real_server() -> Self {
        let stack = RealOpenStack::shared().await;
        Self::on(stack, RealServer::start(&[]).await).await
    }

    /// A world around a real Kubernetes with all that belongs to it but kubelets.
    pub(crate) async fn on_a_whole_kubernetes() -> Self {
        let world = Self::on_a_real_kubelet().await;
        world.nodes_are([&world.node]).await; // pods of a node that is not there are deleted
        world
    }

    /// The same with a node of its own, whose agent reports what it has: [`RealNode`](crate::real_node::RealNode).
    pub(crate) async fn on_a_real_kubelet() -> Self {
        let stack = RealOpenStack::shared().await;
        Self::on(stack, RealServer::start_whole(&[]).await).await
    }

    async fn on(stack: RealOpenStack, server: RealServer) -> Self {
        let world = Self::new(stack, Server::Real(server)).await;
        let namespaces: Api<Namespace> = Api::all(world.client.clone());
        world.until("the namespace is there", async || namespaces.get("default").await.is_ok()).await;
        world
    }

    async fn new(stack: RealOpenStack, server: Server) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let client = server.client(folder.path()).await;
        let tenant = Arc::new(stack.tenant().await);
        let gate = Arc::new(stack.gate().await);
        let subnet = tenant.subnet("10.128.0.0/20").await;
        let group = tenant.security_group("pods").await;
        let node = tenant.node("n1", Some(BINDING_DELAY)).await;
        Self { stack: Arc::new(stack), tenant, gate, subnet, group, node, server, client, folder }
    }

    /// The real API server of the world.
    pub(crate) fn real_server(&self) -> &RealServer {
        match &self.server {
            Server::Real(server) => server,
            Server::Embedded(_) => panic!("the API server is the embedded one"),
        }
    }

    /// Creates the nodes in Kubernetes too. Answers where they are.
    pub(crate) async fn nodes_are<const N: usize>(&self, names: [&String; N]) -> Api<Node> {
        let nodes = Api::all(self.client.clone());
        for name in names {
            let node = json!({ "metadata": { "name": name } });
            nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        }
        nodes
    }

    /// Another cluster in the same project.
    pub(crate) async fn neighbour(&self) -> Self {
        let server = Server::Embedded(ApiServer::start(Options::default()).await.unwrap());
        let folder = tempfile::tempdir().unwrap();
        Self {
            stack: Arc::clone(&self.stack),
            tenant: Arc::clone(&self.tenant),
            gate: Arc::clone(&self.gate),
            subnet: self.subnet.clone(),
            group: self.group.clone(),
            node: self.node.clone(),
            client: server.client(folder.path()).await,
            server,
            folder,
        }
    }

    /// The path of a kubeconfig.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.server.kubeconfig(self.folder.path())
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a controller by the gate, with `options` on top, and waits until it is ready.
    pub(crate) async fn controller(&self, options: &str) -> Controller {
        let mut controller = self.try_controller(&self.options(options)).await;
        tokio::time::timeout(PATIENCE, controller.ready())
            .await
            .expect("the controller is ready in time")
            .unwrap();
        controller
    }

    /// The configuration with these options.
    pub(crate) fn configuration(&self, registry: &Registry, options: &str) -> Configuration {
        let schema = FileSchema::assemble(registry).unwrap();
        let file = self.folder.path().join("staffetta.toml");
        std::fs::write(&file, options).unwrap();
        Configuration::load(&schema, Some(&file), []).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a controller with these options and no others.
    pub(crate) async fn try_controller(&self, options: &str) -> Controller {
        let registry = staffetta::assembly::registry();
        let configuration = self.configuration(&registry, options);
        let client = staffetta::connect::client(Some(&self.kubeconfig()), None).await.unwrap();
        Controller::start(registry, &configuration, client).await.unwrap()
    }

    /// The options of a controller that works in this project by the gate.
    pub(crate) fn options(&self, more: &str) -> String {
        self.options_with(&self.tenant.login_through(&self.gate), more)
    }

    /// The options of a controller that logs in like this.
    pub(crate) fn options_with(&self, login: &Login, more: &str) -> String {
        let Login { auth_url, username, password, project } = login;
        let place = format!(
            "[neutron]\nauth_url = {auth_url:?}\nusername = {username:?}\npassword = {password:?}\n\
             project_name = {project:?}\n[neutron_defaults]\nproject = {:?}\npod_subnet = {:?}\n\
             pod_security_groups = [{:?}]\n",
            self.tenant.id, self.subnet.id, self.group
        );
        // Who may bind ports sees those of all projects: each test is a cluster of its own.
        let place = format!("{place}[kubernetes]\ncluster_id = {project:?}\n");
        merged(&merged(OPTIONS, &place), more)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The options of a controller that works in this project by the gate, and reads its password in a file.
    pub(crate) fn options_by_file(&self, password: &Path, more: &str) -> String {
        let mut all: toml::Table = toml::from_str(&self.options(more)).unwrap();
        let neutron = all["neutron"].as_table_mut().unwrap();
        neutron.remove("password");
        neutron.insert("password_file".into(), password.display().to_string().into());
        all.to_string()
    }

    /// The answer of a controller's readiness probe.
    pub(crate) async fn readiness(&self, controller: &Controller) -> String {
        let url = format!("http://{}/readyz?verbose", controller.admin());
        reqwest::get(url).await.unwrap().text().await.unwrap()
    }

    /// The findings of a controller's own checks, in JSON.
    pub(crate) async fn checks(&self, controller: &Controller) -> String {
        let url = format!("http://{}/debug/check", controller.admin());
        reqwest::Client::new().post(url).send().await.unwrap().text().await.unwrap()
    }

    /// The value of a metric, named with its labels as in `/metrics`.
    pub(crate) async fn figure(&self, controller: &Controller, name: &str) -> usize {
        let url = format!("http://{}/metrics", controller.admin());
        let page = reqwest::get(url).await.unwrap().text().await.unwrap();
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
    }

    /// The requests for pods that changed one of this name, itself and not its status.
    pub(crate) fn patches(&self, name: &str) -> usize {
        let Server::Embedded(server) = &self.server else {
            panic!("a real API server keeps no record of requests")
        };
        let patch = |request: &RequestRecord| {
            request.verb == "patch" && request.resource == "pods" && request.subresource.is_empty()
        };
        server.requests().iter().filter(|request| patch(request) && request.name == name).count()
    }

    /// Creates a pod on the node.
    pub(crate) async fn pod(&self, name: &str) -> Pod {
        self.pod_on(&self.node, name, json!({})).await
    }

    /// Creates a pod on some node, with these annotations.
    pub(crate) async fn pod_on(&self, node: &str, name: &str, annotations: Value) -> Pod {
        let pod = json!({ "metadata": { "name": name, "annotations": annotations },
            "spec": { "nodeName": node, "automountServiceAccountToken": false,
                "containers": [{ "name": "c", "image": "i" }] } });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap()
    }

    /// Deletes a pod with grace 0, as a kubelet does at the end.
    pub(crate) async fn end_pod(&self, name: &str) {
        match self.pods().delete(name, &DeleteParams::default().grace_period(0)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// The VIFs that a pod shows, the first one's interface first.
    pub(crate) async fn vifs(&self, name: &str) -> Vec<Vif> {
        let pod = self.pods().get_opt(name).await.unwrap();
        pod.as_ref().map(vifs_of).unwrap_or_default()
    }

    /// Waits until the pod shows a VIF, and answers it.
    pub(crate) async fn until_annotated(&self, name: &str) -> Vif {
        self.until(&format!("{name} shows a VIF"), async || !self.vifs(name).await.is_empty()).await;
        self.vifs(name).await.remove(0)
    }

    /// Waits until each of these pods shows nothing but active VIFs.
    pub(crate) async fn until_active(&self, names: &[&str]) {
        for name in names {
            self.until(&format!("the VIFs of {name} are active"), async || {
                let vifs = self.vifs(name).await;
                !vifs.is_empty() && vifs.iter().all(|vif| vif.active)
            })
            .await;
        }
    }

    /// Waits until the pod is gone.
    pub(crate) async fn until_gone(&self, name: &str) {
        self.until(&format!("{name} is gone"), async || self.pods().get_opt(name).await.unwrap().is_none())
            .await;
    }

    /// Waits until an Event at the pod has this reason, and answers what it says.
    pub(crate) async fn until_reported(&self, name: &str, reason: &str) -> String {
        self.until_reported_within(PATIENCE, name, reason).await
    }

    /// The same, of what takes longer than other steps.
    pub(crate) async fn until_reported_within(&self, patience: Duration, name: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        let find = async || {
            let all = events.list(&ListParams::default()).await.unwrap();
            let about = |event: &Event| {
                let regarding = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
                regarding == Some(name) && event.reason.as_deref() == Some(reason)
            };
            all.items.into_iter().find(about)
        };
        let what = format!("an Event {reason} at {name}");
        self.until_within(patience, &what, async || find().await.is_some()).await;
        find().await.and_then(|event| event.note).unwrap_or_default()
    }

    /// The ports of pods, by Neutron's own list.
    pub(crate) async fn ports(&self) -> Vec<Port> {
        self.tenant.pod_ports(&self.subnet.network).await
    }

    /// Waits until Neutron has so many ports of pods.
    pub(crate) async fn until_ports(&self, count: usize) {
        let mut found = 0;
        let there_are = async {
            loop {
                found = self.ports().await.len();
                if found == count {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(200)).await; // who asks a service does not keep it busy
            }
        };
        let in_time = tokio::time::timeout(PATIENCE, there_are).await;
        assert!(in_time.is_ok(), "not in time: {count} ports, there are {found}");
    }

    /// The ids that the annotations of all pods name. Each is named once.
    pub(crate) async fn named(&self) -> BTreeSet<String> {
        let mut named = BTreeMap::new();
        for pod in self.pods().list(&ListParams::default()).await.unwrap() {
            for vif in vifs_of(&pod) {
                let by = format!("{}, deleted at {:?}", pod.name_any(), pod.metadata.deletion_timestamp);
                if let Some(other) = named.insert(vif.id.clone(), by.clone()) {
                    panic!("{} is the VIF of two pods: of {other}, and of {by}", vif.id);
                }
            }
        }
        named.into_keys().collect()
    }

    /// Asks again until `condition` holds.
    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFnMut() -> bool) {
        self.until_within(PATIENCE, what, condition).await;
    }

    /// The same, of what takes longer than other steps.
    pub(crate) async fn until_within(
        &self,
        patience: Duration,
        what: &str,
        mut condition: impl AsyncFnMut() -> bool,
    ) {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let began = tokio::time::Instant::now();
            if condition().await {
                return;
            }
            let now = tokio::time::Instant::now();
            assert!(now < deadline, "not in time: {what}");
            // Who asks a service that is busy does not keep it busy.
            tokio::time::sleep(Duration::from_millis(50).max(2 * (now - began))).await;
        }
    }
}

impl Server {
    async fn client(&self, folder: &Path) -> Client {
        staffetta::connect::client(Some(&self.kubeconfig(folder)), None).await.unwrap()
    }

    fn kubeconfig(&self, folder: &Path) -> PathBuf {
        match self {
            Self::Embedded(server) => {
                let path = folder.join("kubeconfig");
                std::fs::write(&path, server.kubeconfig()).unwrap();
                path
            }
            Self::Real(server) => server.kubeconfig().to_owned(),
        }
    }
}

/// A VIF in a pod's annotation.
#[derive(Clone, Debug)]
pub(crate) struct Vif {
    pub(crate) interface: String,
    pub(crate) id: String,
    pub(crate) active: bool,
    /// `VIFOpenVSwitch`, `VIFVlanNested` ...
    pub(crate) class: String,
    pub(crate) address: String,
    pub(crate) fields: Value,
}

/// The VIFs that a pod shows, the first one's interface first.
pub(crate) fn vifs_of(pod: &Pod) -> Vec<Vif> {
    let text = pod.annotations().get(VIF).map_or("null", String::as_str);
    let state: Value = serde_json::from_str(text).unwrap();
    let state = &state["versioned_object.data"];
    let first = state["default_vif"].is_object().then(|| vif("eth0", &state["default_vif"]));
    let others = state["additional_vifs"].as_object().into_iter().flatten();
    first.into_iter().chain(others.map(|(interface, state)| vif(interface, state))).collect()
}

fn vif(interface: &str, state: &Value) -> Vif {
    let fields = content(state).clone();
    let subnet = content(&content(&content(&fields["network"])["subnets"])["objects"][0]).clone();
    let address = content(&content(&subnet["ips"])["objects"][0])["address"].clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Vif {
        interface: interface.to_owned(),
        id: text(&fields["id"]),
        active: fields["active"] == true,
        class: text(&state["versioned_object.name"]),
        address: text(&address),
        fields,
    }
}

/// The content of a versioned object, out of its envelope.
pub(crate) fn content(object: &Value) -> &Value {
    &object["versioned_object.data"]
}

/// Options with others on top.
pub(crate) fn merged(under: &str, over: &str) -> String {
    let mut all: toml::Table = toml::from_str(under).unwrap();
    merge(&mut all, toml::from_str(over).unwrap());
    all.to_string()
}

/// Lays `over` on top of `under`, section by section.
fn merge(under: &mut toml::Table, over: toml::Table) {
    for (name, value) in over {
        match (under.get_mut(&name), value) {
            (Some(toml::Value::Table(under)), toml::Value::Table(over)) => merge(under, over),
            (_, value) => drop(under.insert(name, value)),
        }
    }
}

const OPTIONS: &str = r#"
[kubernetes]
enabled_handlers = ["vif"]
pod_project_driver = "default"
pod_subnets_driver = "default"
pod_security_groups_driver = "default"
pod_vif_driver = "neutron-vif"
watch_timeout = "5s"

[relay]
retry_interval = "50ms"
retry_max_interval = "1s"
failed_resync = "1s"
failed_resync_max = "2s"
sweep_interval = "2s"

[leader_election]
enabled = false

[admin]
listen = "127.0.0.1:0"
"#;
