//! A real Neutron, a real API server, and a controller between them whose requests are looked at.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta::config::{Configuration, FileSchema};
use staffetta_real_openstack::{Login, Port, RealOpenStack, Subnet, Tenant};

use crate::cluster;
use crate::spy::Spy;

/// How long anything may take before the benchmark gives up.
const PATIENCE: Duration = Duration::from_secs(300);

/// A project in which one thing is measured.
pub(crate) struct Place {
    pub(crate) tenant: Tenant,
    pub(crate) subnet: Subnet,
    pub(crate) node: String,
    group: String,
    number: usize,
}

impl Place {
    /// Makes one, with a node whose agent reports ports so long after they were bound; without a delay, when it is told.
    pub(crate) async fn new(stack: &RealOpenStack, delay: Option<Duration>, number: usize) -> Self {
        let tenant = stack.tenant().await;
        let subnet = tenant.subnet("10.128.0.0/16").await;
        let node = tenant.node("node", delay).await;
        let group = tenant.security_group("pods").await;
        Self { tenant, subnet, node, group, number }
    }

    /// The fields of a port as a pod gets one.
    pub(crate) fn port(&self, number: usize) -> Value {
        json!({ "name": format!("bare-{number}"), "network_id": self.subnet.network, "admin_state_up": true,
            "fixed_ips": [{ "subnet_id": self.subnet.id }], "security_groups": [self.group],
            "device_owner": "compute:bare", "binding:host_id": self.node, "tags": ["bare"] })
    }

    /// Starts a controller here that looks after the pods of this place.
    pub(crate) async fn controller(&self, kubeconfig: &Path, login: &Login, options: &str) -> Watched {
        let Login { auth_url, username, password, project } = login;
        let text = format!(
            "[kubernetes]\ncluster_id = {project:?}\nenabled_handlers = [\"vif\"]\npod_project_driver = \"default\"\n\
             pod_subnets_driver = \"default\"\npod_security_groups_driver = \"default\"\n{}\n\
             [leader_election]\nenabled = false\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [relay]\nmax_concurrency = 64\n\
             [neutron]\nauth_url = {auth_url:?}\nusername = {username:?}\npassword = {password:?}\n\
             project_name = {project:?}\n\
             [neutron_defaults]\nproject = {:?}\npod_subnet = {:?}\npod_security_groups = [{:?}]\n",
            options, self.tenant.id, self.subnet.id, self.group
        );
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        std::fs::write(file.path(), text).expect("the file can be written");
        let registry = staffetta::assembly::registry();
        let schema = FileSchema::assemble(&registry).expect("the program's own sections fit together");
        let configuration = Configuration::load(&schema, Some(file.path()), []).expect("it is well-formed");
        let spy = Spy::default();
        let client = spy.watch(cluster::client(kubeconfig).await);
        let started = staffetta::controller::Controller::start(registry, &configuration, client).await;
        let controller = started.expect("the controller starts");
        controller.ready().await;
        Watched { controller, spy }
    }

    /// Names that no other place has.
    pub(crate) fn names(&self, prefix: &str, count: usize) -> Vec<String> {
        (0..count).map(|number| format!("{prefix}-{}-{number}", self.number)).collect()
    }

    /// Creates pods on the node.
    pub(crate) async fn create(&self, client: &Client, names: &[String]) {
        let api = cluster::pods(client);
        cluster::each(names, async |name| {
            let mut pod = cluster::pod(name);
            if let Some(spec) = &mut pod.spec {
                spec.node_name = Some(self.node.clone());
            }
            api.create(&PostParams::default(), &pod).await.expect("a pod can be created");
        })
        .await;
    }

    /// Makes the node a machine of the cloud.
    pub(crate) async fn machine(&self) -> Machine {
        let subnet = self.tenant.subnet("10.1.0.0/24").await;
        let trunk = self.tenant.trunk(&self.node, &subnet).await;
        Machine { subnet, address: trunk.address }
    }

    /// The ports of pods.
    pub(crate) async fn ports(&self) -> Vec<Port> {
        self.tenant.pod_ports(&self.subnet.network).await
    }

    /// Waits until Neutron has so many ports of pods, and they become no more.
    pub(crate) async fn until_full(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        let mut before = 0;
        loop {
            let now = self.ports().await.len();
            if now >= count && now == before {
                return;
            }
            assert!(Instant::now() < deadline, "{now} of {count} ports in {PATIENCE:?}");
            before = now;
            tokio::time::sleep(Duration::from_secs(3)).await; // a list of hundreds keeps Neutron busy
        }
    }
}

/// A node that is a machine of the same cloud: the node of a place, with a port and a trunk.
pub(crate) struct Machine {
    pub(crate) subnet: Subnet,
    address: IpAddr,
}

impl Machine {
    /// Creates pods on the node, whose address their status tells as a kubelet would.
    pub(crate) async fn create(&self, place: &Place, client: &Client, names: &[String]) {
        let status = json!({ "status": { "hostIP": self.address, "hostIPs": [{ "ip": self.address }] } });
        place.create(client, names).await;
        let api = cluster::pods(client);
        cluster::each(names, async |name| {
            let told = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
            told.expect("the status of a pod can be written");
        })
        .await;
    }
}

/// A running controller whose requests to the API server are looked at.
pub(crate) struct Watched {
    controller: staffetta::controller::Controller,
    pub(crate) spy: Spy,
}

impl Watched {
    /// Waits until each of these pods was patched so often.
    pub(crate) async fn until_patched(&self, names: &[String], times: usize) {
        let deadline = Instant::now() + PATIENCE;
        while !names.iter().all(|name| self.spy.acknowledged(name).len() >= times) {
            assert!(Instant::now() < deadline, "not each pod was patched {times} times in {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// How many of these pods a second got their VIF: from the first event to the last answer.
    pub(crate) fn rate(&self, names: &[String]) -> f64 {
        let heard = names.iter().filter_map(|name| self.spy.heard(name)).min();
        let written = names.iter().filter_map(|name| self.spy.acknowledged(name).first().copied()).max();
        let (heard, written) = heard.zip(written).expect("each pod was heard of and patched");
        names.len() as f64 / written.duration_since(heard).as_secs_f64()
    }

    pub(crate) async fn stop(self) {
        self.controller.stop().await.expect("the controller ends");
    }
}

/// Calls a second of bare creations, so many in flight.
pub(crate) async fn bare(place: &Place, login: &Login, count: usize, in_flight: usize) -> f64 {
    let user = place.tenant.user(login).await;
    let begun = Instant::now();
    stream::iter(0..count)
        .for_each_concurrent(in_flight, async |number| {
            let body = json!({ "port": place.port(number) });
            let answer = user.send(http::Method::POST, "/v2.0/ports", Some(body)).await;
            let (status, answer) = answer.expect("Neutron answers");
            assert!(status.is_success(), "{answer}");
        })
        .await;
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Ports a second of bare creations of many at once.
pub(crate) async fn bulk(place: &Place, login: &Login, count: usize, batch: usize) -> f64 {
    let user = place.tenant.user(login).await;
    let begun = Instant::now();
    for from in (0..count).step_by(batch) {
        let ports: Vec<_> = (from..count.min(from + batch)).map(|number| place.port(number)).collect();
        let answer = user.send(http::Method::POST, "/v2.0/ports", Some(json!({ "ports": ports }))).await;
        let (status, answer) = answer.expect("Neutron answers");
        assert!(status.is_success(), "{answer}");
    }
    count as f64 / begun.elapsed().as_secs_f64()
}
