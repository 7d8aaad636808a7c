//! A cloud for one test, and what a test does in it beside the drivers.

use std::any::Any;
use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::{Value, json};
use staffetta_driver::{
    Activation, ClusterId, DriverError, Network, Owner, PodVifDriver, ProjectId, Route, Subnet, Vif, VifId,
    VifRequest,
};
use staffetta_openstack::{
    Cloud, LbaasV2Driver, MarkedPorts, MemberSubnets, NestedMacvlanDriver, NestedVlanDriver, NeutronDefaults,
    NeutronFloatingIps, NeutronSecurityGroups, NeutronVifDriver, OctaviaDefaults, PodVifNestedOptions,
    PortOptions, Subnets,
};

/// The timeout of each step, after which the test fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cloud for one test.
pub(crate) struct World {
    /// As the drivers reach it.
    pub(crate) cloud: Cloud,
    /// Neutron, without the version. What stands in for its agents listens there too, below `_agent`.
    pub(crate) neutron: String,
    /// Octavia, without the version.
    pub(crate) octavia: String,
    /// The token of an administrator, where one is asked for.
    pub(crate) token: Option<String>,
    /// The project, which nobody else uses.
    pub(crate) project: ProjectId,
    /// By this the test itself asks.
    pub(crate) client: Client,
    /// Values that live as long as the world.
    pub(crate) _keep: Box<dyn Any + Send + Sync>,
}

/// A node that is a machine of the cloud itself.
pub(crate) struct Machine {
    pub(crate) address: IpAddr,
    /// The name of the host on which it runs.
    pub(crate) host: String,
    pub(crate) subnet: Subnet,
    pub(crate) port: String,
    pub(crate) trunk: String,
}

impl World {
    /// Asks Neutron as an administrator, and answers the status and the body.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let version = if path.starts_with("_agent") { "" } else { "v2.0/" };
        self.ask_at(method, format!("{}/{version}{path}", self.neutron), body).await
    }

    /// Asks Octavia as an administrator, and answers the status and the body.
    pub(crate) async fn balance(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        self.ask_at(method, format!("{}/v2/lbaas/{path}", self.octavia), body).await
    }

    async fn ask_at(&self, method: Method, url: String, body: &Value) -> (u16, Value) {
        let mut request = self.client.request(method, url);
        request = request.header("x-of-the-test", "1").header("content-type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("x-auth-token", token);
        }
        let answer =
            if body.is_null() { request } else { request.body(body.to_string()) }.send().await.unwrap();
        let status = answer.status().as_u16();
        let text = answer.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Makes a thing of a collection, as an administrator.
    pub(crate) async fn create(&self, collection: &str, key: &str, wish: Value) -> Value {
        let (status, answer) = self.ask(Method::POST, collection, &json!({ key: wish })).await;
        assert_eq!(status, 201, "{collection}: {answer}");
        answer[key].clone()
    }

    /// A network with one subnet.
    pub(crate) async fn subnet(&self, cidr: &str) -> Subnet {
        let name = "pods";
        let network =
            self.create("networks", "network", json!({ "name": name, "project_id": self.project })).await;
        let network = Network {
            label: Some(name.into()),
            mtu: network["mtu"].as_u64().and_then(|mtu| u32::try_from(mtu).ok()),
            ..Network::new(text(&network["id"]).into())
        };
        self.subnet_of(network, cidr).await
    }

    /// One more subnet of the same network.
    pub(crate) async fn subnet_beside(&self, subnet: &Subnet, cidr: &str) -> Subnet {
        self.subnet_of(subnet.network.clone(), cidr).await
    }

    async fn subnet_of(&self, network: Network, cidr: &str) -> Subnet {
        let wish = json!({
            "network_id": network.id, "cidr": cidr, "ip_version": 4, "enable_dhcp": false, "project_id": self.project,
            "dns_nameservers": ["10.0.0.53"],
        });
        let made = self.create("subnets", "subnet", wish).await;
        let route = |route: &Value| Route {
            cidr: text(&route["destination"]).parse().unwrap(),
            gateway: text(&route["nexthop"]).parse().unwrap(),
        };
        Subnet {
            id: text(&made["id"]).into(),
            network,
            cidr: cidr.parse().unwrap(),
            gateway: Some(text(&made["gateway_ip"]).parse().unwrap()),
            dns: vec!["10.0.0.53".parse().unwrap()],
            routes: made["host_routes"].as_array().unwrap().iter().map(route).collect(),
        }
    }

    /// A host that has an agent.
    pub(crate) async fn host(&self, name: &str) -> String {
        let host = format!("{name}-{}", &self.project.as_str()[..8]);
        let (status, _) = self.ask(Method::PUT, &format!("_agent/host/{host}"), &Value::Null).await;
        assert_eq!(status, 204);
        host
    }

    /// A machine in `subnet` that is the parent of a trunk.
    pub(crate) async fn machine(&self, subnet: &Subnet) -> Machine {
        let host = self.host("compute").await;
        let wish = json!({
            "network_id": subnet.network.id, "fixed_ips": [{ "subnet_id": subnet.id }], "project_id": self.project,
            "device_owner": "compute:nova", "admin_state_up": true,
        });
        let port = self.create("ports", "port", wish).await;
        let trunk = self
            .create("trunks", "trunk", json!({ "port_id": port["id"], "project_id": self.project }))
            .await;
        // A parent must not be bound before it has its trunk.
        let change = json!({ "port": { "binding:host_id": host } });
        self.ask(Method::PUT, &format!("ports/{}", text(&port["id"])), &change).await;
        Machine {
            address: text(&port["fixed_ips"][0]["ip_address"]).parse().unwrap(),
            host,
            subnet: subnet.clone(),
            port: text(&port["id"]).to_owned(),
            trunk: text(&trunk["id"]).to_owned(),
        }
    }

    /// Sets the quota of ports; -1 for no limit.
    pub(crate) async fn allow_ports(&self, count: i64) {
        self.allow("port", count).await;
    }

    /// Sets the quota of a kind of resource; -1 for no limit.
    pub(crate) async fn allow(&self, what: &str, count: i64) {
        let quota = json!({ "quota": { what: count } });
        let (status, answer) = self.ask(Method::PUT, &format!("quotas/{}", self.project), &quota).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// Sets the quota of load balancers; -1 for no limit.
    pub(crate) async fn allow_balancers(&self, count: i64) {
        self.allow_of_octavia("load_balancer", count).await;
    }

    /// Sets the quota of a kind of resource in Octavia; -1 for no limit.
    pub(crate) async fn allow_of_octavia(&self, what: &str, count: i64) {
        let quota = json!({ "quota": { what: count } });
        let (status, answer) = self.balance(Method::PUT, &format!("quotas/{}", self.project), &quota).await;
        assert!(status == 200 || status == 202, "{status} {answer}");
    }

    /// An external network with one subnet.
    pub(crate) async fn external(&self, cidr: &str) -> Subnet {
        let wish = json!({ "name": "public", "project_id": self.project, "router:external": true });
        let network = self.create("networks", "network", wish).await;
        let wish = json!({ "network_id": network["id"], "cidr": cidr, "ip_version": 4, "enable_dhcp": false, "project_id": self.project });
        let made = self.create("subnets", "subnet", wish).await;
        Subnet {
            id: text(&made["id"]).into(),
            network: Network::new(text(&network["id"]).into()),
            cidr: cidr.parse().unwrap(),
            gateway: None,
            dns: Vec::new(),
            routes: Vec::new(),
        }
    }

    /// Makes an external network reachable from a subnet.
    pub(crate) async fn join(&self, subnet: &Subnet, external: &Subnet) {
        let gateway = json!({ "network_id": external.network.id });
        let wish = json!({ "name": "edge", "project_id": self.project, "external_gateway_info": gateway });
        let router = self.create("routers", "router", wish).await;
        let path = format!("routers/{}/add_router_interface", text(&router["id"]));
        let (status, answer) = self.ask(Method::PUT, &path, &json!({ "subnet_id": subnet.id })).await;
        assert_eq!(status, 200, "{answer}");
    }

    /// The ports of a subnet's network, whoever made them, in no order.
    pub(crate) async fn ports(&self, subnet: &Subnet) -> Vec<Value> {
        let path = format!("ports?network_id={}", subnet.network.id);
        let (_, answer) = self.ask(Method::GET, &path, &Value::Null).await;
        answer["ports"].as_array().unwrap().clone()
    }

    /// A port; `null` when there is none.
    pub(crate) async fn port(&self, id: &str) -> Value {
        self.ask(Method::GET, &format!("ports/{id}"), &Value::Null).await.1["port"].clone()
    }

    /// Removes a thing behind everybody's back.
    pub(crate) async fn remove(&self, path: &str) {
        let (status, answer) = self.ask(Method::DELETE, path, &Value::Null).await;
        assert_eq!(status, 204, "{path}: {answer}");
    }

    /// The VLANs of the trunk's subports, by port.
    pub(crate) async fn subports(&self, machine: &Machine) -> Vec<(String, u64)> {
        let (_, answer) = self.ask(Method::GET, &format!("trunks?id={}", machine.trunk), &Value::Null).await;
        let subports = answer["trunks"][0]["sub_ports"].as_array().unwrap().clone();
        let subport =
            |port: Value| (text(&port["port_id"]).to_owned(), port["segmentation_id"].as_u64().unwrap());
        subports.into_iter().map(subport).collect()
    }

    /// The pairs of addresses that a port may use besides its own, as `address hardware-address`.
    pub(crate) async fn pairs(&self, port: &str) -> Vec<String> {
        let port = self.port(port).await;
        let pairs = port["allowed_address_pairs"].as_array().unwrap().iter();
        let mut pairs: Vec<_> = pairs
            .map(|pair| format!("{} {}", text(&pair["ip_address"]), text(&pair["mac_address"])))
            .collect();
        pairs.sort_unstable();
        pairs
    }

    /// The agent of `host` has wired a port.
    pub(crate) async fn wire(&self, id: &VifId, host: &str) {
        let change = json!({ "port": { "binding:host_id": host } });
        if self.port(id.as_str()).await["binding:host_id"] != host {
            self.ask(Method::PUT, &format!("ports/{id}"), &change).await;
        }
        let (status, _) = self.ask(Method::PUT, &format!("_agent/up/{id}?host={host}"), &Value::Null).await;
        assert_eq!(status, 204);
    }

    /// The id of a cluster. Other worlds have others: who may bind ports sees those of all projects.
    pub(crate) fn cluster(&self, name: &str) -> ClusterId {
        format!("{name}-{}", &self.project.as_str()[..8]).into()
    }

    /// The driver `neutron-vif` of a cluster.
    pub(crate) fn bound(&self, cluster: &str) -> NeutronVifDriver {
        NeutronVifDriver::new(self.marked_ports(cluster, options()))
    }

    /// The ports of a cluster.
    pub(crate) fn marked_ports(&self, cluster: &str, options: PortOptions) -> Arc<MarkedPorts> {
        Arc::new(MarkedPorts::new(&self.cloud, self.known_subnets(cluster), self.cluster(cluster), options))
    }

    /// The driver `nested-vlan` of a cluster whose nodes are in the subnet of the machine.
    pub(crate) fn vlan(&self, cluster: &str, machine: &Machine) -> NestedVlanDriver {
        NestedVlanDriver::new(self.marked_ports(cluster, options()), nested(machine))
    }

    /// The driver `nested-macvlan` of a cluster whose nodes are in the subnet of the machine.
    pub(crate) fn macvlan(&self, cluster: &str, machine: &Machine) -> NestedMacvlanDriver {
        NestedMacvlanDriver::new(self.marked_ports(cluster, options()), nested(machine))
    }

    /// The driver `lbaasv2` of a cluster.
    pub(crate) fn balancers(&self, cluster: &str, options: &OctaviaDefaults) -> LbaasV2Driver {
        self.balancers_by(cluster, options, None)
    }

    /// The same, by a provider.
    pub(crate) fn balancers_by(
        &self,
        cluster: &str,
        options: &OctaviaDefaults,
        provider: Option<&str>,
    ) -> LbaasV2Driver {
        let members = MemberSubnets {
            mode: options.member_mode,
            pods: None,
            subnets: self.known_subnets(cluster),
            namespaces: Arc::default(),
        };
        let provider = provider.map(str::to_owned);
        LbaasV2Driver::new(&self.cloud, self.cluster(cluster), members, options, provider)
    }

    /// The driver `neutron_floating_ip` of a cluster.
    pub(crate) fn floating(&self, cluster: &str, pool: &Subnet) -> NeutronFloatingIps {
        NeutronFloatingIps::new(&self.cloud, self.cluster(cluster), Some(pool.network.id.clone()), None)
    }

    /// The driver `neutron-vif` of a cluster whose ports have no names.
    pub(crate) fn bound_unnamed(&self, cluster: &str) -> NeutronVifDriver {
        let options = PortOptions { port_debug: false, ..options() };
        NeutronVifDriver::new(self.marked_ports(cluster, options))
    }

    /// The driver of network policies of a cluster.
    pub(crate) fn policies(&self, cluster: &str) -> NeutronSecurityGroups {
        NeutronSecurityGroups::new(&self.cloud, self.cluster(cluster), self.project.clone())
    }

    pub(crate) fn known_subnets(&self, cluster: &str) -> Arc<Subnets> {
        let (network, cluster) = (self.cloud.network(), self.cluster(cluster));
        Arc::new(Subnets::new(network, &NeutronDefaults::default(), cluster))
    }

    /// A request for the pod of that name on that node.
    pub(crate) fn request(&self, pod: &str, node_name: &str, subnet: &Subnet) -> VifRequest {
        VifRequest {
            owner: self.owner(pod),
            node_name: node_name.into(),
            host_ip: None,
            project: self.project.clone(),
            subnets: vec![subnet.clone()],
            security_groups: Vec::new(),
        }
    }

    /// A request for the pod of that name on a machine.
    pub(crate) fn nested_request(&self, pod: &str, machine: &Machine, subnet: &Subnet) -> VifRequest {
        VifRequest { host_ip: Some(machine.address), ..self.request(pod, "machine", subnet) }
    }

    /// The pod of that name; in another world it is another pod.
    pub(crate) fn owner(&self, pod: &str) -> Owner {
        let uid = format!("{pod}-{}", self.project);
        Owner { namespace: "default".into(), name: pod.into(), uid: uid.into() }
    }
}

fn options() -> PortOptions {
    PortOptions { ovs_bridge: "br-int".into(), port_debug: true }
}

fn nested(machine: &Machine) -> PodVifNestedOptions {
    PodVifNestedOptions {
        worker_nodes_subnets: vec![machine.subnet.id.clone()],
        ..PodVifNestedOptions::default()
    }
}

/// Asks for activation as the handler does, as soon as it is told to and no sooner.
pub(crate) async fn activated(
    driver: &dyn PodVifDriver,
    owner: &Owner,
    vif: &Vif,
) -> Result<Vif, DriverError> {
    within(async {
        loop {
            match driver.activate_vif(owner, vif).await? {
                Activation::Active(vif) => return Ok(vif),
                Activation::NotYet { poll_after } => tokio::time::sleep(poll_after).await,
            }
        }
    })
    .await
}

/// Returns the result of the future, unless it times out.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes longer than anything may")
}

/// A client for [`World::client`]; the cloud of the world brings what it needs of TLS.
pub(crate) fn client() -> Client {
    Client::builder().no_proxy().timeout(PATIENCE).build().unwrap()
}

/// The text of a JSON string.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
