//! A project of a real OpenStack, an embedded API server with services in it, and a controller between them.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta::controller::Controller;
use staffetta_apiserver::{ApiServer, Options};
use staffetta_real_openstack::{Fault, Gate, Login, Match, RealOpenStack, Subnet, Tenant};

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(900);
/// How many requests of the benchmark itself are in flight.
const IN_FLIGHT: usize = 8;

/// Where services are measured.
pub(crate) struct Shop {
    pub(crate) tenant: Tenant,
    pub(crate) gate: Gate,
    subnet: Subnet,
    server: ApiServer,
    client: Client,
}

impl Shop {
    pub(crate) async fn new(stack: &RealOpenStack) -> Self {
        // An error means that somebody installed one before.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let tenant = stack.tenant().await;
        let subnet = tenant.subnet("10.96.0.0/12").await;
        let server = ApiServer::start(Options::default()).await.expect("it starts");
        let client = staffetta::connect::client(Some(&kubeconfig(&server).1)).await.expect("it is reached");
        Self { gate: stack.gate().await, tenant, subnet, server, client }
    }

    /// Starts a controller that looks after services.
    pub(crate) async fn controller(&self) -> Controller {
        let Login { auth_url, username, password, project } = self.tenant.login_through(&self.gate);
        let text = format!(
            "[kubernetes]\ncluster_id = {project:?}\nenabled_handlers = [\"lb\", \"lbaasspec\"]\n\
             service_project_driver = \"default\"\nservice_subnets_driver = \"default\"\n\
             service_security_groups_driver = \"default\"\nendpoints_lbaas_driver = \"lbaasv2\"\n\
             [leader_election]\nenabled = false\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [neutron]\nauth_url = {auth_url:?}\nusername = {username:?}\npassword = {password:?}\n\
             project_name = {project:?}\n\
             [neutron_defaults]\nproject = {:?}\nservice_subnet = {:?}\n",
            self.tenant.id, self.subnet.id
        );
        let (folder, kubeconfig) = kubeconfig(&self.server);
        let file = folder.path().join("staffetta.toml");
        std::fs::write(&file, text).expect("the file can be written");
        let registry = staffetta::assembly::registry();
        let schema = FileSchema::assemble(&registry).expect("the program's own sections fit together");
        let configuration = Configuration::load(&schema, Some(&file), []).expect("it is well-formed");
        let client = staffetta::connect::client(Some(&kubeconfig)).await.expect("it is reached");
        let controller = Controller::start(registry, &configuration, client).await.expect("it starts");
        controller.ready().await;
        controller
    }

    /// Creates so many services with their endpoints.
    pub(crate) async fn services(&self, count: usize, ports: u16, endpoints: u8) {
        let (slices, services) = (self.slices(), self.all());
        stream::iter(0..count)
            .for_each_concurrent(IN_FLIGHT, async |number| {
                let slice = slice(number, ports, 0..endpoints);
                slices.create(&PostParams::default(), &slice).await.expect("a slice can be created");
                let service = service(number, ports);
                services.create(&PostParams::default(), &service).await.expect("a service can be created");
            })
            .await;
    }

    /// Gives a service the endpoints of these numbers.
    pub(crate) async fn endpoints(&self, number: usize, ports: u16, endpoints: Range<u8>) {
        let patch = Patch::Merge(json!({ "endpoints": slice(number, ports, endpoints).endpoints }));
        self.slices().patch(&name(number), &PatchParams::default(), &patch).await.expect("it can be changed");
    }

    /// Waits until there are so many load balancers, all ACTIVE and with all that hangs on them. What hangs on them is read when all
    /// are ACTIVE: Octavia, which tells members a pool at a time, has better things to do until then.
    pub(crate) async fn until_active(&self, count: usize, ports: u16, endpoints: u8) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let active = self.tenant.active_load_balancers().await;
            if active == count && self.whole(ports, endpoints).await == count {
                return;
            }
            assert!(Instant::now() < deadline, "{active} of {count} services are served in {PATIENCE:?}");
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// How many load balancers have so many listeners, each with so many members.
    async fn whole(&self, ports: u16, endpoints: u8) -> usize {
        let found = self.tenant.load_balancers().await;
        let whole = found.iter().filter(|balancer| {
            balancer.listeners.len() == usize::from(ports)
                && balancer.listeners.iter().all(|(_, members)| members.len() == usize::from(endpoints))
        });
        whole.count()
    }

    /// Waits until the one load balancer is ACTIVE and has just the endpoints of these numbers behind its one port.
    pub(crate) async fn until_members(&self, endpoints: Range<u8>) {
        let mut wanted: Vec<_> = endpoints.map(|last| format!("{}:8080", address(0, last))).collect();
        wanted.sort();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.tenant.load_balancers().await;
            if let [only] = &found[..]
                && let [(_, members)] = &only.listeners[..]
                && only.status == "ACTIVE"
                && *members == wanted
            {
                return;
            }
            assert!(Instant::now() < deadline, "{wanted:?} are not served in {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// From now on the controller is told that the one load balancer is `PENDING_UPDATE`, until the gate forgets its faults.
    /// Octavia itself knows nothing of it.
    pub(crate) async fn hold(&self) {
        let found = self.tenant.load_balancers().await;
        let [only] = &found[..] else { panic!("there is one: {found:?}") };
        let state = json!({ "id": only.id, "provisioning_status": "PENDING_UPDATE" });
        let body = json!({ "loadbalancer": state }).to_string();
        let told = Fault::Answer { status: StatusCode::OK, retry_after: None, body };
        let reads = Match::any().method(Method::GET).path(&format!("/loadbalancers/{}?", only.id));
        self.gate.inject(reads, usize::MAX, told);
    }

    /// Waits until so many services name their load balancers.
    pub(crate) async fn until_written(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.all().list(&ListParams::default()).await.expect("services can be listed").items;
            let written = found
                .iter()
                .filter(|service| service.annotations().contains_key("openstack.org/kuryr-lbaas-state"));
            if written.count() == count {
                return;
            }
            assert!(Instant::now() < deadline, "not all services name their load balancers in {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until so many batch calls came, and answers when the last of them did.
    pub(crate) async fn until_batches(&self, count: usize) -> Instant {
        let batches = Match::any().method(Method::PUT).path("/members");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.gate.seen();
            let mut came = seen.iter().filter(|seen| batches.takes(&seen.method, &seen.path_and_query));
            if let Some(last) = came.nth(count - 1) {
                return last.came;
            }
            assert!(Instant::now() < deadline, "no batch call in {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    fn all(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), "default")
    }
}

fn kubeconfig(server: &ApiServer) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, server.kubeconfig()).expect("the file can be written");
    (folder, path)
}

fn name(number: usize) -> String {
    format!("web-{number}")
}

fn service(number: usize, ports: u16) -> Service {
    let port = |port: u16| json!({ "name": format!("p{port}"), "port": 80 + port, "targetPort": 8080 + port, "protocol": "TCP" });
    let service = json!({ "metadata": { "name": name(number) },
        "spec": { "type": "ClusterIP", "selector": { "app": name(number) }, "ports": (0..ports).map(port).collect::<Vec<Value>>() } });
    serde_json::from_value(service).expect("it is a service")
}

/// The address of an endpoint of a service.
fn address(number: usize, last: u8) -> String {
    format!("10.128.{}.{}", number % 250, last + 1)
}

fn slice(number: usize, ports: u16, endpoints: Range<u8>) -> EndpointSlice {
    let endpoint = |last: u8| {
        let ip = address(number, last);
        let target =
            json!({ "kind": "Pod", "namespace": "default", "name": format!("{}-{last}", name(number)) });
        json!({ "addresses": [ip], "conditions": { "ready": true }, "targetRef": target })
    };
    let port = |port: u16| json!({ "name": format!("p{port}"), "port": 8080 + port, "protocol": "TCP" });
    let slice = json!({
        "metadata": { "name": name(number), "labels": { "kubernetes.io/service-name": name(number) } },
        "addressType": "IPv4", "endpoints": endpoints.map(endpoint).collect::<Vec<Value>>(),
        "ports": (0..ports).map(port).collect::<Vec<Value>>(),
    });
    serde_json::from_value(slice).expect("it is a slice")
}
