//! A real Neutron, a real API server, and a controller between them whose requests pass a proxy.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream;
use kube::Client;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use staffetta_real_openstack::{Login, Port, RealOpenStack, Subnet, Tenant};

use crate::cluster;
use crate::program::{Program, vif};
use crate::proxy::{Passed, Proxy};
use crate::wait::until;

/// The number of calls in flight to Neutron: of the baseline, and `neutron.max_concurrency` of the controller.
pub(crate) const IN_FLIGHT: usize = 16;

/// A project in which one thing is measured.
pub(crate) struct Place {
    pub(crate) tenant: Tenant,
    pub(crate) subnet: Subnet,
    pub(crate) node: String,
    group: String,
    number: usize,
}

impl Place {
    /// Makes one, with a node whose agent reports ports this long after they were bound; without a delay, when a benchmark says so.
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

    /// Starts a controller of the pods of this place, with a driver of VIFs and of pools and further options.
    pub(crate) async fn controller(
        &self,
        kubeconfig: &Path,
        login: &Login,
        (pod_vif, pool): (&str, &str),
        options: &str,
    ) -> Watched {
        let Login { auth_url, username, password, project } = login;
        let sections = vif("default", pod_vif, pool)
            + &format!(
                "cluster_id = {project:?}\n{options}\n[leader_election]\nenabled = false\n\
                 [relay]\nmax_concurrency = 128\n\
                 [neutron]\nauth_url = {auth_url:?}\nusername = {username:?}\npassword = {password:?}\n\
                 project_name = {project:?}\nmax_concurrency = {IN_FLIGHT}\n\
                 [neutron_defaults]\nproject = {:?}\npod_subnet = {:?}\npod_security_groups = [{:?}]\n",
                self.tenant.id, self.subnet.id, self.group
            );
        let proxy = Proxy::start(kubeconfig).await;
        let mut program = Program::start(&proxy.kubeconfig(), &sections);
        program.logs("all objects are listed").await;
        Watched { program, proxy }
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
        let mut before = 0;
        // A list of hundreds keeps Neutron busy, hence the long pause.
        until(Duration::from_secs(3), async || {
            let now = self.ports().await.len();
            let is_full = now >= count && now == std::mem::replace(&mut before, now);
            if is_full { Ok(()) } else { Err(format!("{now} of {count} ports exist")) }
        })
        .await;
    }
}

/// A node that is a machine of the same cloud: the node of a place, with a port and a trunk.
pub(crate) struct Machine {
    pub(crate) subnet: Subnet,
    address: IpAddr,
}

impl Machine {
    /// Creates pods on the node, with its address in their status as a kubelet writes it.
    pub(crate) async fn create(&self, place: &Place, client: &Client, names: &[String]) {
        let status = json!({ "status": { "hostIP": self.address, "hostIPs": [{ "ip": self.address }] } });
        place.create(client, names).await;
        let api = cluster::pods(client);
        cluster::each(names, async |name| {
            let answer = api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await;
            answer.expect("the status of a pod can be written");
        })
        .await;
    }
}

/// A running controller whose requests to the API server pass a proxy.
pub(crate) struct Watched {
    pub(crate) program: Program,
    pub(crate) proxy: Proxy,
}

impl Watched {
    /// The requests and events that passed the proxy.
    pub(crate) fn passed(&self) -> &Passed {
        &self.proxy.passed
    }

    /// The number of these pods that got their VIF per second, from the first event to the last answer.
    pub(crate) fn rate(&self, names: &[String]) -> f64 {
        let delivered = names.iter().map(|name| self.passed().delivered(name)).min();
        let written = names.iter().filter_map(|name| self.passed().acknowledged(name).first().copied()).max();
        let (delivered, written) = delivered.zip(written).expect("each pod was delivered and patched");
        names.len() as f64 / written.duration_since(delivered).as_secs_f64()
    }

    /// The mean number of patches of these pods.
    pub(crate) fn writes(&self, names: &[String]) -> f64 {
        let writes: usize = names.iter().map(|name| self.passed().acknowledged(name).len()).sum();
        writes as f64 / names.len() as f64
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
