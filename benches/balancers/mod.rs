//! A project of a real OpenStack, an embedded API server with services in it, and the controller between them.

use std::ops::Range;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use staffetta_apiserver::{ApiServer, Options};
use staffetta_real_openstack::{Fault, Gate, Login, Match, RealOpenStack, Subnet, Tenant};
use tempfile::TempDir;

use crate::cluster;
use crate::program::Program;
use crate::wait::{complete, until};

/// The number of the benchmark's own requests in flight.
const IN_FLIGHT: usize = 8;

/// The services that are measured.
pub(crate) struct Shop {
    pub(crate) tenant: Tenant,
    pub(crate) gate: Gate,
    subnet: Subnet,
    client: Client,
    /// The folder with the kubeconfig of the server.
    folder: TempDir,
    _server: ApiServer,
}

impl Shop {
    pub(crate) async fn new(stack: &RealOpenStack) -> Self {
        let tenant = stack.tenant().await;
        let subnet = tenant.subnet("10.96.0.0/12").await;
        let server = ApiServer::start(Options::default()).await.expect("it starts");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, server.kubeconfig()).expect("the folder can be written");
        let client = cluster::client(&kubeconfig).await;
        Self { gate: stack.gate().await, tenant, subnet, client, folder, _server: server }
    }

    /// Starts a controller of services.
    pub(crate) async fn controller(&self) -> Program {
        let Login { auth_url, username, password, project } = self.tenant.login_through(&self.gate);
        let sections = format!(
            "[kubernetes]\ncluster_id = {project:?}\nenabled_handlers = [\"lb\", \"lbaasspec\"]\n\
             service_project_driver = \"default\"\nservice_subnets_driver = \"default\"\n\
             service_security_groups_driver = \"default\"\nendpoints_lbaas_driver = \"lbaasv2\"\n\
             [leader_election]\nenabled = false\n\
             [neutron]\nauth_url = {auth_url:?}\nusername = {username:?}\npassword = {password:?}\n\
             project_name = {project:?}\n\
             [neutron_defaults]\nproject = {:?}\nservice_subnet = {:?}\n",
            self.tenant.id, self.subnet.id
        );
        let mut controller = Program::start(&self.folder.path().join("kubeconfig"), &sections);
        controller.logs("all objects are listed").await;
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

    /// Waits until there are so many load balancers, all ACTIVE and complete. Their parts are read once all are ACTIVE: Octavia,
    /// which lists the members of one pool per call, is busy until then.
    pub(crate) async fn until_active(&self, count: usize, ports: u16, endpoints: u8) {
        until(Duration::from_secs(2), async || {
            complete(self.tenant.active_load_balancers().await, count, "load balancers are ACTIVE")?;
            complete(self.whole(ports, endpoints).await, count, "load balancers are complete")
        })
        .await;
    }

    /// The number of load balancers with so many listeners, each with so many members.
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
        until(Duration::from_millis(50), async || {
            let found = self.tenant.load_balancers().await;
            if let [only] = &found[..]
                && let [(_, members)] = &only.listeners[..]
                && only.status == "ACTIVE"
                && *members == wanted
            {
                return Ok(());
            }
            Err(format!("{wanted:?} are not served"))
        })
        .await;
    }

    /// From now on the gate answers that the one load balancer is `PENDING_UPDATE`, until it forgets its faults. In Octavia it
    /// stays ACTIVE.
    pub(crate) async fn hold(&self) {
        let found = self.tenant.load_balancers().await;
        let [only] = &found[..] else { panic!("there is one: {found:?}") };
        let state = json!({ "id": only.id, "provisioning_status": "PENDING_UPDATE" });
        let body = json!({ "loadbalancer": state }).to_string();
        let busy = Fault::Answer { status: StatusCode::OK, retry_after: None, body };
        let reads = Match::any().method(Method::GET).path(&format!("/loadbalancers/{}?", only.id));
        self.gate.inject(reads, usize::MAX, busy);
    }

    /// Waits until so many services name their load balancers.
    pub(crate) async fn until_written(&self, count: usize) {
        until(Duration::from_millis(100), async || {
            let found = self.all().list(&ListParams::default()).await.expect("services can be listed").items;
            let is_written =
                |service: &&Service| service.annotations().contains_key("openstack.org/kuryr-lbaas-state");
            complete(found.iter().filter(is_written).count(), count, "services name their load balancers")
        })
        .await;
    }

    /// Waits until so many batch calls came, and returns the time of the last.
    pub(crate) async fn until_batches(&self, count: usize) -> Instant {
        let batches = Match::any().method(Method::PUT).path("/members");
        until(Duration::from_millis(2), async || {
            let seen = self.gate.seen();
            let mut came = seen.iter().filter(|seen| batches.takes(&seen.method, &seen.path_and_query));
            came.nth(count - 1).map(|last| last.came).ok_or_else(|| "no batch call".to_owned())
        })
        .await
    }

    fn all(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), "default")
    }
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
